// What emitted kernels call: the functions of scalar expressions for every element, and 16-bit loads and stores. Included by
// generated code, so it stays small and includes little.
#pragma once

#include "runtime/cpu/Draws.h"
#include "runtime/cpu/VecMath.h"

#define ZCCKM ZCC_ANYWHERE static inline __attribute__((always_inline))

// ---- 16-bit floats are stored as their bits and computed in float
ZCCKM float z_bf16(uint32_t b) { return vfloat(int32_t(b << 16)); }
ZCCKM uint16_t z_to_bf16(float f) { // to nearest, ties to even; NaN stays NaN
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  uint32_t r; // of two, because that of one takes four times as long
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(0.0f), "f"(f));
  return uint16_t(r);
#else
  uint32_t b = uint32_t(vbits(f));
  uint32_t r = (b + 0x7fff + (b >> 16 & 1)) >> 16;
  return uint16_t(f == f ? r : 0x7fc0);
#endif
}
ZCCKM uint16_t z_bits_bf16(float f) { return uint16_t(uint32_t(vbits(f)) >> 16); } // of a rounded value
ZCCKM float z_round_bf16(float f) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  int32_t r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(f), "f"(0.0f));
  return vfloat(r);
#else // in numbers of 32 bits alone: beside narrower ones compilers would take vectors of a few floats
  uint32_t b = uint32_t(vbits(f));
  return vfloat(int32_t(f == f ? (b + 0x7fff + (b >> 16 & 1)) & 0xffff0000 : 0x7fc00000));
#endif
}
// binary16
#ifdef __CUDA_ARCH__
ZCCKM float z_f16(uint16_t h) {
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
  return f;
}
ZCCKM uint16_t z_to_f16(float f) {
  uint16_t r;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(f));
  return r;
}
ZCCKM uint16_t z_bits_f16(float f) { return z_to_f16(f); } // of a rounded value
#else
// By integers, because compilers vectorise no conversion of _Float16 without AVX512-FP16. Equal to the hardware's
// for all values.
ZCCKM float z_f16(uint32_t h) {
  uint32_t sign = (h & 0x8000) << 16, rest = (h & 0x7fff) << 13;
  uint32_t scaled = uint32_t(vbits(vfloat(int32_t(rest)) * 0x1p112f)); // exact; subnormals become normal
  return vfloat(int32_t(((h & 0x7c00) == 0x7c00 ? rest | 0x7f800000 : scaled) | sign));
}
ZCCKM uint16_t z_to_f16(float f) { // to nearest, ties to even; NaN stays NaN
  uint32_t b = uint32_t(vbits(f)), sign = b >> 16 & 0x8000;
  b &= 0x7fffffff;
  uint32_t normal = (b + 0xfff + (b >> 13 & 1) - 0x38000000) >> 13;
  uint32_t small = uint32_t(vbits(vfloat(int32_t(b)) + 0.5f)) - 0x3f000000; // the sum rounds at the last bit
  uint32_t r = b < 0x38800000 ? small : normal;
  r = b >= 0x477ff000 ? 0x7c00 : r;
  r = b > 0x7f800000 ? 0x7e00 : r;
  return uint16_t(r | sign);
}
ZCCKM uint16_t z_bits_f16(float f) { // of a rounded value
  uint32_t b = uint32_t(vbits(f)), sign = b >> 16 & 0x8000;
  b &= 0x7fffffff;
  uint32_t small = uint32_t(vbits(vfloat(int32_t(b)) + 0.5f)) - 0x3f000000;
  uint32_t r = b < 0x38800000 ? small : (b - 0x38000000) >> 13;
  return uint16_t((b >= 0x7f800000 ? (b - 0x70000000) >> 13 : r) | sign);
}
#endif
ZCCKM float z_round_f16(float f) { return z_f16(z_to_f16(f)); }

