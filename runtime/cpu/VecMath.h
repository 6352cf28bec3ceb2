// Elementary functions on float with branch-free bodies, so that plain loops over them vectorise (GCC and Clang, -O3
// -fno-math-errno -fno-trapping-math). Emitted kernels and the runtime's own kernels include this same file: a function gives the
// same bits wherever, however wide and by whichever loop it is called. For that the file must be compiled with -ffp-contract=off;
// every fused multiply-add is written out. Largest errors, in units in the last place (VecMathTest checks them): exp 1; log 0.9;
// expm1, log1p, tanh 1.5; sigmoid 2.5; erf 3; sin, cos, tan, pow 0.51. The double versions are libm's. A GPU has instructions for
// powers of two and quotients, which are off by 2 units each: there exp, tanh, sigmoid and erf have those. VecRough.h has those
// for bfloat16.
#pragma once

#include <stdint.h>

/// Kernels of GPUs are compiled from these functions, too.
#ifdef __CUDACC__
#define ZCC_ANYWHERE __host__ __device__
#else
#define ZCC_ANYWHERE
#endif
#define ZCCVM ZCC_ANYWHERE static inline __attribute__((always_inline))

ZCCVM int32_t vbits(float x) { return __builtin_bit_cast(int32_t, x); }
ZCCVM int64_t vbits(double x) { return __builtin_bit_cast(int64_t, x); }
ZCCVM float vfloat(int32_t b) { return __builtin_bit_cast(float, b); }
ZCCVM double vdouble(int64_t b) { return __builtin_bit_cast(double, b); }
ZCCVM float vabs(float x) { return vfloat(vbits(x) & 0x7fffffff); }
ZCCVM double vabs(double x) { return __builtin_fabs(x); }
/// |mag| with the sign of `sign`.
ZCCVM float vcopysign(float mag, float sign) { return vfloat((vbits(mag) & 0x7fffffff) | (vbits(sign) & (int32_t)0x80000000)); }

/// Adding and subtracting these rounds to the nearest integer, ties to even; the sum's low bits are
/// that integer. |x| must be below 2^22 and 2^51.
constexpr float kVRound = 12582912.0f;
constexpr double kVRoundD = 6755399441055744.0;

/// exp(r) - 1 for |r| <= ln(2) / 2.
ZCCVM float vexpm1Reduced(float r) {
  float p = 0.000198911245858f;
  p = __builtin_fmaf(p, r, 0.001393377044716f);
  p = __builtin_fmaf(p, r, 0.008333310804807f);
  p = __builtin_fmaf(p, r, 0.041666463838651f);
  p = __builtin_fmaf(p, r, 0.166666666817442f);
  p = __builtin_fmaf(p, r, 0.5f);
  return __builtin_fmaf(p, r * r, r);
}

/// x - n ln(2).
ZCCVM float vreduceLn2(float x, float n) {
  float r = __builtin_fmaf(n, -0.693145751953125f, x); // 14 bits of ln(2): the product is exact
  return __builtin_fmaf(n, -1.428606765330187e-06f, r);
}

/// a / b for b in [1, 2^126] or NaN.
ZCCVM float vquotient(float a, float b) {
#ifdef __CUDA_ARCH__
  float q;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(q) : "f"(b));
  return a * q;
#else
  return a / b;
#endif
}

#ifdef __CUDA_ARCH__
/// exp for x in [-105, 105]; infinity beyond floats, 0 where it would be denormal.
ZCCVM float vexpOfPower(float x) {
  float t = x * 1.44269502162933349609375f, power; // log2(e), and what rounding it lost
  float lost = __builtin_fmaf(x, 1.44269502162933349609375f, -t);
  lost = __builtin_fmaf(x, 1.92596299112661746887e-8f, lost);
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(t));
  return power * __builtin_fmaf(lost, 0.693147182464599609375f, 1.0f); // a sum with it would make NaN of infinity
}
#endif

