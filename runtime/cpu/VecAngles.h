// Sine, cosine and tangent: vsin of any float, vsinNear for |x| <= 2^45, which takes a third of the time because it reads no
// table. There both have the same bits, so a loop may take either. Part of VecMath.h, whose rules hold here.
#pragma once

constexpr float kVFar = 0x1p45f;
ZCCVM bool visFar(float x) { return vabs(x) > kVFar; }

/// x modulo pi / 2 into [-pi/4, pi/4], and the quadrant in the low bits of *quadrant. Exact enough
/// for |x| <= 2^45.
ZCCVM double vreducePi(float x, uint32_t *quadrant) {
  double d = (double)x;
  double shifted = __builtin_fma(d, 0.63661977236758134308, kVRoundD);
  double n = shifted - kVRoundD;
  *quadrant = (uint32_t)vbits(shifted);
  double r = __builtin_fma(n, -1.5707963267948965580, d);
  return __builtin_fma(n, -6.1232339957367658861e-17, r);
}

// 2 / pi * 2^e for e from 45 on, less multiples of 2^25, which times a mantissa of 24 bits in [1, 2) are whole turns: 29 bits,
// whose product with the mantissa is exact, and the rest. Within functions, because code for GPUs sees no other arrays.
ZCCVM double vfarHigh(int32_t e) {
  static constexpr double kHigh[] = {
      0x1.b72722p+22,  0x1.b72722p+23,  0x1.b72722p+24,  0x1.6e4e441p+24, 0x1.b939105p+23, 0x1.b939105p+24, 0x1.727220ap+24,
      0x1.c9c882ap+23, 0x1.c9c882ap+24, 0x1.9391054p+24, 0x1.27220a9p+24, 0x1.391054ap+22, 0x1.391054ap+23, 0x1.391054ap+24,
      0x1.c882a53p+22, 0x1.c882a53p+23, 0x1.c882a53p+24, 0x1.91054a7p+24, 0x1.220a94fp+24, 0x1.1054a7fp+22, 0x1.1054a7fp+23,
      0x1.1054a7fp+24, 0x1.054a7fp+21,  0x1.054a7fp+22,  0x1.054a7fp+23,  0x1.054a7fp+24,  0x1.529fc27p+19, 0x1.529fc27p+20,
      0x1.529fc27p+21, 0x1.529fc27p+22, 0x1.529fc27p+23, 0x1.529fc27p+24, 0x1.4a7f09dp+23, 0x1.4a7f09dp+24, 0x1.29fc275p+23,
      0x1.29fc275p+24, 0x1.4fe13abp+22, 0x1.4fe13abp+23, 0x1.4fe13abp+24, 0x1.3f84eafp+23, 0x1.3f84eafp+24, 0x1.fc2757dp+22,
      0x1.fc2757dp+23, 0x1.fc2757dp+24, 0x1.f84eafap+24, 0x1.f09d5f4p+24, 0x1.e13abe8p+24, 0x1.c2757d1p+24, 0x1.84eafa3p+24,
      0x1.09d5f47p+24, 0x1.3abe8fap+20, 0x1.3abe8fap+21, 0x1.3abe8fap+22, 0x1.3abe8fap+23, 0x1.3abe8fap+24, 0x1.d5f47d4p+22,
      0x1.d5f47d4p+23, 0x1.d5f47d4p+24, 0x1.abe8fa9p+24, 0x1.57d1f53p+24, 0x1.5f47d4dp+23, 0x1.5f47d4dp+24, 0x1.7d1f534p+23,
      0x1.7d1f534p+24, 0x1.f47d4d3p+23, 0x1.f47d4d3p+24, 0x1.e8fa9a6p+24, 0x1.d1f534dp+24, 0x1.a3ea69bp+24, 0x1.47d4d37p+24,
      0x1.1f534ddp+23, 0x1.1f534ddp+24, 0x1.f534ddcp+21, 0x1.f534ddcp+22, 0x1.f534ddcp+23, 0x1.f534ddcp+24, 0x1.ea69bb8p+24,
      0x1.d4d377p+24,  0x1.a9a6eep+24,  0x1.534ddcp+24,  0x1.4d37703p+23, 0x1.4d37703p+24, 0x1.34ddc0dp+23};
  return kHigh[e];
}
ZCCVM double vfarRest(int32_t e) {
  static constexpr double kRest[] = {
      0x1.529fc2757d1f5p-7, 0x1.529fc2757d1f5p-6,  0x1.529fc2757d1f5p-5,  0x1.4a7f09d5f47d5p-6,  0x1.29fc2757d1f53p-7,
      0x1.29fc2757d1f53p-6, 0x1.29fc2757d1f53p-5,  0x1.4fe13abe8fa9ap-7,  0x1.4fe13abe8fa9ap-6,  0x1.4fe13abe8fa9ap-5,
      0x1.3f84eafa3ea6ap-6, 0x1.fc2757d1f534ep-8,  0x1.fc2757d1f534ep-7,  0x1.fc2757d1f534ep-6,  0x1.f09d5f47d4d37p-7,
      0x1.f09d5f47d4d37p-6, 0x1.f09d5f47d4d37p-5,  0x1.e13abe8fa9a6fp-5,  0x1.c2757d1f534dep-5,  0x1.3abe8fa9a6eep-11,
      0x1.3abe8fa9a6eep-10, 0x1.3abe8fa9a6eep-9,   0x1.3abe8fa9a6eep-8,   0x1.3abe8fa9a6eep-7,   0x1.3abe8fa9a6eep-6,
      0x1.3abe8fa9a6eep-5,  0x1.5f47d4d377037p-11, 0x1.5f47d4d377037p-10, 0x1.5f47d4d377037p-9,  0x1.5f47d4d377037p-8,
      0x1.5f47d4d377037p-7, 0x1.5f47d4d377037p-6,  0x1.7d1f534ddc0dbp-7,  0x1.7d1f534ddc0dbp-6,  0x1.f47d4d377036ep-7,
      0x1.f47d4d377036ep-6, 0x1.d1f534ddc0db6p-7,  0x1.d1f534ddc0db6p-6,  0x1.d1f534ddc0db6p-5,  0x1.47d4d377036d9p-6,
      0x1.47d4d377036d9p-5, 0x1.f534ddc0db629p-10, 0x1.f534ddc0db629p-9,  0x1.f534ddc0db629p-8,  0x1.f534ddc0db629p-7,
      0x1.f534ddc0db629p-6, 0x1.f534ddc0db629p-5,  0x1.ea69bb81b6c53p-5,  0x1.d4d377036d8a5p-5,  0x1.a9a6ee06db14bp-5,
      0x1.34ddc0db6295ap-9, 0x1.34ddc0db6295ap-8,  0x1.34ddc0db6295ap-7,  0x1.34ddc0db6295ap-6,  0x1.34ddc0db6295ap-5,
      0x1.a6ee06db14acdp-7, 0x1.a6ee06db14acdp-6,  0x1.a6ee06db14acdp-5,  0x1.4ddc0db629599p-5,  0x1.377036d8a5665p-6,
      0x1.bb81b6c52b328p-8, 0x1.bb81b6c52b328p-7,  0x1.bb81b6c52b328p-6,  0x1.bb81b6c52b328p-5,  0x1.dc0db6295993cp-7,
      0x1.dc0db6295993cp-6, 0x1.dc0db6295993cp-5,  0x1.b81b6c52b3279p-5,  0x1.7036d8a5664f1p-5,  0x1.c0db6295993c4p-6,
      0x1.81b6c52b32788p-6, 0x1.81b6c52b32788p-5,  0x1.b6c52b3278872p-12, 0x1.b6c52b3278872p-11, 0x1.b6c52b3278872p-10,
      0x1.b6c52b3278872p-9, 0x1.b6c52b3278872p-8,  0x1.b6c52b3278872p-7,  0x1.b6c52b3278872p-6,  0x1.b6c52b3278872p-5,
      0x1.b6295993c439p-7,  0x1.b6295993c439p-6,   0x1.6c52b32788721p-6};
  return kRest[e];
}