// ---- truth values are stored as bytes
ZCCKM bool z_bool(uint8_t b) { return b != 0; }
ZCCKM uint8_t z_byte(bool b) { return b ? 1 : 0; }
#ifndef __CUDACC__
// In strips of 16 columns they are numbers, as 16-bit floats are: beside elements of fewer bytes compilers would take vectors of
// a few floats.
constexpr int kZStrip = 16;
ZCCKM bool z_bool(int32_t b) { return b != 0; }
typedef uint8_t z_bytes __attribute__((vector_size(kZStrip), aligned(1), may_alias));
typedef uint16_t z_halves __attribute__((vector_size(kZStrip * 2), aligned(2), may_alias));
typedef int32_t z_numbers __attribute__((vector_size(kZStrip * 4), may_alias));
inline void z_widen(int32_t *to, const uint8_t *from) { // by halves: compilers have an instruction for each step
  *(z_numbers *)to = __builtin_convertvector(__builtin_convertvector(*(const z_bytes *)from, z_halves), z_numbers);
}
inline void z_narrow(uint8_t *to, const int32_t *from) {
  *(z_bytes *)to = __builtin_convertvector(__builtin_convertvector(*(const z_numbers *)from, z_halves), z_bytes);
}
inline void z_widen(uint32_t *to, const uint16_t *from) {
  *(z_numbers *)to = __builtin_convertvector(*(const z_halves *)from, z_numbers);
}
inline void z_narrow(uint16_t *to, const uint32_t *from) {
  *(z_halves *)to = __builtin_convertvector(*(const z_numbers *)from, z_halves);
}
// The elements of a block from the first on to where they belong; narrow ones are wide there.
template <int First, int End, typename T> ZCCKM void z_give(T *to, const T *block) {
  __builtin_memcpy(to, block + First, (End - First) * sizeof(T));
}
template <int First, int End, typename T, typename Wide> ZCCKM void z_give(T *to, const Wide *block) {
  T narrow[End];
  for (int l = 0; l < End; l += kZStrip)
    z_narrow(narrow + l, block + l);
  z_give<First, End>(to, narrow);
}
#endif

// ---- functions; max and min propagate NaN, as PyTorch's do
template <typename T> ZCCKM T z_max(T a, T b) { return (a > b) | (a != a) ? a : b; }
template <typename T> ZCCKM T z_min(T a, T b) { return (a < b) | (a != a) ? a : b; }
template <typename T> ZCCKM T z_abs(T a) { return a < 0 ? T(0 - uint64_t(a)) : a; }
ZCCKM float z_abs(float a) { return vabs(a); }
ZCCKM double z_abs(double a) { return vabs(a); }
template <typename T> ZCCKM T z_sign(T a) { return a != a ? a : T((a > T(0)) - (a < T(0))); }
template <typename T> ZCCKM bool z_isnan(T a) { return a != a; }
ZCCKM bool z_isinf(float a) { return (vbits(a) & 0x7fffffff) == 0x7f800000; }
ZCCKM bool z_isinf(double a) { return __builtin_fabs(a) == __builtin_inf(); }
ZCCKM float z_floor(float a) { return __builtin_floorf(a); }
ZCCKM double z_floor(double a) { return __builtin_floor(a); }
ZCCKM float z_ceil(float a) { return __builtin_ceilf(a); }
ZCCKM double z_ceil(double a) { return __builtin_ceil(a); }
ZCCKM float z_round(float a) { return __builtin_rintf(a); }
ZCCKM double z_round(double a) { return __builtin_rint(a); }
ZCCKM float z_sqrt(float a) { return __builtin_sqrtf(a); }
ZCCKM double z_sqrt(double a) { return __builtin_sqrt(a); }
ZCCKM float z_rsqrt(float a) { return 1.0f / __builtin_sqrtf(a); }
ZCCKM double z_rsqrt(double a) { return 1.0 / __builtin_sqrt(a); }
ZCCKM float z_fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
ZCCKM double z_fma(double a, double b, double c) { return __builtin_fma(a, b, c); }

#define Z_VECTOR(NAME)                                                                                                           \
  ZCCKM float z_##NAME(float a) { return v##NAME(a); }                                                                           \
  ZCCKM double z_##NAME(double a) { return v##NAME(a); }