/// Overflows to inf, underflows through the denormal numbers to 0; a GPU's has no denormal ones.
ZCCVM float vexp(float x) {
#ifdef __CUDA_ARCH__
  float c = x < -105.0f ? -105.0f : x;
  return vexpOfPower(c > 105.0f ? 105.0f : c);
#else
  float c = x < -105.0f ? -105.0f : x;
  // Integers have a minimum of one instruction; beyond 128 the polynomial overflows.
  int32_t bits = vbits(__builtin_fmaf(c, 1.4426950408889634f, kVRound)), most = vbits(kVRound) + 128;
  bits = bits < most ? bits : most;
  float r = vreduceLn2(c, vfloat(bits) - kVRound);
  float p = vexpm1Reduced(r) + 1.0f;
  // 2^n in two factors, because n reaches 128 and -151.
  int32_t n = bits - vbits(kVRound);
  int32_t half = n >> 1;
  return p * vfloat((half + 127) << 23) * vfloat((n - half + 127) << 23);
#endif
}

/// exp for x in [-87, 88], where the result is a normal number; the bits are vexp's.
ZCCVM float vexpInRange(float x) {
#ifdef __CUDA_ARCH__
  return vexpOfPower(x);
#else
  float shifted = __builtin_fmaf(x, 1.4426950408889634f, kVRound);
  float p = vexpm1Reduced(vreduceLn2(x, shifted - kVRound)) + 1.0f;
  return p * vfloat((vbits(shifted) - vbits(kVRound) + 127) << 23);
#endif
}

/// exp for x < 88, and 0 below -87, where no result is denormal: half of vexp's time.
ZCCVM float vexpNormal(float x) {
  float y = vexpInRange(x < -87.0f ? -87.0f : x);
  return x < -87.0f ? 0.0f : y;
}

ZCCVM float vexpm1(float x) {
  float c = x > 89.0f ? 89.0f : x;
  c = c < -18.0f ? -18.0f : c;
  float shifted = __builtin_fmaf(c, 1.4426950408889634f, kVRound);
  float r = vreduceLn2(c, shifted - kVRound);
  // Half of 2^n, because n reaches 128.
  float half = vfloat((vbits(shifted) - vbits(kVRound) + 126) << 23);
  float y = 2.0f * __builtin_fmaf(half, vexpm1Reduced(r), half - 0.5f);
  return x == 0.0f ? x : y;
}

/// log(1 + f) + e ln(2) for 1 + f in [sqrt(1/2), sqrt(2)].
ZCCVM float vlogReduced(float f, float e) {
  float p = -0.0620150011902f;
  p = __builtin_fmaf(p, f, 0.105308647389f);
  p = __builtin_fmaf(p, f, -0.106461916382f);
  p = __builtin_fmaf(p, f, 0.110377833591f);
  p = __builtin_fmaf(p, f, -0.124507433209f);
  p = __builtin_fmaf(p, f, 0.142865245478f);
  p = __builtin_fmaf(p, f, -0.166680015231f);
  p = __builtin_fmaf(p, f, 0.200000100397f);
  p = __builtin_fmaf(p, f, -0.249999902750f);
  p = __builtin_fmaf(p, f, 0.333333332812f);
  float f2 = f * f;
  float small = __builtin_fmaf(e, 1.428606765330187e-06f, p * (f2 * f));
  small = __builtin_fmaf(f2, -0.5f, small);
  return __builtin_fmaf(e, 0.693145751953125f, small + f);
}

/// What a logarithm of `x` is beyond the positive numbers.
ZCCVM float vlogSpecial(float x, float y) {
  y = x == __builtin_inff() ? x : y;
  y = x == 0.0f ? -__builtin_inff() : y;
  return x >= 0.0f ? y : __builtin_nanf("");
}

/// The bits of `x` beyond those of sqrt(1/2): above its low 23 the exponent by which x is scaled. Wraps for negative x,
/// whose logarithm is replaced.
ZCCVM int32_t vbeyondSqrtHalf(float x) { return (int32_t)((uint32_t)vbits(x) - 0x3f3504f3u); }