/// The same for |x| > 2^45; NaN for infinities.
ZCCVM double vreduceFar(float x, uint32_t *quadrant) {
  int32_t e = ((vbits(x) >> 23) & 255) - (127 + 45);
  e = e < 0 ? 0 : e;
  e = e > 127 - 45 ? 127 - 45 : e;
  double m = (double)vfloat((vbits(x) & (int32_t)0x807fffff) | 0x3f800000);
  double high = m * vfarHigh(e);
  double shifted = __builtin_fma(m, vfarRest(e), high) + kVRoundD;
  double turns = __builtin_fma(m, vfarRest(e), high - (shifted - kVRoundD));
  *quadrant = (uint32_t)vbits(shifted);
  return __builtin_fma(turns, 1.57079632679489661923, (double)(x - x));
}

ZCCVM double vreduceAny(float x, uint32_t *quadrant) {
  uint32_t nearQuadrant, farQuadrant;
  double nearBy = vreducePi(x, &nearQuadrant), far = vreduceFar(x, &farQuadrant);
  *quadrant = visFar(x) ? farQuadrant : nearQuadrant;
  return visFar(x) ? far : nearBy;
}

ZCCVM double vsinReduced(double r) {
  double z = r * r;
  double s = -2.48056362418347626e-8;
  s = __builtin_fma(s, z, 2.75559909295653186e-6);
  s = __builtin_fma(s, z, -0.000198412669169859656);
  s = __builtin_fma(s, z, 0.00833333333107922308);
  s = __builtin_fma(s, z, -0.166666666666638859);
  return __builtin_fma(s * z, r, r);
}

