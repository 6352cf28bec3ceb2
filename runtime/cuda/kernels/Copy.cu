// concat and pad: copies of boxes.
#include "runtime/Device.h"
#include "runtime/cpu/Padding.h"
#include "runtime/cuda/AsyncCopy.h"
#include "runtime/cuda/Each.h"
#include "runtime/cuda/Kernels.h"
#include <cmath>

namespace zccrt::cuda {

void copyBytes(char *to, const char *from, int64_t bytes) { device()->copy(Device::Compute, to, from, bytes); }
void fillBytes(char *to, int byte, int64_t bytes) { device()->fill(Device::Compute, to, byte, bytes); }

template <typename T> static void copyElements(char *to, const Axes &target, const char *from, const Axes &source, int64_t n) {
  T *const y = (T *)to;
  const T *const x = (const T *)from;
  eachIndex(n, [=] __device__(auto i) { y[target.offset(i)] = x[source.offset(i)]; });
}

namespace {

/// What copyStrided() copies as few axes of wide elements.
struct Boxes {
  int64_t dims[ZCCRT_MAX_DIMS], target[ZCCRT_MAX_DIMS], source[ZCCRT_MAX_DIMS]; ///< strides in bytes
  int ndim = 0;
  int64_t bytes; ///< of an element

  Boxes(const int64_t *toStrides, const int64_t *fromStrides, const int64_t *d, int n, int64_t elemBytes) : bytes(elemBytes) {
    for (int i = 0; i < n; ++i)
      add(d[i], toStrides[i] * elemBytes, fromStrides[i] * elemBytes);
  }
  /// A further axis, inside of the others: with the last one, where elements follow each other in both.
  void add(int64_t n, int64_t toStride, int64_t fromStride) {
    if (n == 1)
      return;
    if (ndim && target[ndim - 1] == n * toStride && source[ndim - 1] == n * fromStride)
      n *= dims[--ndim];
    dims[ndim] = n;
    target[ndim] = toStride;
    source[ndim++] = fromStride;
  }
  /// Elements as wide as all of them begin at a multiple of, in both.
  void widen(const char *to, const char *from) {
    if (!ndim || target[ndim - 1] != bytes || source[ndim - 1] != bytes)
      return;
    int64_t steps = int64_t(uintptr_t(to) | uintptr_t(from)) | dims[ndim - 1] * bytes;
    for (int i = 0; i + 1 < ndim; ++i)
      steps |= target[i] | source[i];
    const int64_t wide = std::min<int64_t>(sizeof(Sixteen), steps & -steps), times = wide / bytes;
    if (times < 2)
      return;
    dims[ndim - 1] /= times;
    target[ndim - 1] = source[ndim - 1] = bytes = wide;
  }
};

} // namespace

void copyStrided(char *to, const int64_t *toStrides, const char *from, const int64_t *fromStrides, const int64_t *dims, int ndim,
                 int64_t elemBytes) {
  Boxes boxes(toStrides, fromStrides, dims, ndim, elemBytes);
  boxes.widen(to, from);
  int64_t n = 1;
  for (int i = 0; i < boxes.ndim; ++i) {
    n *= boxes.dims[i];
    boxes.target[i] /= boxes.bytes;
    boxes.source[i] /= boxes.bytes;
  }
  const Axes target(boxes.dims, boxes.target, boxes.ndim), source(boxes.dims, boxes.source, boxes.ndim);
  switch (boxes.bytes) {
  case 16:
    return copyElements<Sixteen>(to, target, from, source, n);
  case 8:
    return copyElements<uint64_t>(to, target, from, source, n);
  case 4:
    return copyElements<uint32_t>(to, target, from, source, n);
  case 2:
    return copyElements<uint16_t>(to, target, from, source, n);
  default:
    return copyElements<uint8_t>(to, target, from, source, n);
  }
}

void concatRun(char *arena, const zccrt_call *c) {
  if (!arena)
    return;
  const zccrt_tensor &y = result(c, 0);
  int64_t bytes = cpu::elemBytes(y.elem);
  int axis = int(attrInt(c, "axis", 0));
  char *to = arena + y.offset;
  for (int i = 0; i < c->nin; ++i) {
    const zccrt_tensor &x = operand(c, i);
    copyStrided(to, y.strides, arena + x.offset, x.strides, x.dims, x.ndim, bytes);
    to += x.dims[axis] * y.strides[axis] * bytes;
  }
}

// ---- pad

namespace {

struct Padding {
  cpu::PadMode mode;
  Axes x, y;
  int64_t lo[ZCCRT_MAX_DIMS];
};

} // namespace

template <typename T> static void padElements(T *y, const T *x, const Padding p, T value, int64_t n) {
  each(n, [=] __device__(int64_t i) {
    int64_t rest = i, offset = 0;
    bool isInside = true;
    for (int a = p.y.ndim - 1; a >= 0; --a) {
      int64_t at = cpu::padSource(p.mode, rest % p.y.dims[a] - p.lo[a], p.x.dims[a]);
      rest /= p.y.dims[a];
      isInside &= at >= 0;
      offset += at * p.x.strides[a];
    }
    y[i] = isInside ? x[offset] : value;
  });
}

/// Zeros are the same bytes in every element type.
static bool isBoxInZeros(const Padding &p, double value) {
  bool is = p.mode == cpu::PadMode::Constant && value == 0 && !std::signbit(value);
  for (int a = 0; a < p.x.ndim; ++a)
    is &= p.lo[a] >= 0 && p.lo[a] + p.x.dims[a] <= p.y.dims[a];
  return is;
}

/// Fills what is in front of the box and behind it, or where it does not lie in one piece everything first.
static void copyIntoZeros(char *arena, const zccrt_call *c, const Padding &p) {
  const int64_t bytes = cpu::elemBytes(result(c, 0).elem), all = count(result(c, 0)) * bytes;
  char *const y = arena + result(c, 0).offset;
  int64_t start = 0, outer = 1; // of the box; of its pieces
  int inner = p.x.ndim;         // axes from here on have no padding
  while (inner > 0 && p.x.dims[inner - 1] == p.y.dims[inner - 1])
    --inner;
  for (int a = 0; a < p.x.ndim; ++a) {
    start += p.lo[a] * p.y.strides[a] * bytes;
    outer *= a + 1 < inner ? p.x.dims[a] : 1;
  }
  if (const int64_t size = count(operand(c, 0)) * bytes; outer == 1 && size > 0) {
    fillBytes(y, 0, start);
    fillBytes(y + start + size, 0, all - start - size);
  } else {
    fillBytes(y, 0, all);
  }
  copyStrided(y + start, p.y.strides, arena + operand(c, 0).offset, p.x.strides, p.x.dims, p.x.ndim, bytes);
}

void padRun(char *arena, const zccrt_call *c) {
  Padding p{cpu::padMode(c), Axes(operand(c, 0)), Axes(result(c, 0)), {}};
  if (!arena)
    return;
  for (int a = 0; a < p.x.ndim; ++a)
    p.lo[a] = attrAxis(c, "lo", a, 0);
  double value = attrFloat(c, "value", 0.0);
  if (isBoxInZeros(p, value))
    return copyIntoZeros(arena, c, p);
  cpu::withNumber(result(c, 0).elem, [&](auto *type) {
    using T = std::remove_pointer_t<decltype(type)>;
    padElements<T>(at<T>(arena, result(c, 0)), at<T>(arena, operand(c, 0)), p, T(value), count(result(c, 0)));
  });
}

} // namespace zccrt::cuda
