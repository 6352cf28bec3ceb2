// Element types at run time: sizes, names, and conversions of single values.
#pragma once

#include "runtime/zccrt.h"
#include <cstring>
#include <string>

namespace zccrt {

inline int64_t elemBytes(int elem) {
  constexpr int8_t bytes[] = {4, 8, 2, 2, 8, 4, 2, 1, 8, 4, 2, 1, 1};
  return bytes[elem];
}

/// numpy's name: "float32", "int64".
inline const char *elemName(int elem) {
  constexpr const char *names[] = {"float32", "float64", "float16", "bfloat16", "int64", "int32", "int16",
                                   "int8",    "uint64",  "uint32",  "uint16",   "uint8", "bool"};
  return names[elem];
}

inline bool isFloat(int elem) { return elem <= ZCCRT_BF16; }
inline bool isInteger(int elem) { return elem >= ZCCRT_I64 && elem <= ZCCRT_U8; }

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
