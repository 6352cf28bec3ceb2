// Convolutions and their gradients against loops in double.
#include "test/unit/KernelTest.h"

namespace kernel_test_conv {

using namespace kerneltest;

namespace {

struct Case {
  int64_t n, c, m, group;
  Dims in, kernel, strides, lo, hi, dilations;
  bool bias = false;
  int threads = 2;
  const char *way = "";
  int64_t xBlock = 1, yBlock = 1; ///< of channels
};

Dims outDims(const Case &k) {
  Dims o;
  for (size_t i = 0; i < k.in.size(); ++i)
    o.push_back((k.in[i] + k.lo[i] + k.hi[i] - (k.kernel[i] - 1) * k.dilations[i] - 1) / k.strides[i] + 1);
  return o;
}

Dims join(int64_t a, int64_t b, const Dims &rest) {
  Dims d{a, b};
  d.insert(d.end(), rest.begin(), rest.end());
  return d;
}

/// [N, C, axes...] with blocks of channels: [N, C/block, axes..., block].
Dims inBlocks(Dims d, int64_t block) {
  if (block > 1) {
    d[1] /= block;
    d.push_back(block);
  }
  return d;
}

/// An index of [N, C, axes...] there.
Dims atInBlocks(Dims at, int64_t block) {
  if (block > 1) {
    at.push_back(at[1] % block);
    at[1] /= block;
  }
  return at;
}

/// Calls f(x index, w index, y index) for every product of the convolution.
template <typename F> void forProducts(const Case &k, F f) {
  Dims all = join(k.n, k.m, outDims(k));
  all.push_back(k.c / k.group);
  all.insert(all.end(), k.kernel.begin(), k.kernel.end());
  size_t sp = k.in.size();
  forIndex(all, [&](const Dims &i) {
    Dims x{i[0], i[1] / (k.m / k.group) * (k.c / k.group) + i[2 + sp]}, w{i[1], i[2 + sp]}, y{i[0], i[1]};
    for (size_t a = 0; a < sp; ++a) {
      int64_t at = i[2 + a] * k.strides[a] - k.lo[a] + i[3 + sp + a] * k.dilations[a];
      if (at < 0 || at >= k.in[a])
        return;
      x.push_back(at);
      w.push_back(i[3 + sp + a]);
      y.push_back(i[2 + a]);
    }
    f(atInBlocks(x, k.xBlock), w, atInBlocks(y, k.yBlock));
  });
}

int64_t flat(const Dims &at, const Dims &dims) {
  int64_t o = 0;
  for (size_t i = 0; i < at.size(); ++i)
    o = o * dims[i] + at[i];
  return o;
}

/// Returns the bytes of its workspace.
template <typename T> int64_t run(const Case &k, const char *kernel) {
  SCOPED_TRACE(kernel);
  Dims dims[3] = {inBlocks(join(k.n, k.c, k.in), k.xBlock), join(k.m, k.c / k.group, k.kernel),
                  inBlocks(join(k.n, k.m, outDims(k)), k.yBlock)};
  int out = !strcmp(kernel, "conv") ? 2 : !strcmp(kernel, "conv_grad_input") ? 0 : 1;
  bool bias = k.bias && out == 2;
  // Operand order: conv x w, grad_input dy w, grad_weight x dy.
  int order[3][2] = {{2, 1}, {0, 2}, {0, 1}};
  Call c(kernel, k.threads);
  int t[3] = {-1, -1, -1};
  for (int i : order[out])
    t[i] = c.add<T>(dims[i]);
  int b = bias ? c.add<T>({k.m}) : -1;
  c.results();
  t[out] = c.add<T>(dims[out]);
  c.ints("strides", k.strides);
  c.ints("pads_lo", k.lo);
  c.ints("pads_hi", k.hi);
  c.ints("dilations", k.dilations);
  c.ints("group", {k.group});
  if (*k.way)
    c.text("way", k.way);
  Rng r;
  for (int i : {t[0], t[1], t[2], b})
    if (i >= 0)
      for (int64_t e = 0; e < product(c.dims(i)); ++e)
        c.data<T>(i)[e] = T(float(r.unit()));
  std::vector<double> want(product(dims[out]), 0.0);
  T *data[3] = {c.data<T>(t[0]), c.data<T>(t[1]), c.data<T>(t[2])};
  forProducts(k, [&](const Dims &x, const Dims &w, const Dims &y) {
    int64_t e[3] = {flat(x, dims[0]), flat(w, dims[1]), flat(y, dims[2])};
    int p = order[out][0], q = order[out][1];
    want[e[out]] += double(data[p][e[p]]) * double(data[q][e[q]]);
  });
  c.run();
  c.run();
  double worst = 0;
  const int64_t plane = product(outDims(k)) * k.yBlock;
  for (size_t e = 0; e < want.size(); ++e) {
    const int64_t filter = int64_t(e) / plane * k.yBlock % k.m + int64_t(e) % k.yBlock;
    double w = want[e] + (bias ? double(c.data<T>(b)[filter]) : 0);
    worst = std::max(worst, std::fabs(w - double(data[out][e])));
  }
  EXPECT_LT(worst, kTolerance<T> * 50);
  return c.scratchBytes();
}

template <typename T = float> void check(const Case &k) {
  for (const char *kernel : {"conv", "conv_grad_input", "conv_grad_weight"})
    run<T>(k, kernel);
}

TEST(Conv, TwoDimensions) {
  check({2, 3, 16, 1, {14, 14}, {7, 7}, {2, 2}, {3, 3}, {3, 3}, {1, 1}, true});
  check({2, 16, 32, 1, {8, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}});
  check({2, 16, 24, 1, {9, 7}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}, true});
  check({3, 16, 32, 1, {8, 8}, {1, 1}, {2, 2}, {0, 0}, {0, 0}, {1, 1}});
  check({2, 3, 20, 1, {16, 16}, {4, 4}, {4, 4}, {0, 0}, {0, 0}, {1, 1}, true});
  check({2, 5, 7, 1, {10, 11}, {3, 2}, {2, 3}, {1, 0}, {0, 1}, {1, 1}, true, 3});
  check({2, 5, 7, 1, {10, 11}, {3, 2}, {2, 3}, {1, 0}, {0, 1}, {1, 1}, true, 1});
}

TEST(Conv, GroupsAndDilation) {
  check({2, 16, 32, 4, {8, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, true});
  check({2, 32, 32, 32, {8, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}}); // depthwise
  check({2, 6, 12, 6, {8, 8}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}});
  check({2, 8, 8, 1, {12, 12}, {3, 3}, {1, 1}, {2, 2}, {2, 2}, {2, 2}});
}

void checkDepthwise() {
  check({2, 32, 32, 32, {40, 40}, {7, 7}, {1, 1}, {3, 3}, {3, 3}, {1, 1}, true});
  check({3, 17, 17, 17, {5, 5}, {5, 5}, {1, 1}, {2, 2}, {2, 2}, {1, 1}, false, 3});
  check({2, 6, 12, 6, {11, 9}, {5, 3}, {2, 3}, {2, 0}, {1, 2}, {2, 1}});
  check({2, 4, 4, 4, {33}, {4}, {1}, {3}, {0}, {1}, true});
  check({1, 4, 8, 4, {5, 6, 7}, {3, 2, 3}, {2, 1, 2}, {1, 0, 1}, {0, 1, 1}, {1, 2, 1}});
  check({2, 3, 3, 3, {2, 2}, {3, 3}, {3, 3}, {2, 2}, {2, 2}, {1, 1}});
  check<Bf16>({2, 16, 16, 16, {10, 10}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}});
  check<F16>({2, 16, 16, 16, {10, 10}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}});
  check({2, 3, 3, 3, {40}, {17}, {1}, {8}, {8}, {1}}); // more taps of a row than are summed at once
  check<double>({9, 4, 8, 4, {6, 7}, {3, 2}, {2, 1}, {1, 1}, {1, 0}, {1, 2}, true});
}

