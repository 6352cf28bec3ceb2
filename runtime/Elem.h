// Element types at run time: sizes, names, and conversions of single values.
#pragma once

#include "runtime/zccrt.h"
#include <cstring>
#include <iterator>
#include <string>
#include <type_traits>

namespace zccrt {

/// What an element is called: by numpy, in the header of a .npy file, in that of a safetensors file.
struct ElemDef {
  int8_t bytes;
  const char *name, *descr, *safetensors;
};

/// By zccrt_elem.
inline constexpr ElemDef kElems[] = {
    {4, "float32", "<f4", "F32"}, {8, "float64", "<f8", "F64"}, {2, "float16", "<f2", "F16"}, {2, "bfloat16", "<V2", "BF16"},
    {8, "int64", "<i8", "I64"},   {4, "int32", "<i4", "I32"},   {2, "int16", "<i2", "I16"},   {1, "int8", "|i1", "I8"},
    {8, "uint64", "<u8", "U64"},  {4, "uint32", "<u4", "U32"},  {2, "uint16", "<u2", "U16"},  {1, "uint8", "|u1", "U8"},
    {1, "bool", "|b1", "BOOL"},
};
static_assert(std::size(kElems) == ZCCRT_BOOL + 1, "a row for each element");

inline int64_t elemBytes(int elem) { return kElems[elem].bytes; }
/// numpy's name: "float32", "int64".
inline const char *elemName(int elem) { return kElems[elem].name; }

inline bool isFloat(int elem) { return elem <= ZCCRT_BF16; }
inline bool isInteger(int elem) { return elem >= ZCCRT_I64 && elem <= ZCCRT_U8; }

/// Bytes rounded up to what an arena aligns to.
inline int64_t aligned(int64_t bytes) { return (bytes + 63) & ~int64_t(63); }

/// Elements of a tensor; 1 for a scalar.
inline int64_t elementCount(const zccrt_tensor &t) {
  int64_t n = 1;
  for (int i = 0; i < t.ndim; ++i)
    n *= t.dims[i];
  return n;
}

/// The shape as numpy prints it: "(8, 16)", "()".
inline std::string shapeText(const int64_t *dims, int ndim) {
  std::string s = "(";
  for (int i = 0; i < ndim; ++i)
    s += (i ? ", " : "") + std::to_string(dims[i]);
  return s + (ndim == 1 ? ",)" : ")");
}

/// Types as they lie in memory, by elem.
struct Bf16 {
  uint16_t bits;
  Bf16() = default;
  /// Rounds to nearest even; NaN stays NaN.
  explicit Bf16(float f) {
    uint32_t u;
    std::memcpy(&u, &f, 4);
    bits = f != f ? (u >> 16) | 0x40 : (u + 0x7fff + ((u >> 16) & 1)) >> 16;
  }
  explicit operator float() const {
    uint32_t u = uint32_t(bits) << 16;
    float f;
    std::memcpy(&f, &u, 4);
    return f;
  }
};
using F16 = _Float16;

/// What elements of T are added up in: 16-bit floats in float.
template <class T> using Sum = std::conditional_t<sizeof(T) == 2 && !std::is_integral_v<T>, float, T>;

/// Calls fn with a value of the C++ type of elem.
template <class Fn> void withType(int elem, Fn fn) {
  switch (elem) {
  case ZCCRT_F32:
    return fn(float());
  case ZCCRT_F64:
    return fn(double());
  case ZCCRT_F16:
    return fn(F16());
  case ZCCRT_BF16:
    return fn(Bf16());
  case ZCCRT_I64:
    return fn(int64_t());
  case ZCCRT_I32:
    return fn(int32_t());
  case ZCCRT_I16:
    return fn(int16_t());
  case ZCCRT_I8:
    return fn(int8_t());
  case ZCCRT_U64:
    return fn(uint64_t());
  case ZCCRT_U32:
    return fn(uint32_t());
  case ZCCRT_U16:
    return fn(uint16_t());
  default:
    return fn(uint8_t());
  }
}

/// Converts n values; floats round to nearest even. Integer to integer and float to float only.
void convert(const void *from, int fromElem, void *to, int toElem, int64_t n);

/// Makes n bytes of a file the 0 and 1 that a bool must be; what is not 0 is true.
void makeBools(char *bytes, int64_t n);

/// Value i of a float buffer.
double floatAt(const void *data, int elem, int64_t i);

} // namespace zccrt