Z_VECTOR(exp)
Z_VECTOR(expm1)
Z_VECTOR(log)
Z_VECTOR(log1p)
Z_VECTOR(tanh)
Z_VECTOR(sigmoid)
Z_VECTOR(erf)
Z_VECTOR(sin)
Z_VECTOR(cos)
Z_VECTOR(tan)
#undef Z_VECTOR
// Of what is rounded to bfloat16.
ZCCKM float z_rough_sigmoid(float a) { return vsigmoidRough(a); }
ZCCKM float z_rough_normal(float a) { return vnormalRough(a); }
ZCCKM float z_rough_gelu_slope(float a) { return vgeluSlopeRough(a); }
ZCCKM bool z_is_far(float a) { return visFar(a); }
// For arguments that are not far.
ZCCKM float z_sin_near(float a) { return vsinNear(a); }
ZCCKM float z_cos_near(float a) { return vcosNear(a); }
ZCCKM float z_tan_near(float a) { return vtanNear(a); }
#define Z_LIBM(NAME)                                                                                                             \
  ZCCKM float z_##NAME(float a) { return __builtin_##NAME##f(a); }                                                               \
  ZCCKM double z_##NAME(double a) { return __builtin_##NAME(a); }
Z_LIBM(asin)
Z_LIBM(acos)
Z_LIBM(atan)
Z_LIBM(sinh)
Z_LIBM(cosh)
Z_LIBM(asinh)
Z_LIBM(acosh)
Z_LIBM(atanh)
#undef Z_LIBM
ZCCKM float z_pow(float a, float b) { return vpow(a, b); }
ZCCKM double z_pow(double a, double b) { return vpow(a, b); }
template <typename T> ZCCKM T z_pow(T a, T b) { // integers, by squaring
  if (b < 0)
    return a == 1 ? T(1) : a == T(-1) ? (b & 1 ? T(-1) : T(1)) : T(0);
  uint64_t r = 1, x = uint64_t(a); // which wrap
  for (; b; b >>= 1, x *= x)
    if (b & 1)
      r *= x;
  return T(r);
}
/// s[0] = the sum of N lanes, a power of two, by halves. As vectors, because loops over the halves
/// take the compiler a third of its time.
template <int N, typename T> ZCCKM void z_sum_lanes(T *s) {
  if constexpr (N == 2) {
    s[0] = T(s[0] + s[1]);
  } else {
    typedef T Half __attribute__((vector_size(sizeof(T) * N / 2), aligned(sizeof(T)), may_alias));
    *(Half *)s = *(Half *)s + *(Half *)(s + N / 2);
    z_sum_lanes<N / 2>(s);
  }
}
/// C's remainder, and Python's, which has the divisor's sign.
ZCCKM float z_fmod(float a, float b) { return __builtin_fmodf(a, b); }
ZCCKM double z_fmod(double a, double b) { return __builtin_fmod(a, b); }
// What is undefined in C: dividing by zero gives 0, the smallest integer divided by -1 wraps.
template <typename T> ZCCKM T z_fmod(T a, T b) { return (b == 0) | (T(-1) < T(0) && b == T(-1)) ? T(0) : T(a % b); }
template <typename T> ZCCKM T z_mod(T a, T b) {
  T r = z_fmod(a, b);
  return r != 0 && (r < 0) != (b < 0) ? T(r + b) : r;
}
ZCCKM float z_mod(float a, float b) { // a remainder of zero has the divisor's sign, too
  float r = z_fmod(a, b);
  return r == 0 ? __builtin_copysignf(r, b) : (r < 0) != (b < 0) ? r + b : r;
}
ZCCKM double z_mod(double a, double b) {
  double r = z_fmod(a, b);
  return r == 0 ? __builtin_copysign(r, b) : (r < 0) != (b < 0) ? r + b : r;
}
template <typename T> ZCCKM T z_div(T a, T b) {
  if (T(-1) < T(0) && b == T(-1))
    return T(0 - uint64_t(a));
  return b == 0 ? T(0) : T(a / b);
}
ZCCKM float z_div(float a, float b) { return a / b; }
ZCCKM double z_div(double a, double b) { return a / b; }
/// Shifts by the width or more, or by a negative number, leave no bit but the sign's.
template <typename T> ZCCKM T z_shl(T a, T b) {
  constexpr uint64_t kWidth = sizeof(T) * 8;
  return uint64_t(b) < kWidth ? T(uint64_t(a) << b) : T(0);
}
template <typename T> ZCCKM T z_shr(T a, T b) {
  constexpr uint64_t kWidth = sizeof(T) * 8;
  if (T(-1) < T(0))
    return T(a >> (uint64_t(b) < kWidth ? uint64_t(b) : kWidth - 1));
  return uint64_t(b) < kWidth ? T(a >> b) : T(0);
}
