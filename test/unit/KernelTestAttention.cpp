// attention and its gradient against loops in double: grouped heads, causal limits, masks, strides, blocks.
#include "test/unit/KernelTest.h"

namespace kernel_test_attention {

using namespace kerneltest;

namespace {

enum class Mask { None, Float, Bool, BoolRows, FloatHeads, NoKey, Far };

struct Case {
  int64_t b, h, hk, s, t, d, dv;
  bool causal = false;
  Mask mask = Mask::None;
  bool strided = false;
  int threads = 2;
  double scale = 0;      ///< 0: by the width
  float far = -3.38e38f; ///< of Mask::Far
  bool addsMask() const { return mask == Mask::Float || mask == Mask::FloatHeads || mask == Mask::Far; }
};

/// q, k, v, mask and the naive results.
struct Reference {
  Case n;
  double scale;
  bool inDouble;                         ///< else scores are f32: little of them is left beside a mask that is far from 0
  std::vector<double> q, k, v, mask, dy; ///< mask: to be added, or empty
  std::vector<double> y, lse, dq, dk, dv;

  double *at(std::vector<double> &x, int64_t heads, int64_t rows, int64_t width, int64_t b, int64_t h, int64_t r) {
    return x.data() + ((b * heads + h) * rows + r) * width;
  }

  void compute() {
    y.assign(n.b * n.h * n.s * n.dv, 0);
    lse.assign(n.b * n.h * n.s, -INFINITY);
    dq.assign(q.size(), 0);
    dk.assign(k.size(), 0);
    dv.assign(v.size(), 0);
    for (int64_t b = 0; b < n.b; ++b)
      for (int64_t h = 0; h < n.h; ++h)
        for (int64_t s = 0; s < n.s; ++s)
          row(b, h, s);
  }