ZCCVM float vlog(float x) {
  bool tiny = x < 1.17549435e-38f;
  float scaled = x * 8388608.0f;
  int32_t b = vbeyondSqrtHalf(tiny ? scaled : x);
  float e = (float)((b >> 23) - (tiny ? 23 : 0));
  float f = vfloat((b & 0x7fffff) + 0x3f3504f3) - 1.0f;
  return vlogSpecial(x, vlogReduced(f, e));
}

ZCCVM float vlog1p(float x) {
  float u = x + 1.0f;
  int32_t b = vbeyondSqrtHalf(u);
  int32_t e = b >> 23;
  // What rounding 1 + x lost, in the scale of the reduced argument.
  float lost = u < 16777216.0f ? x - (u - 1.0f) : 0.0f;
  float scale = vfloat((127 - (e > 126 ? 126 : e)) << 23);
  float f = (vfloat((b & 0x7fffff) + 0x3f3504f3) - 1.0f) + lost * scale;
  float y = vlogSpecial(u, vlogReduced(f, (float)e));
  return x == 0.0f ? x : y;
}

ZCCVM float vtanh(float x) {
  float a = vabs(x);
  float z = x * x;
  float q = 0.00226950168416f;
  q = __builtin_fmaf(q, z, -0.00832318705828f);
  q = __builtin_fmaf(q, z, 0.0217625029074f);
  q = __builtin_fmaf(q, z, -0.0539584616274f);
  q = __builtin_fmaf(q, z, 0.133333001462f);
  q = __builtin_fmaf(q, z, -0.333333331494f);
  float small = __builtin_fmaf(q * z, x, x);
  float large = 1.0f - vquotient(2.0f, vexpInRange(a > 10.0f ? 20.0f : a + a) + 1.0f);
  float y = a < 0.625f ? small : vcopysign(large, x);
  return a > 0.0f ? y : x; // NaN and the zeros as they are
}

ZCCVM float vsigmoid(float x) {
  float e = vexp(-vabs(x));
  return vquotient(x >= 0.0f ? 1.0f : e, 1.0f + e);
}

ZCCVM float verf(float x) {
  float a = vabs(x);
  float z = x * x;
  float s = 8.38707455686e-05f;
  s = __builtin_fmaf(s, z, -0.000814708111746f);
  s = __builtin_fmaf(s, z, 0.00520145632643f);
  s = __builtin_fmaf(s, z, -0.0268595881161f);
  s = __builtin_fmaf(s, z, 0.112836993512f);
  s = __builtin_fmaf(s, z, -0.376126340234f);
  s = __builtin_fmaf(s, z, 0.128379166673f);
  float small = __builtin_fmaf(s, x, x);
  // erfc(t)^(-1/8) on [0.91, 3.92], beyond which erf rounds to 1: a polynomial to the power of 8 takes half of an exponential's
  // time.
  float t = a > 4.0f ? 4.0f : a;
  float q = 0.000489476952f;
  q = __builtin_fmaf(q, t, -0.00336286169477f);
  q = __builtin_fmaf(q, t, 0.0145847769454f);
  q = __builtin_fmaf(q, t, -0.0244961027056f);
  q = __builtin_fmaf(q, t, 0.06020257622f);
  q = __builtin_fmaf(q, t, 0.0620468184352f);
  q = __builtin_fmaf(q, t, 0.152783885598f);
  q = __builtin_fmaf(q, t, 0.997863531113f);
  float q2 = q * q, q4 = q2 * q2;
  return a < 0.92f ? small : vcopysign(1.0f - vquotient(1.0f, q4 * q4), x);
}

#include "runtime/cpu/VecAngles.h"
#include "runtime/cpu/VecRough.h"