ZCCVM double vcosReduced(double r) {
  double z = r * r;
  double c = 2.07006004834331177e-9;
  c = __builtin_fma(c, z, -2.75563696955730062e-7);
  c = __builtin_fma(c, z, 0.0000248015852109905159);
  c = __builtin_fma(c, z, -0.00138888888872773429);
  c = __builtin_fma(c, z, 0.0416666666666646786);
  return __builtin_fma(c * z, z, __builtin_fma(z, -0.5, 1.0));
}

ZCCVM float vsinOf(float x, double r, uint32_t q) {
  float y = (float)(q & 1 ? vcosReduced(r) : vsinReduced(r));
  y = vfloat(vbits(y) ^ (int32_t)((q & 2) << 30));
  return x == 0.0f ? x : y;
}

ZCCVM float vcosOf(double r, uint32_t q) {
  float y = (float)(q & 1 ? vsinReduced(r) : vcosReduced(r));
  return vfloat(vbits(y) ^ (int32_t)(((q + 1) & 2) << 30));
}

ZCCVM float vtanOf(float x, double r, uint32_t q) {
  double s = vsinReduced(r), c = vcosReduced(r);
  float y = (float)(q & 1 ? -c / s : s / c);
  return x == 0.0f ? x : y;
}

#define V_ANGLE(SUFFIX, REDUCE)                                                                                                  \
  ZCCVM float vsin##SUFFIX(float x) {                                                                                            \
    uint32_t q;                                                                                                                  \
    double r = REDUCE(x, &q);                                                                                                    \
    return vsinOf(x, r, q);                                                                                                      \
  }                                                                                                                              \
  ZCCVM float vcos##SUFFIX(float x) {                                                                                            \
    uint32_t q;                                                                                                                  \
    double r = REDUCE(x, &q);                                                                                                    \
    return vcosOf(r, q);                                                                                                         \
  }                                                                                                                              \
  ZCCVM float vtan##SUFFIX(float x) {                                                                                            \
    uint32_t q;                                                                                                                  \
    double r = REDUCE(x, &q);                                                                                                    \
    return vtanOf(x, r, q);                                                                                                      \
  }
V_ANGLE(, vreduceAny)
V_ANGLE(Near, vreducePi)
#undef V_ANGLE