TEST(Conv, Depthwise) { checkDepthwise(); }

TEST(Conv, DepthwiseOnGpus) {
  OnEmulatedGpu gpu;
  checkDepthwise();
  check({1030, 2, 2, 2, {3, 3}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}}); // of whose images a block has several
}

TEST(Conv, OtherRanks) {
  check({2, 4, 8, 1, {20}, {5}, {2}, {2}, {2}, {1}, true});
  check({2, 4, 8, 1, {6, 7, 8}, {3, 3, 3}, {1, 2, 1}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, true});
}

TEST(Conv, EachWay) {
  for (const char *way : {"plain", "blocked"}) {
    SCOPED_TRACE(way);
    check({2, 16, 32, 1, {8, 8}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, {1, 1}, true, 2, way});
    check({2, 3, 16, 1, {14, 14}, {7, 7}, {2, 2}, {3, 3}, {3, 3}, {1, 1}, true, 2, way});
    check({2, 8, 8, 1, {12, 12}, {3, 3}, {1, 1}, {2, 2}, {2, 2}, {2, 2}, false, 1, way});
    check({2, 4, 8, 1, {6, 7, 8}, {3, 3, 3}, {1, 2, 1}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, true, 2, way});
    check<Bf16>({2, 5, 7, 1, {10, 11}, {3, 2}, {2, 3}, {1, 0}, {0, 1}, {1, 1}, true, 2, way});
    if (AsIfNative::possible()) {
      AsIfNative native;
      check<Bf16>({2, 5, 7, 1, {10, 11}, {3, 2}, {2, 3}, {1, 0}, {0, 1}, {1, 1}, true, 2, way});
      check<Bf16>({2, 16, 32, 1, {8, 8}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, {1, 1}, true, 2, way});
    }
  }
}

