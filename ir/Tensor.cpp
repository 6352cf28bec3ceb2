// Whole tensors in the interpreter: rounding to what an element holds, and their bytes.
#include "ir/Tensor.h"
#include <cmath>
#include <cstring>

using namespace zcc;
using llvm::StringRef;

Tensor::Tensor(Type t) : type(std::move(t)) {
  if (isFloat())
    f.resize(count());
  else
    i.resize(count());
}

void zcc::copyElements(const Tensor &from, int64_t at, Tensor &to, int64_t begin, int64_t count) {
  if (from.isFloat())
    std::copy_n(from.f.begin() + at, count, to.f.begin() + begin);
  else
    std::copy_n(from.i.begin() + at, count, to.i.begin() + begin);
}

bool zcc::isSplat(const Tensor &t) {
  auto same = [](auto &v) { return llvm::all_of(v, [&](auto &x) { return memcmp(&x, &v[0], sizeof x) == 0; }); };
  return t.isFloat() ? same(t.f) : same(t.i);
}

static float bf16(float v) {
  if (std::isnan(v))
    return v;
  uint32_t b;
  memcpy(&b, &v, 4);
  b = (b + 0x7fff + (b >> 16 & 1)) & 0xffff0000; // to nearest, ties to even
  memcpy(&v, &b, 4);
  return v;
}

template <typename T> static void wrapAll(std::vector<int64_t> &v) {
  for (int64_t &x : v)
    x = int64_t(T(x));
}

/// Calls f with a value of the C++ type that `e` is stored as; 16-bit floats excepted.
template <typename F> static void withType(Elem e, F f) {
  switch (e) {
  case Elem::F32:
    return f(float());
  case Elem::F64:
    return f(double());
  case Elem::I64:
  case Elem::U64:
    return f(int64_t());
  case Elem::I32:
    return f(int32_t());
  case Elem::I16:
    return f(int16_t());
  case Elem::I8:
    return f(int8_t());
  case Elem::U32:
    return f(uint32_t());
  case Elem::U16:
    return f(uint16_t());
  case Elem::U8:
    return f(uint8_t());
  case Elem::Bool:
    return f(bool());
  case Elem::F16:
  case Elem::BF16:
    break;
  }
  llvm_unreachable("an element without a type of its own");
}

double zcc::roundTo(Elem e, double v) {
  if (e == Elem::BF16)
    return bf16(float(v));
  if (e == Elem::F16)
    return double(_Float16(float(v)));
  double r = v;
  withType(e, [&](auto t) {
    if constexpr (std::is_floating_point_v<decltype(t)>)
      r = double(decltype(t)(v));
    else
      r = double(decltype(t)(int64_t(v)));
  });
  return r;
}

void zcc::roundAll(Tensor &t, Compute c) {
  Elem e = t.type.elem;
  if (!t.isFloat())
    return withType(e, [&](auto v) { wrapAll<decltype(v)>(t.i); });
  if (c == Compute::F64 || e == Elem::F64)
    return;
  if (e == Elem::F32)
    for (double &v : t.f)
      v = float(v);
  else
    for (double &v : t.f)
      v = roundTo(e, v);
}

Tensor zcc::tensorFromBytes(const Type &type, StringRef bytes) {
  Tensor t(type);
  int64_t n = t.count();
  assert(int64_t(bytes.size()) >= n * elemBytes(type.elem) && "too few bytes for the type");
  if (isFloat16(type.elem)) {
    for (int64_t k = 0; k < n; ++k) {
      uint16_t bits;
      memcpy(&bits, bytes.data() + 2 * k, 2);
      uint32_t wide = uint32_t(bits) << 16;
      _Float16 half;
      float single;
      memcpy(&half, &bits, 2);
      memcpy(&single, &wide, 4);
      t.f[k] = type.elem == Elem::F16 ? float(half) : single;
    }
    return t;
  }
  if (type.elem == Elem::Bool) { // of a file any byte can come, of which only 0 is false
    for (int64_t k = 0; k < n; ++k)
      t.i[k] = bytes[k] != 0;
    return t;
  }
  withType(type.elem, [&](auto v) {
    auto read = [&](auto *to) {
      for (int64_t k = 0; k < n; ++k) {
        memcpy(&v, bytes.data() + k * sizeof v, sizeof v);
        to[k] = v;
      }
    };
    if constexpr (std::is_floating_point_v<decltype(v)>)
      read(t.f.data());
    else
      read(t.i.data());
  });
  return t;
}

std::string zcc::convertedBytes(StringRef bytes, const Type &from, Elem to) {
  Tensor t = tensorFromBytes(from, bytes);
  t.type.elem = to;
  return tensorToBytes(t);
}

std::string zcc::tensorToBytes(const Tensor &t) {
  int64_t n = t.count(), size = elemBytes(t.type.elem);
  std::string bytes(n * size, 0);
  if (isFloat16(t.type.elem)) {
    for (int64_t k = 0; k < n; ++k) {
      auto half = _Float16(float(t.f[k]));
      float single = bf16(float(t.f[k]));
      uint32_t wide;
      memcpy(&wide, &single, 4);
      auto top = uint16_t(wide >> 16);
      memcpy(&bytes[2 * k], t.type.elem == Elem::F16 ? (const void *)&half : &top, 2);
    }
    return bytes;
  }
  withType(t.type.elem, [&](auto v) {
    auto write = [&](const auto *from) {
      for (int64_t k = 0; k < n; ++k) {
        v = decltype(v)(from[k]);
        memcpy(&bytes[k * sizeof v], &v, sizeof v);
      }
    };
    if constexpr (std::is_floating_point_v<decltype(v)>)
      write(t.f.data());
    else
      write(t.i.data());
  });
  return bytes;
}