/// log(x) for finite x > 0 to 1e-14, and exp(x) for |x| < 700 to 1e-13: what the power needs.
ZCCVM double vlogWide(double x) {
  int64_t b = vbits(x) - 0x3fe6a09e667f3bcd; // sqrt(1/2)
  // The exponent as a double without a 64-bit conversion, which AVX2 has not.
  double e = vdouble(((b >> 52) + 1024) | 0x4330000000000000) - (4503599627370496.0 + 1024.0);
  double m = vdouble((b & 0xfffffffffffff) + 0x3fe6a09e667f3bcd);
  double s = (m - 1.0) / (m + 1.0);
  double z = s * s;
  double p = 0.168376599706804883;
  p = __builtin_fma(p, z, 0.181219344312152144);
  p = __builtin_fma(p, z, 0.222234345475179067);
  p = __builtin_fma(p, z, 0.285714160211076716);
  p = __builtin_fma(p, z, 0.400000000617416152);
  p = __builtin_fma(p, z, 0.66666666666552918);
  p = __builtin_fma(p, z, 2.0);
  return __builtin_fma(e, 0.693147180559945309, p * s);
}
ZCCVM double vexpWide(double x) {
  double shifted = __builtin_fma(x, 1.44269504088896341, kVRoundD);
  double n = shifted - kVRoundD;
  double r = __builtin_fma(n, -0.693147180559945309, x);
  double p = 0.0000248763134547993684;
  p = __builtin_fma(p, r, 0.00019916016440604504);
  p = __builtin_fma(p, r, 0.00138888214081394526);
  p = __builtin_fma(p, r, 0.00833326582831350026);
  p = __builtin_fma(p, r, 0.0416666668923070036);
  p = __builtin_fma(p, r, 0.166666668923964941);
  p = __builtin_fma(p, r, 0.499999999997963114);
  p = __builtin_fma(p, r, 0.999999999979622781);
  p = __builtin_fma(p, r, 1.0);
  return p * vdouble((vbits(shifted) - vbits(kVRoundD) + 1023) << 52);
}

/// C's pow, its special cases included.
ZCCVM float vpow(float x, float y) {
  float a = vabs(x);
  float ay = vabs(y);
  double t = (double)y * vlogWide((double)a);
  t = t > 200.0 ? 200.0 : t;
  t = t < -200.0 ? -200.0 : t;
  float r = (float)vexpWide(t);
  const float inf = __builtin_inff();
  // Whether y is an integer, and an odd one: above 2^24 every float is even. No && or ||: they are
  // branches.
  float halved = ay * 0.5f;
  bool integer = (ay >= 8388608.0f) | ((ay + 8388608.0f) - 8388608.0f == ay);
  bool even = (ay >= 16777216.0f) | ((halved + 8388608.0f) - 8388608.0f == halved);
  bool flip = (vbits(x) < 0) & integer & !even;
  bool up = y > 0.0f;
  float huge = up ? inf : 0.0f, none = up ? 0.0f : inf;
  r = a == 0.0f ? none : r;
  r = a == inf ? huge : r;
  float byBase = a > 1.0f ? huge : none;
  r = ay == inf ? (a == 1.0f ? 1.0f : byBase) : r;
  r = (x < 0.0f) & !integer & (a != inf) ? __builtin_nanf("") : r;
  r = flip ? -r : r;
  r = (x != x) | (y != y) ? x + y : r;
  return (x == 1.0f) | (y == 0.0f) ? 1.0f : r;
}

ZCCVM double vexp(double x) { return __builtin_exp(x); }
ZCCVM double vexpm1(double x) { return __builtin_expm1(x); }
ZCCVM double vlog(double x) { return __builtin_log(x); }
ZCCVM double vlog1p(double x) { return __builtin_log1p(x); }
ZCCVM double vtanh(double x) { return __builtin_tanh(x); }
ZCCVM double verf(double x) { return __builtin_erf(x); }
ZCCVM double vsin(double x) { return __builtin_sin(x); }
ZCCVM double vcos(double x) { return __builtin_cos(x); }
ZCCVM double vtan(double x) { return __builtin_tan(x); }
ZCCVM double vpow(double x, double y) { return __builtin_pow(x, y); }
ZCCVM double vsigmoid(double x) {
  double e = __builtin_exp(-__builtin_fabs(x));
  return (x >= 0.0 ? 1.0 : e) / (1.0 + e);
}