  void row(int64_t b, int64_t h, int64_t s) {
    int64_t kv = h / (n.h / n.hk);
    std::vector<double> p(n.t);
    double max = -INFINITY, sum = 0;
    double *qr = at(q, n.h, n.s, n.d, b, h, s);
    for (int64_t t = 0; t < n.t; ++t) {
      double x = 0, *kr = at(k, n.hk, n.t, n.d, b, kv, t);
      for (int64_t i = 0; i < n.d; ++i)
        x += qr[i] * kr[i];
      x *= scale;
      if (!mask.empty())
        x += mask[((b * n.h + h) * n.s + s) * n.t + t];
      p[t] = n.causal && t > s + n.t - n.s ? -INFINITY : inDouble ? x : float(x);
      max = std::max(max, p[t]);
    }
    if (max == -INFINITY)
      return;
    for (double &x : p)
      sum += x = std::exp(x - max);
    lse[(b * n.h + h) * n.s + s] = max + std::log(sum);
    double *yr = at(y, n.h, n.s, n.dv, b, h, s), *g = at(dy, n.h, n.s, n.dv, b, h, s), delta = 0;
    for (int64_t t = 0; t < n.t; ++t)
      for (int64_t j = 0; j < n.dv; ++j)
        yr[j] += p[t] / sum * at(v, n.hk, n.t, n.dv, b, kv, t)[j];
    for (int64_t j = 0; j < n.dv; ++j)
      delta += g[j] * yr[j];
    for (int64_t t = 0; t < n.t; ++t) {
      double dp = 0;
      for (int64_t j = 0; j < n.dv; ++j) {
        dp += g[j] * at(v, n.hk, n.t, n.dv, b, kv, t)[j];
        at(dv, n.hk, n.t, n.dv, b, kv, t)[j] += p[t] / sum * g[j];
      }
      double ds = p[t] / sum * (dp - delta) * scale;
      for (int64_t i = 0; i < n.d; ++i) {
        at(dq, n.h, n.s, n.d, b, h, s)[i] += ds * at(k, n.hk, n.t, n.d, b, kv, t)[i];
        at(dk, n.hk, n.t, n.d, b, kv, t)[i] += ds * qr[i];
      }
    }
  }
};

Dims maskDims(const Case &n) {
  switch (n.mask) {
  case Mask::BoolRows:
    return {n.s, n.t};
  case Mask::FloatHeads:
    return {1, n.h, 1, n.t};
  case Mask::NoKey:
    return {n.b, 1, n.s, 1};
  default:
    return {n.b, n.h, n.s, n.t};
  }
}

/// The mask's value for a full index, read from the call.
template <typename T> double maskValue(Call &c, int t, const Dims &dims, const Dims &full, bool isFloat) {
  Dims at(dims.size());
  for (size_t i = 0; i < dims.size(); ++i)
    at[i] = dims[i] == 1 ? 0 : full[i + 4 - dims.size()];
  if (isFloat)
    return c.el<T>(t, at);
  return c.el<uint8_t>(t, at) ? 0.0 : -INFINITY;
}

template <typename T> int addRows(Call &c, const Case &n, int64_t heads, int64_t rows, int64_t width) {
  Dims d{n.b, heads, rows, width};
  return n.strided ? c.addPermuted<T>(d, {0, 2, 1, 3}) : c.add<T>(d);
}

template <typename T> int addMask(Call &c, const Case &n, Rng &r) {
  bool isFloat = n.addsMask();
  if (n.mask == Mask::None)
    return c.none();
  Dims d = maskDims(n);
  int t = isFloat ? c.add<T>(d) : c.add<uint8_t>(d);
  forIndex(d, [&](const Dims &i) {
    if (n.mask == Mask::Far) // of every third row all keys, of the others those at first
      c.el<T>(t, i) = T(i[2] % 3 == 1 || i[3] < n.t * 3 / 4 ? n.far : 0.0f);
    else if (isFloat)
      c.el<T>(t, i) = T(float(r.unit() * 2));
    else
      c.el<uint8_t>(t, i) = r.below(3) != 0;
  });
  return t;
}

/// The greatest error.
template <typename T> double expectNear(Call &c, int t, const std::vector<double> &want, double tolerance, const char *what) {
  double worst = 0;
  size_t e = 0;
  forIndex(c.dims(t), [&](const Dims &i) {
    double got = c.el<T>(t, i), w = want[e++];
    double error = std::isinf(w) || std::isnan(got) ? (w == got ? 0.0 : INFINITY) : std::fabs(w - got);
    worst = std::max(worst, error);
  });
  EXPECT_LT(worst, tolerance) << what;
  return worst;
}

template <typename T> void copyOut(Call &c, int t, std::vector<double> &to) {
  to.clear();
  forIndex(c.dims(t), [&](const Dims &i) { to.push_back(c.el<T>(t, i)); });
}

template <typename T> void copyIn(Call &c, int t, const std::vector<double> &from) {
  size_t e = 0;
  forIndex(c.dims(t), [&](const Dims &i) { c.el<T>(t, i) = toElem<T>(from[e++]); });
}

constexpr double kFarLogSum = -4096;
/// Log-sums below, of rows that are masked as a whole by finite values, are the kernel's own affair.
template <typename Lse> void keepFarLogSums(Call &c, int lse, std::vector<double> &want) {
  std::vector<double> got;
  copyOut<Lse>(c, lse, got);
  for (size_t i = 0; i < want.size(); ++i)
    if (std::isfinite(want[i]) && want[i] < kFarLogSum) {
      EXPECT_LT(got[i], kFarLogSum);
      want[i] = got[i];
    }
}

/// The result's greatest error.
template <typename T = float> double check(const Case &n, double tolerance = kTolerance<T>) {
  SCOPED_TRACE(testing::Message() << "heads " << n.h << "/" << n.hk << " s " << n.s << " t " << n.t << " d " << n.d << " causal "
                                  << n.causal << " mask " << int(n.mask) << " far " << n.far << " strided " << n.strided);
  using Lse = std::conditional_t<std::is_same_v<T, double>, double, float>;
  Rng r;
  Reference ref{n, n.scale ? n.scale : 1 / std::sqrt(double(n.d)), std::is_same_v<T, double>};
  Call c("attention", n.threads);
  int q = addRows<T>(c, n, n.h, n.s, n.d), k = addRows<T>(c, n, n.hk, n.t, n.d), v = addRows<T>(c, n, n.hk, n.t, n.dv);
  int m = addMask<T>(c, n, r);
  c.results();
  int y = addRows<T>(c, n, n.h, n.s, n.dv), lse = c.add<Lse>({n.b, n.h, n.s, 1});
  c.number("scale", ref.scale);
  c.ints("causal", {n.causal});
  for (int t : {q, k, v})
    c.template fillRandom<T>(t, r);
  copyOut<T>(c, q, ref.q);
  copyOut<T>(c, k, ref.k);
  copyOut<T>(c, v, ref.v);
  if (n.mask != Mask::None)
    forIndex({n.b, n.h, n.s, n.t}, [&](const Dims &i) { ref.mask.push_back(maskValue<T>(c, m, maskDims(n), i, n.addsMask())); });
  ref.dy.resize(n.b * n.h * n.s * n.dv);
  for (double &x : ref.dy)
    x = double(toElem<T>(r.unit()));
  ref.compute();
  c.run();
  const double error = expectNear<T>(c, y, ref.y, tolerance, "y");
  keepFarLogSums<Lse>(c, lse, ref.lse);
  expectNear<Lse>(c, lse, ref.lse, tolerance, "lse");

  Call g("attention_grad", n.threads);
  int gdy = addRows<T>(g, n, n.h, n.s, n.dv);
  int gq = addRows<T>(g, n, n.h, n.s, n.d), gk = addRows<T>(g, n, n.hk, n.t, n.d), gv = addRows<T>(g, n, n.hk, n.t, n.dv);
  Rng again;
  addMask<T>(g, n, again);
  int gy = addRows<T>(g, n, n.h, n.s, n.dv), glse = g.add<Lse>({n.b, n.h, n.s, 1});
  g.results();
  int dq = addRows<T>(g, n, n.h, n.s, n.d), dk = addRows<T>(g, n, n.hk, n.t, n.d), dv = addRows<T>(g, n, n.hk, n.t, n.dv);
  g.number("scale", ref.scale);
  g.ints("causal", {n.causal});
  copyIn<T>(g, gdy, ref.dy);
  copyIn<T>(g, gq, ref.q);
  copyIn<T>(g, gk, ref.k);
  copyIn<T>(g, gv, ref.v);
  copyIn<T>(g, gy, ref.y);
  copyIn<Lse>(g, glse, ref.lse);
  g.run();
  expectNear<T>(g, dq, ref.dq, tolerance, "dq");
  expectNear<T>(g, dk, ref.dk, tolerance, "dk");
  expectNear<T>(g, dv, ref.dv, tolerance, "dv");
  return error;
}

TEST(Attention, Plain) {
  check({2, 3, 3, 50, 50, 16, 16});
  check({1, 2, 2, 1, 7, 8, 8});
  check({1, 1, 1, 197, 197, 64, 64});
  check({2, 2, 2, 70, 33, 20, 12});
  check({2, 3, 3, 50, 50, 16, 16, false, Mask::None, true, 1});
}

TEST(Attention, Causal) {
  check({2, 2, 2, 130, 130, 16, 16, true});
  check({2, 2, 2, 100, 160, 16, 16, true, Mask::None, true});
  check({1, 2, 2, 160, 70, 16, 16, true}); // the first rows attend nothing
}

TEST(Attention, GroupedHeads) {
  check({2, 6, 2, 70, 70, 16, 16, true});
  check({2, 4, 1, 70, 70, 16, 16, false, Mask::Float, true, 3});
}

TEST(Attention, Masks) {
  for (Mask m : {Mask::Float, Mask::Bool, Mask::BoolRows, Mask::FloatHeads, Mask::NoKey})
    for (bool causal : {false, true})
      check({2, 4, 2, 40, 40, 16, 16, causal, m});
}

TEST(Attention, RowsMaskedByTheLeastOfFloats) { // attend all keys alike, and so do their gradients
  check({2, 4, 2, 40, 40, 16, 16, false, Mask::Far});
  check({1, 2, 1, 70, 70, 16, 16, true, Mask::Far});
  check({1, 2, 1, 30, 1300, 16, 16, false, Mask::Far}); // all of the first block's keys are masked
}

/// Of finite masks far from 0: rows that have one at all keys, and rows that have it at 32 or more at first.
template <typename T> void checkFarMasks(Case n, double tolerance = kTolerance<T>) {
  constexpr double kRounded = 2e-3; // scores near -1e4 are multiples of 2^-10 in f32
  n.mask = Mask::Far;
  for (float far : {-1e4f, -1e9f, -1e10f, -1e12f, -3.38e38f}) {
    n.far = far;
    check<T>(n, sizeof(T) < 8 && far == -1e4f ? std::max(tolerance, kRounded) : tolerance);
  }
}

TEST(Attention, FarMasks) {
  checkFarMasks<float>({1, 2, 1, 40, 70, 16, 16});
  checkFarMasks<float>({1, 2, 1, 70, 70, 16, 16, true});
  checkFarMasks<Bf16>({1, 2, 1, 40, 70, 16, 12});
  checkFarMasks<double>({1, 2, 1, 40, 70, 16, 12});
}

TEST(Attention, ManyKeys) { // more than one block of keys
  check({1, 2, 2, 70, 1100, 16, 16});
  check({1, 2, 1, 600, 600, 16, 16, true});
  check({1, 2, 1, 30, 1300, 16, 16, false, Mask::Bool});
}

template <typename T> std::vector<T> gradientBits(const Dims &q, int64_t kvHeads, int threads) {
  const Dims k{q[0], kvHeads, q[2], q[3]};
  Call g("attention_grad", threads);
  std::vector<int> in;
  for (const Dims &d : {q, q, k, k})
    in.push_back(g.add<T>(d));
  g.none();
  in.push_back(g.add<T>(q));
  int lse = g.add<float>({q[0], q[1], q[2], 1});
  g.results();
  std::vector<int> out{g.add<T>(q), g.add<T>(k), g.add<T>(k)};
  g.number("scale", 0.2);
  g.ints("causal", {1});
  Rng r;
  for (int t : in)
    g.fillRandom<T>(t, r);
  g.fillRandom(lse, r);
  g.run();
  std::vector<T> bits;
  for (int t : out)
    bits.insert(bits.end(), g.data<T>(t), g.data<T>(t) + product(g.dims(t)));
  return bits;
}

template <typename T> void expectSameBits(const Dims &q, int64_t kvHeads) {
  const std::vector<T> first = gradientBits<T>(q, kvHeads, 1);
  for (int threads : {2, 3}) {
    const std::vector<T> bits = gradientBits<T>(q, kvHeads, threads);
    EXPECT_EQ(memcmp(first.data(), bits.data(), first.size() * sizeof(T)), 0) << threads;
  }
}

TEST(Attention, SameBitsOnAnyThreads) {
  expectSameBits<float>({2, 3, 150, 32}, 3);
  expectSameBits<Bf16>({2, 3, 150, 32}, 3);
  expectSameBits<float>({1, 2, 600, 32}, 1); // fewer heads than threads: in two passes
  expectSameBits<Bf16>({1, 2, 600, 32}, 1);
}

TEST(Attention, OtherElements) {
  check<double>({2, 4, 2, 40, 50, 16, 12, true, Mask::Float, true});
  check<double>({2, 4, 2, 40, 30, 16, 12, true, Mask::BoolRows});
  check<Bf16>({2, 4, 2, 40, 50, 16, 12, true, Mask::Float, true});
  check<Bf16>({2, 4, 2, 40, 50, 16, 12, true, Mask::BoolRows});
  check<F16>({2, 4, 2, 40, 50, 16, 12, false, Mask::FloatHeads, true});
}

// Of 16-bit floats in tiles, of others a warp for each row: tiles that are not full, wide heads, none at all.
TEST(Attention, OnGpus) {
  OnEmulatedGpu gpu;
  check({2, 4, 2, 40, 50, 16, 12, true, Mask::Float, true});
  check<Bf16>({2, 3, 3, 50, 50, 16, 16, false, Mask::None, true});
  check<Bf16>({1, 2, 2, 1, 7, 8, 8});
  check<Bf16>({1, 1, 1, 197, 197, 64, 64});
  check<Bf16>({2, 2, 2, 70, 33, 20, 12});
  check<Bf16>({1, 2, 2, 100, 160, 16, 16, true, Mask::None, true});
  check<Bf16>({1, 2, 2, 160, 70, 16, 16, true});  // the first rows attend nothing
  check<Bf16>({1, 4, 2, 70, 70, 80, 96, true});   // wider tiles of fewer rows
  check<Bf16>({1, 1, 1, 20, 20, 136, 130, true}); // too wide for tiles
  for (Mask m : {Mask::Float, Mask::Bool, Mask::BoolRows, Mask::FloatHeads, Mask::NoKey})
    check<F16>({2, 4, 2, 40, 40, 16, 16, m == Mask::Bool, m});
  check<F16>({1, 1, 1, 200, 150, 32, 32, true, Mask::None, false, 2, 0.25});  // several blocks and steps
  check<F16>({1, 2, 1, 140, 140, 128, 128, true});                            // grouped, wide: values stay in shared memory
  check<F16>({1, 1, 1, 20, 300, 16, 16, false, Mask::None, false, 2, 2});     // maxima grow by much
  check<Bf16>({1, 1, 1, 20, 20, 16, 16, false, Mask::None, false, 2, -0.25}); // not by tiles
}

TEST(Attention, FarMasksOnGpus) {
  OnEmulatedGpu gpu;
  checkFarMasks<Bf16>({1, 2, 1, 70, 70, 16, 16, true});
  checkFarMasks<Bf16>({1, 1, 1, 150, 70, 64, 64}); // two pieces of rows, two steps of keys
  checkFarMasks<Bf16>({1, 2, 2, 40, 50, 80, 96});
  checkFarMasks<Bf16>({1, 1, 1, 20, 50, 136, 130}); // too wide for tiles
  checkFarMasks<double>({1, 2, 1, 40, 50, 16, 12, true});
}

/// Of f32 in tiles: heads of each width, rows that cannot be read 16 bytes at a time, masks, groups, several steps.
void checkTilesOfFloats(double tolerance) {
  check({2, 3, 3, 50, 50, 16, 16, false, Mask::None, true}, tolerance);
  check({1, 2, 2, 1, 7, 8, 8}, tolerance);
  check({2, 2, 2, 70, 33, 18, 13}, tolerance);
  check({1, 2, 2, 100, 160, 48, 48, true, Mask::None, true}, tolerance);
  check({1, 2, 2, 160, 70, 16, 16, true}, tolerance);                               // the first rows attend nothing
  check({1, 4, 2, 70, 70, 80, 97, true}, tolerance);                                // neither keys nor values in registers
  check({1, 2, 1, 140, 140, 128, 128, true, Mask::Float}, tolerance);               // grouped
  check({1, 1, 1, 20, 300, 16, 16, false, Mask::None, false, 2, 2}, 4 * tolerance); // maxima grow by much
  for (Mask m : {Mask::Bool, Mask::BoolRows, Mask::FloatHeads, Mask::NoKey})
    check({2, 4, 2, 40, 40, 32, 32, m == Mask::Bool, m}, tolerance);
  checkFarMasks<float>({1, 2, 1, 40, 70, 18, 13}, tolerance);
  checkFarMasks<float>({1, 2, 1, 50, 50, 48, 48, true}, tolerance);
  checkFarMasks<float>({1, 1, 1, 40, 50, 80, 97}, tolerance);
  checkFarMasks<float>({1, 1, 1, 20, 50, 136, 130});
  check({1, 1, 1, 20, 20, 136, 130, true});                             // too wide for tiles
  check({1, 1, 1, 20, 20, 16, 16, false, Mask::None, false, 2, -0.25}); // not by tiles
}

TEST(Attention, OnGpusInFp32) {
  OnEmulatedGpu gpu;
  checkTilesOfFloats(kTolerance<float>);
}

TEST(Attention, OnGpusInTf32) {
  OnEmulatedGpu gpu;
  zccrt::device()->multipliesInTf32 = true;
  constexpr double kRounded = 4e-3;
  checkTilesOfFloats(kRounded);
  EXPECT_GT(check({1, 1, 1, 197, 197, 64, 64}, kRounded), 1e-5);
}

/// Four queries, keys and values, before the mask.
void addFew(Call &c, Rng &r) {
  for (int i = 0; i < 3; ++i)
    c.fillRandom<Bf16>(c.add<Bf16>({1, 1, 4, 8}), r);
}

/// Behind the mask: their attention; the number of its result.
int runFew(Call &c) {
  c.results();
  int y = c.add<Bf16>({1, 1, 4, 8});
  c.add<float>({1, 1, 4, 1});
  c.number("scale", 0.3);
  c.ints("causal", {0});
  c.run();
  return y;
}

// A row whose keys all have the least of floats, as padded ones do, attends them alike, in tiles, too.
TEST(Attention, LeastOfFloats) {
  OnEmulatedGpu gpu;
  Call c("attention", 1);
  Rng r;
  addFew(c, r);
  int mask = c.add<Bf16>({4, 4});
  for (int i = 0; i < 16; ++i)
    c.data<Bf16>(mask)[i] = Bf16(i / 4 == 1 || i % 4 == 3 ? -3.38e38f : 0.0f);
  int y = runFew(c);
  for (int j = 0; j < 8; ++j) {
    float mean = 0;
    for (int key = 0; key < 4; ++key)
      mean += float(c.data<Bf16>(2)[key * 8 + j]) / 4;
    EXPECT_NEAR(float(c.data<Bf16>(y)[8 + j]), mean, 1e-2);
  }
}

// A NaN among the queries is one in their row's results, whatever is added to its scores.
TEST(Attention, NotANumberStays) {
  OnEmulatedGpu gpu;
  for (bool isMasked : {false, true}) {
    Call c("attention", 1);
    Rng r;
    addFew(c, r);
    c.data<Bf16>(0)[2 * 8] = Bf16(std::nanf(""));
    if (isMasked)
      c.fillRandom<Bf16>(c.add<Bf16>({4, 4}), r);
    else
      c.none();
    int y = runFew(c);
    for (int i = 0; i < 32; ++i)
      EXPECT_EQ(std::isnan(float(c.data<Bf16>(y)[i])), i / 8 == 2) << isMasked << i;
  }
}

TEST(Attention, NativeBf16) {
  if (!AsIfNative::possible())
    GTEST_SKIP() << "oneDNN has no bf16 here";
  AsIfNative native;
  check<Bf16>({2, 3, 3, 50, 50, 16, 16, false, Mask::None, true, 1});
  check<Bf16>({1, 2, 2, 1, 7, 8, 8});
  check<Bf16>({1, 2, 2, 7, 1, 8, 8, false, Mask::None, true});
  check<Bf16>({1, 1, 1, 197, 197, 64, 64, false, Mask::None, true}); // two blocks of rows
  check<Bf16>({1, 2, 2, 130, 130, 16, 16, true});
  check<Bf16>({1, 2, 2, 100, 160, 16, 16, true, Mask::None, true});
  check<Bf16>({1, 2, 2, 160, 70, 16, 16, true}); // the first rows attend nothing
  check<Bf16>({2, 6, 2, 70, 70, 16, 12, true});
  check<Bf16>({2, 4, 1, 70, 70, 16, 16, false, Mask::Float, true, 3});
  for (Mask m : {Mask::Float, Mask::Bool, Mask::BoolRows, Mask::FloatHeads, Mask::NoKey})
    for (bool causal : {false, true})
      check<Bf16>({2, 4, 2, 40, 40, 16, 16, causal, m});
  check<Bf16>({1, 2, 2, 70, 1100, 16, 16}); // more than one block of keys
  check<Bf16>({1, 2, 1, 600, 600, 16, 16, true});
  check<Bf16>({1, 2, 1, 30, 1300, 16, 16, false, Mask::Bool});
  check<Bf16>({1, 1, 1, 300, 700, 16, 12, true}); // fewer heads than threads
  check<Bf16>({2, 4, 2, 40, 40, 16, 16, false, Mask::Far});
  check<Bf16>({1, 1, 1, 70, 700, 16, 12, true, Mask::Far}); // in two passes
  check<Bf16>({1, 2, 1, 30, 1300, 16, 16, false, Mask::Far});
}

} // namespace

} // namespace kernel_test_attention