/// In bf16 as the machine computes it, in a way and by the kernel's own rule.
void checkNatively(const char *way, const std::vector<Case> &cases) {
  if (!AsIfNative::possible())
    GTEST_SKIP() << "oneDNN has no bf16 here";
  AsIfNative native;
  for (Case k : cases)
    for (const char *one : {way, ""}) {
      SCOPED_TRACE(one);
      k.way = one;
      check<Bf16>(k);
    }
}

TEST(Conv, BlocksOfChannels) {
  auto all = [](Case k) {
    for (auto [x, y] : {std::pair<int64_t, int64_t>{16, 16}, {8, 8}, {1, 16}, {16, 1}}) {
      k.xBlock = x, k.yBlock = y;
      check(k);
      check<Bf16>(k);
      check<F16>(k);
    }
  };
  all({2, 32, 16, 1, {6, 5}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, true});
  all({3, 16, 32, 1, {5, 4}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, {1, 1}});
  all({2, 16, 16, 1, {7, 7}, {1, 1}, {2, 2}, {0, 0}, {0, 0}, {1, 1}, false, 3}); // by columns of each thread's
  all({2, 16, 16, 1, {9}, {3}, {2}, {1}, {1}, {1}});
  all({1, 16, 16, 1, {3, 4, 3}, {2, 2, 2}, {1, 1, 1}, {0, 0, 0}, {0, 0, 0}, {1, 1, 1}});
  for (const char *way : {"blocked", "columns"})
    check<Bf16>({2, 32, 16, 1, {6, 5}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, false, 2, way, 16, 16});
}

TEST(Conv, ProductOfAnImage) {
  checkNatively("product", {{3, 16, 40, 1, {9, 7}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, {1, 1}, false, 2},
                            {1, 33, 8, 1, {24, 25}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, {1, 1}, false, 1},
                            {2, 8, 5, 1, {3, 4, 5}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {0, 0, 0}, {1, 1, 1}, false, 2},
                            {2, 8, 5, 1, {6, 5}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, {1, 1}, true, 2},    // the forward has a bias
                            {2, 8, 5, 1, {6, 5}, {1, 1}, {2, 1}, {0, 0}, {0, 0}, {1, 1}, false, 2}}); // steps: no product
}

TEST(Conv, GradientByColumns) {
  const auto byColumns = [](Case k) {
    k.way = "columns";
    run<float>(k, "conv_grad_weight");
  };
  byColumns({2, 16, 24, 1, {9, 7}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}});
  byColumns({3, 5, 7, 1, {20, 23}, {3, 2}, {2, 3}, {1, 0}, {0, 1}, {1, 1}, false, 3});
  byColumns({2, 70, 9, 1, {18, 18}, {3, 3}, {1, 1}, {2, 2}, {2, 2}, {2, 2}, false, 2}); // blocks across images
  byColumns({40, 16, 8, 1, {2, 2}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, false, 2});
  byColumns({2, 12, 8, 1, {14, 14}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, {1, 1}});
  byColumns({2, 3, 4, 1, {2, 2}, {3, 3}, {3, 3}, {2, 2}, {2, 2}, {1, 1}});
  byColumns({2, 4, 8, 1, {33}, {4}, {3}, {3}, {0}, {1}});
  byColumns({2, 4, 8, 1, {6, 7, 8}, {3, 3, 3}, {1, 2, 1}, {1, 1, 1}, {1, 0, 1}, {1, 1, 2}, false, 2});
}

