// The largest errors of runtime/cpu/VecMath.h against libm in double, over samples of all floats, and the special values.
#include "runtime/cpu/KernelMath.h"
#include "runtime/cpu/Lanes.h"
#include <algorithm>
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

namespace vec_math_test {

namespace {

const float kInf = std::numeric_limits<float>::infinity();

/// Error of `got` in units in the last place of the float next to `want`; denormal numbers count as
/// the smallest normal one.
double ulps(float got, double want) {
  if (std::isnan(want))
    return std::isnan(got) ? 0 : INFINITY;
  float near = float(want);
  if (std::isinf(near) || std::isinf(got))
    return near == got || std::fabs(want) > 3.4027e38 ? 0 : INFINITY;
  float a = std::max(std::fabs(near), std::numeric_limits<float>::min());
  return std::fabs(double(got) - want) / (double(std::nextafterf(a, kInf)) - double(a));
}

template <typename F, typename G> void expectWithin(double most, F f, G exact) {
  double worst = 0;
  float at = 0;
  for (uint64_t b = 0; b < (uint64_t(1) << 32); b += 6007) {
    float x = vfloat(int32_t(uint32_t(b)));
    double e = ulps(f(x), exact(double(x)));
    if (e > worst) {
      worst = e;
      at = x;
    }
  }
  EXPECT_LE(worst, most) << "at " << at;
}

#define EXPECT_ULPS(NAME, MOST) expectWithin(MOST, [](float x) { return v##NAME(x); }, [](double x) { return std::NAME(x); })

TEST(VecMath, LargestErrors) {
  EXPECT_ULPS(exp, 1.0);
  EXPECT_ULPS(log, 0.9);
  EXPECT_ULPS(expm1, 1.5);
  EXPECT_ULPS(log1p, 1.5);
  EXPECT_ULPS(tanh, 1.5);
  EXPECT_ULPS(erf, 3);
  EXPECT_ULPS(sin, 0.51);
  EXPECT_ULPS(cos, 0.51);
  EXPECT_ULPS(tan, 0.51);
  // The float next to a multiple of pi / 2.
  EXPECT_LE(ulps(vcos(0x1.f37c8ap+95f), std::cos(0x1.f37c8ap+95)), 0.51);
  expectWithin(
      1.0, [](float x) { return vexpNormal(x > 88 ? 88 : x); }, [](double x) { return x < -87 ? 0 : std::exp(x > 88 ? 88 : x); });
  expectWithin(2.5, [](float x) { return vsigmoid(x); }, [](double x) { return 1 / (1 + std::exp(-x)); });
}

/// The largest error, relative to the exact value, where that is at least `least`, and relative to `least` elsewhere; of all
/// bfloat16s that are finite.
template <typename F, typename G> double roughError(double least, F f, G exact) {
  double worst = 0;
  for (uint32_t b = 0; b < 1 << 16; ++b) {
    const float x = z_bf16(uint16_t(b));
    if (!std::isfinite(x))
      continue;
    const double want = exact(double(x));
    worst = std::max(worst, std::fabs(double(f(x)) - want) / std::max(std::fabs(want), least));
  }
  return worst;
}

TEST(VecMath, RoughOnesAreAsExactAsBfloat16Needs) {
  constexpr double kMost = 0x1p-12;
  // What is always inlined has no address where little is optimised.
  auto roughSigmoid = [](float x) { return vsigmoidRough(x); };
  auto roughNormal = [](float x) { return vnormalRough(x); };
  auto roughSlope = [](float x) { return vgeluSlopeRough(x); };
  auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  auto normal = [](double x) { return 0.5 * std::erfc(-x / std::sqrt(2)); };
  auto slope = [&](double x) { return normal(x) + x * std::exp(x * x * -0.5) / std::sqrt(2 * M_PI); };
  auto limited = [](auto x) { return x > 0 ? 0 : x < -127 ? -127 : x; };
  auto power = [&](double x) { return x < -126 ? 0 : std::exp2(limited(x)); };
  EXPECT_LE(roughError(0x1p-114, roughSigmoid, sigmoid), kMost);
  EXPECT_LE(roughError(0x1p-15, roughNormal, normal), kMost);
  EXPECT_LE(roughError(0x1p-13, roughSlope, slope), kMost);
  EXPECT_LE(roughError(0x1p-114, [&](float x) { return vexp2Rough(limited(x)); }, power), kMost);
  for (float x = 4; x < 90; x += 0.01f) { // derivatives multiply what is left of 1
    const double left = 1 / (1 + std::exp(double(x)));
    EXPECT_NEAR(1.0f - vsigmoidRough(x), left, left / 256 + 0x1p-24) << x;
  }
  EXPECT_EQ(vexp2Rough(-127.0f), 0.0f);
  EXPECT_EQ(vnormalRough(-kInf), 0.0f);
  EXPECT_EQ(vnormalRough(kInf), 1.0f);
  EXPECT_EQ(vgeluSlopeRough(kInf), 1.0f);
  EXPECT_EQ(vsigmoidRough(kInf), 1.0f);
  for (float (*f)(float) : {+roughSigmoid, +roughNormal, +roughSlope})
    EXPECT_TRUE(std::isnan(f(std::nanf(""))));
}

TEST(VecMath, Powers) {
  uint64_t s = 88172645463325252u;
  auto next = [&] {
    s ^= s << 13;
    s ^= s >> 7;
    s ^= s << 17;
    return s;
  };
  double worst = 0;
  for (int i = 0; i < 400000; ++i) {
    float x = vfloat(int32_t(next())), y = float(int32_t(next())) / 4e7f;
    if (i & 1)
      x = std::ldexp(1.0f + float(next() >> 40) * 0x1p-24f, int(next() >> 61) - 4);
    if (i & 2)
      y = std::rint(y);
    worst = std::max(worst, ulps(vpow(x, y), std::pow(double(x), double(y))));
  }
  EXPECT_LE(worst, 0.51);
}

TEST(VecMath, PowerOfSpecialValues) {
  const float values[] = {0.0f,        -0.0f,     1,     -1,          2,
                          -2,          3,         -3,    0.5f,        -0.5f,
                          1.5f,        -1.5f,     kInf,  -kInf,       std::nanf(""),
                          1e-40f,      -1e-40f,   3e38f, 16777215.0f, -16777215.0f,
                          16777216.0f, 8388607.5f};
  for (float x : values)
    for (float y : values) {
      float got = vpow(x, y);
      double want = std::pow(double(x), double(y));
      EXPECT_LE(ulps(got, want), 0.51) << x << " to the " << y;
      EXPECT_EQ(want == 0 && std::signbit(got), want == 0 && std::signbit(want)) << x << " to the " << y;
    }
}

TEST(VecMath, SignedZeros) {
  EXPECT_TRUE(std::signbit(vtanh(-0.0f)));
  EXPECT_TRUE(std::signbit(verf(-0.0f)));
  EXPECT_TRUE(std::signbit(vsin(-0.0f)));
  EXPECT_TRUE(std::signbit(vtan(-0.0f)));
  EXPECT_TRUE(std::signbit(vexpm1(-0.0f)));
  EXPECT_TRUE(std::signbit(vlog1p(-0.0f)));
}

} // namespace

/// The hardware's, or the compiler's, conversions of binary16.
TEST(Halves, ConvertAsTheHardware) {
  for (uint32_t h = 0; h < 1 << 16; ++h) {
    auto bits = uint16_t(h);
    _Float16 half;
    memcpy(&half, &bits, sizeof half);
    float want = half, got = z_f16(bits);
    EXPECT_TRUE(want == got || (want != want && got != got)) << h;
    EXPECT_TRUE(z_bits_f16(got) == bits || got != got) << h;
    EXPECT_TRUE(z_bits_bf16(z_bf16(bits)) == bits) << h;
  }
  for (uint64_t u = 0; u < uint64_t(1) << 32; u += 997) {
    auto word = uint32_t(u);
    float f;
    memcpy(&f, &word, sizeof f);
    const float rounded = z_round_bf16(f), stored = z_bf16(z_to_bf16(f));
    EXPECT_TRUE(!memcmp(&rounded, &stored, sizeof f)) << word;
    _Float16 half = _Float16(f);
    uint16_t want, got = z_to_f16(f);
    memcpy(&want, &half, sizeof want);
    EXPECT_TRUE(want == got || (f != f && (got & 0x7fff) > 0x7c00)) << word;
  }
}

/// Sums by vectors of either width have the same order, that of 16 lanes.
TEST(Lanes, WidthsAgree) {
  using namespace zccrt::cpu;
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> a(1000), b(1000);
  for (size_t i = 0; i < a.size(); ++i)
    a[i] = normal(random), b[i] = normal(random);
  for (int64_t n : {0, 1, 15, 16, 17, 31, 32, 33, 47, 48, 640, 999}) {
    float lanes[kLanes] = {}, rest = 0, sum;
    for (int64_t i = 0; i < n; ++i)
      (i < n / kLanes * kLanes ? lanes[i % kLanes] : rest) += a[i] * b[i];
    sum = sumOfLanes(lanes) + rest;
    EXPECT_EQ(rowDotOf<Lanes>(a.data(), b.data(), n), sum) << n;
    EXPECT_EQ(rowDotOf<HalfLanes>(a.data(), b.data(), n), sum) << n;
    EXPECT_EQ(rowSumOf<Lanes>(a.data(), n), rowSumOf<HalfLanes>(a.data(), n)) << n;
    EXPECT_NEAR(rowSumOf<Lanes>(a.data(), n), std::accumulate(a.begin(), a.begin() + n, 0.0), 1e-4) << n;
    const float most = n ? *std::max_element(a.begin(), a.begin() + n) : -kInf;
    EXPECT_EQ(rowMaxOf<Lanes>(a.data(), n), most) << n;
    EXPECT_EQ(rowMaxOf<HalfLanes>(a.data(), n), most) << n;
  }
}

} // namespace vec_math_test
