// Elementary functions for results that are rounded to bfloat16, whose unit is 2^-8: within 2^-12 of the exact value, relative to
// it, half of the time of those for float or less (VecMathTest checks the bounds). Branch-free as all of VecMath.h, which
// includes this file.
#pragma once

/// 2^x for x in [-127, 128]: 0 at -127, infinity at 128.
ZCCVM float vexp2Rough(float x) {
  constexpr float kBiased = kVRound + 127.0f;
  float shifted = x + kBiased;
  float r = x - (shifted - kBiased);
  float p = 0.0551716909f;
  p = __builtin_fmaf(p, r, 0.242611170f);
  p = __builtin_fmaf(p, r, 0.693260968f);
  p = __builtin_fmaf(p, r, 0.999928057f);
  return p * vfloat(vbits(shifted) << 23);
}

ZCCVM float vsigmoidRough(float x) {
  float y = vabs(x) * -1.44269504f;
  float e = vexp2Rough(y < -127.0f ? -127.0f : y);
  // 1 / (1 + e) on [0, 1]; exactly 1 where e is 0, for derivatives multiply the difference from 1 by large numbers.
  float r = -0.109112084f;
  r = __builtin_fmaf(r, e, 0.430775762f);
  r = __builtin_fmaf(r, e, -0.783539593f);
  r = __builtin_fmaf(r, e, 0.959154546f);
  r = __builtin_fmaf(r, e, -0.997308135f);
  r = __builtin_fmaf(r, e, 1.0f);
  return x < 0.0f ? e * r : r;
}

/// The normal distribution function; where it is below 2^-15, within 2^-27.
ZCCVM float vnormalRough(float x) {
  // The binary logarithm of its value at -|x|, which is far less than -127 where that would be a denormal number.
  float a = vabs(x);
  float p = -0.000348879898f;
  p = __builtin_fmaf(p, a, 0.00609743828f);
  p = __builtin_fmaf(p, a, -0.0491261743f);
  p = __builtin_fmaf(p, a, -0.462945968f);
  p = __builtin_fmaf(p, a, -1.14970875f);
  p = __builtin_fmaf(p, a, -1.00008285f);
  float t = vexp2Rough(p < -127.0f ? -127.0f : p);
  return x < 0.0f ? t : 1.0f - t;
}

/// The derivative of x times the normal distribution function; where it is below 2^-13, within 2^-25.
ZCCVM float vgeluSlopeRough(float x) {
  // At -|x| it is exp(-x^2 / 2) times a function that is 0 where |x| = 0.75179; 13.27 is where the exponential is 2^-127.
  float a = vabs(x);
  a = a > 13.2688f ? 13.2688f : a;
  float q = -5.59071777e-05f;
  q = __builtin_fmaf(q, a, 0.00100751850f);
  q = __builtin_fmaf(q, a, -0.00762208924f);
  q = __builtin_fmaf(q, a, 0.0323138088f);
  q = __builtin_fmaf(q, a, -0.0883908793f);
  q = __builtin_fmaf(q, a, 0.174365133f);
  q = __builtin_fmaf(q, a, -0.664980114f);
  float h = vexp2Rough(a * a * -0.721347520f) * ((a - 0.751791525f) * q);
  return x < 0.0f ? h : 1.0f - h;
}