TEST(Conv, ByColumnsOfFewPixels) {
  const auto byColumns = [](Case k) {
    k.way = "columns";
    check<float>(k);
  };
  byColumns({2, 16, 24, 1, {9, 7}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}, true});
  byColumns({3, 5, 7, 1, {10, 11}, {3, 2}, {2, 3}, {1, 0}, {0, 1}, {1, 1}, true, 3});
  byColumns({2, 150, 9, 1, {16, 16}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, false, 2}); // blocks of channels
  byColumns({2, 6, 140, 1, {4, 4}, {3, 3}, {1, 1}, {2, 2}, {2, 2}, {2, 2}, true, 2});    // blocks of filters
  byColumns({2, 3, 4, 1, {2, 2}, {3, 3}, {3, 3}, {2, 2}, {2, 2}, {1, 1}, false, 1});
  byColumns({2, 4, 8, 1, {33}, {4}, {3}, {3}, {0}, {1}, true});
  byColumns({2, 4, 8, 1, {6, 7, 8}, {3, 3, 3}, {1, 2, 1}, {1, 1, 1}, {1, 0, 1}, {1, 1, 2}, false, 2});
  byColumns({2, 8, 8, 1, {40, 40}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, false, 2}); // too many: by blocks
}

TEST(Conv, ManyFiltersAreReadAsTheyLie) {
  const Case k{2, 512, 256, 1, {2, 2}, {1, 1}, {2, 2}, {0, 0}, {0, 0}, {1, 1}, false, 2};
  for (const char *way : {"", "blocked"})
    for (const char *kernel : {"conv", "conv_grad_input", "conv_grad_weight"}) {
      Case one = k;
      one.way = way;
      EXPECT_LT(run<float>(one, kernel), 4 * 512 * 256);
    }
}

TEST(Conv, GradientByColumnsOfFewPixels) {
  checkNatively("columns", {{8, 16, 24, 1, {2, 2}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, true, 2},
                            {3, 5, 7, 1, {10, 11}, {3, 2}, {2, 3}, {1, 0}, {0, 1}, {1, 1}, false, 3},
                            {2, 4, 8, 1, {33}, {4}, {3}, {3}, {0}, {1}, false, 1},
                            {2, 4, 8, 1, {6, 7, 8}, {3, 3, 3}, {1, 2, 1}, {1, 1, 1}, {1, 0, 1}, {1, 1, 2}, false, 2},
                            {2, 8, 8, 1, {40, 40}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, false, 2}}); // too many
}

TEST(Conv, GradientByColumnsWhereALibraryTakesMore) {
  const Case k{8, 128, 128, 1, {3, 3}, {1, 1}, {2, 2}, {0, 0}, {0, 0}, {1, 1}, false, 2, "plain"};
  EXPECT_LE(run<float>(k, "conv_grad_weight"), 4 * (8 * 128 * (9 + 4) + 128 * 128));
}

TEST(Conv, FewImagesAtOnce) {
  const Case k{6, 8, 8, 1, {64, 64}, {3, 3}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, true, 1, "blocked"};
  for (const char *kernel : {"conv", "conv_grad_input"})
    EXPECT_LT(run<float>(k, kernel), k.n * 4 * (k.c * product(k.in) + k.m * product(outDims(k))));
}

