// Element types as C++ types, for kernels that calculate.
#pragma once

#include "runtime/Elem.h"
#include "runtime/cpu/KernelMath.h"
#include "runtime/zccrt.h"
#include <cstdint>
#include <type_traits>

namespace zccrt::cpu {

/// A bfloat16 that calculates as a float.
struct Bf16 {
  uint16_t bits;
  Bf16() = default;
  ZCC_ANYWHERE Bf16(float f) : bits(z_to_bf16(f)) {}
  ZCC_ANYWHERE operator float() const { return z_bf16(bits); }
};

/// A binary16 that calculates as a float.
struct F16 {
  uint16_t bits;
  F16() = default;
  ZCC_ANYWHERE F16(float f) : bits(z_to_f16(f)) {}
  ZCC_ANYWHERE operator float() const { return z_f16(bits); }
};

template <typename T> constexpr bool kIsHalf = std::is_same_v<T, Bf16> || std::is_same_v<T, F16>;

/// Calls f with a null pointer to the C++ type of an element (bool: uint8_t).
template <typename F> void withNumber(int32_t elem, F f) {
  switch (elem) {
  case ZCCRT_F32:
    return f((float *)nullptr);
  case ZCCRT_F64:
    return f((double *)nullptr);
  case ZCCRT_F16:
    return f((F16 *)nullptr);
  case ZCCRT_BF16:
    return f((Bf16 *)nullptr);
  case ZCCRT_I64:
    return f((int64_t *)nullptr);
  case ZCCRT_I32:
    return f((int32_t *)nullptr);
  case ZCCRT_I16:
    return f((int16_t *)nullptr);
  case ZCCRT_I8:
    return f((int8_t *)nullptr);
  case ZCCRT_U64:
    return f((uint64_t *)nullptr);
  case ZCCRT_U32:
    return f((uint32_t *)nullptr);
  case ZCCRT_U16:
    return f((uint16_t *)nullptr);
  default:
    return f((uint8_t *)nullptr);
  }
}

/// The same for floats only; false for other elements.
template <typename F> bool withFloat(int32_t elem, F f) {
  switch (elem) {
  case ZCCRT_F32:
    f((float *)nullptr);
    return true;
  case ZCCRT_F64:
    f((double *)nullptr);
    return true;
  case ZCCRT_F16:
    f((F16 *)nullptr);
    return true;
  case ZCCRT_BF16:
    f((Bf16 *)nullptr);
    return true;
  default:
    return false;
  }
}

} // namespace zccrt::cpu