/// A weight that `pack` has laid out gives the bits of one that the call lays out itself.
template <typename T> void checkPacked(const Case &k, const char *kernel) {
  SCOPED_TRACE(kernel);
  const bool isForward = !strcmp(kernel, "conv");
  const Dims x = join(k.n, k.c, k.in), w = join(k.m, k.c, k.kernel), y = join(k.n, k.m, outDims(k));
  auto make = [&](Call &c) {
    c.add<T>(isForward ? x : y);
    c.add<T>(w);
    c.results();
    c.add<T>(isForward ? y : x);
    c.ints("strides", k.strides);
    c.ints("pads_lo", k.lo);
    c.ints("pads_hi", k.hi);
    c.text("way", "blocked");
  };
  Call plain(kernel, k.threads), packed(kernel, k.threads), pack("pack", k.threads);
  make(plain);
  make(packed);
  auto packing = plain.packing();
  if (!packing && !isForward && !AsIfNative::possible())
    return; // without AVX-512 some inputs' gradients want no layout that has a name
  ASSERT_TRUE(packing);
  pack.add<T>(w);
  pack.results();
  pack.add<T>(w, dense(w), packedElements(w, packing->layout));
  pack.text("layout", packing->layout.c_str());
  packed.text("packed", packing->layout.c_str());
  packed.redefine<T>(1, w, packedElements(w, packing->layout));
  Rng r;
  plain.fillRandom<T>(0, r);
  plain.fillRandom<T>(1, r);
  memcpy(packed.data<T>(0), plain.data<T>(0), sizeof(T) * size_t(product(plain.dims(0))));
  memcpy(pack.data<T>(0), plain.data<T>(1), sizeof(T) * size_t(product(w)));
  pack.run();
  memcpy(packed.data<T>(1), pack.data<T>(1), sizeof(T) * size_t(packedElements(w, packing->layout)));
  plain.run();
  packed.run();
  packed.run();
  EXPECT_FALSE(packed.packing()) << "there is nothing left to pack";
  EXPECT_LT(packed.scratchBytes(), plain.scratchBytes());
  EXPECT_EQ(memcmp(packed.data<T>(2), plain.data<T>(2), sizeof(T) * size_t(product(plain.dims(2)))), 0);
}

TEST(Conv, PackedWeights) {
  const Case cases[] = {{2, 16, 32, 1, {8, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
                        {2, 24, 40, 1, {9, 7}, {3, 2}, {2, 1}, {1, 0}, {0, 1}, {1, 1}},
                        {2, 16, 33, 1, {6, 7, 8}, {3, 3, 3}, {1, 2, 1}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}}};
  for (const Case &k : cases)
    for (const char *kernel : {"conv", "conv_grad_input"}) {
      checkPacked<float>(k, kernel);
      if (!AsIfNative::possible())
        continue;
      AsIfNative native;
      checkPacked<Bf16>(k, kernel);
    }
}

TEST(Conv, OnGpus) {
  OnEmulatedGpu gpu;
  check({2, 16, 24, 1, {9, 7}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}, true});
  check({3, 16, 32, 1, {8, 8}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, {1, 1}});     // single points
  check({4, 6, 8, 2, {8, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, true}); // fewer groups than images
  check({2, 6, 12, 6, {8, 8}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}});      // more
  check({2, 4, 8, 1, {6, 7, 8}, {3, 3, 3}, {1, 2, 1}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, true});
  check<Bf16>({3, 5, 7, 1, {10, 11}, {3, 2}, {2, 3}, {1, 0}, {0, 1}, {1, 1}, true});
  check<Bf16>({2, 128, 1, 1, {128, 128}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}}); // more than is laid out at once
  check<Bf16>({3, 5, 7, 1, {7, 7}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, {1, 1}, true}); // points whose rows begin anywhere
  check<F16>({4, 6, 8, 2, {5, 3}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, {1, 1}});
  check<F16>({2, 6, 12, 3, {7, 5}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}});
  check<double>({2, 4, 6, 2, {5, 7}, {3, 2}, {2, 1}, {1, 1}, {1, 0}, {1, 2}, true});
}

TEST(Conv, NativeBf16) {
  if (!AsIfNative::possible())
    GTEST_SKIP() << "oneDNN has no bf16 here";
  AsIfNative native;
  check<Bf16>({2, 16, 32, 1, {8, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, true});
  check<Bf16>({2, 5, 7, 1, {10, 11}, {3, 2}, {2, 3}, {1, 0}, {0, 1}, {1, 1}, true});
  check<Bf16>({2, 16, 32, 4, {8, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, true});
}

TEST(Conv, OtherElements) {
  check<Bf16>({2, 16, 32, 1, {8, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, true});
  check<Bf16>({2, 5, 7, 1, {10, 11}, {3, 2}, {2, 3}, {1, 0}, {0, 1}, {1, 1}, true});
  check<F16>({2, 16, 32, 1, {8, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, true});
  check<double>({2, 4, 6, 2, {6, 7}, {3, 2}, {2, 1}, {1, 1}, {1, 0}, {1, 2}, true});
}

} // namespace

} // namespace kernel_test_conv
