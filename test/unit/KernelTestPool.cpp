// Pooling and its gradients against loops in double: padding, dilation, ties, NaN, element types.
#include "test/unit/KernelTest.h"

namespace kernel_test_pool {

using namespace kerneltest;

namespace {

struct Case {
  Dims x, kernel, strides, lo, hi, dilations;
  bool countPad = false;
};

Dims resultDims(const Case &k) {
  Dims y{k.x[0], k.x[1]};
  for (size_t i = 0; i < k.kernel.size(); ++i)
    y.push_back((k.x[i + 2] + k.lo[i] + k.hi[i] - (k.kernel[i] - 1) * k.dilations[i] - 1) / k.strides[i] + 1);
  return y;
}

void attributes(Call &c, const Case &k) {
  c.ints("kernel", k.kernel);
  c.ints("strides", k.strides);
  c.ints("pads_lo", k.lo);
  c.ints("pads_hi", k.hi);
  c.ints("dilations", k.dilations);
  c.ints("count_pad", {k.countPad});
}

/// A tap of a window, and the flat position in the plane of x at which it lies.
struct Tap {
  int64_t number, at;
};

/// Those of output position `o` that lie inside, in row-major order.
std::vector<Tap> taps(const Case &k, const Dims &y) {
  std::vector<Tap> found;
  int64_t number = -1;
  forIndex(k.kernel, [&](const Dims &tap) {
    int64_t flat = 0;
    ++number;
    for (size_t i = 0; i < tap.size(); ++i) {
      int64_t p = y[i + 2] * k.strides[i] - k.lo[i] + tap[i] * k.dilations[i];
      if (p < 0 || p >= k.x[i + 2])
        return;
      flat = flat * k.x[i + 2] + p;
    }
    found.push_back({number, flat});
  });
  return found;
}

/// How far a result may lie from the loop's: 16-bit ones are rounded once.
template <typename T> double mostError(double want) { return 1e-5 + (sizeof(T) == 2 ? std::fabs(want) / 256 : 0); }

/// `I`: what holds the position in a window.
template <typename T, typename I> void checkMax(const Case &k, bool special) {
  Dims yDims = resultDims(k);
  Call c("max_pool");
  int x = c.add<T>(k.x);
  c.results();
  int y = c.add<T>(yDims), tap = c.add<I>(yDims);
  attributes(c, k);
  Rng r;
  int64_t n = product(k.x), plane = n / (k.x[0] * k.x[1]);
  for (int64_t i = 0; i < n; ++i)
    c.data<T>(x)[i] = T(r.below(6)); // many ties
  if (special) {
    c.data<T>(x)[plane / 2] = T(NAN);
    for (int64_t i = 0; i < plane / 2; ++i)
      c.data<T>(x)[i] = T(-INFINITY);
  }
  c.run();
  Call g("max_pool_grad");
  int dy = g.add<T>(yDims), gTap = g.add<I>(yDims);
  g.results();
  int dx = g.add<T>(k.x);
  attributes(g, k);
  g.ints("dims", k.x);
  std::vector<double> want(n, 0.0);
  int64_t e = 0;
  forIndex(yDims, [&](const Dims &o) {
    int64_t first = (o[0] * k.x[1] + o[1]) * plane;
    Tap best{-1, -1};
    double max = -INFINITY;
    for (Tap t : taps(k, o)) {
      double v = c.data<T>(x)[first + t.at];
      if (best.number < 0 || v > max || std::isnan(v)) {
        max = v;
        best = t;
      }
    }
    EXPECT_EQ(c.data<I>(tap)[e], I(best.number));
    double got = c.data<T>(y)[e];
    EXPECT_TRUE(got == max || (std::isnan(got) && std::isnan(max)));
    g.data<T>(dy)[e] = T(r.unit());
    g.data<I>(gTap)[e] = I(best.number);
    if (best.number >= 0)
      want[first + best.at] += double(g.data<T>(dy)[e]);
    ++e;
  });
  g.run();
  for (int64_t i = 0; i < n; ++i)
    EXPECT_NEAR(g.data<T>(dx)[i], want[i], mostError<T>(want[i]));
}

template <typename T> void checkAverage(const Case &k) {
  Dims yDims = resultDims(k);
  Call c("avg_pool"), g("avg_pool_grad");
  int x = c.add<T>(k.x), dy = g.add<T>(yDims);
  c.results();
  g.results();
  int y = c.add<T>(yDims), dx = g.add<T>(k.x);
  attributes(c, k);
  attributes(g, k);
  g.ints("dims", k.x);
  Rng r;
  int64_t n = product(k.x), plane = n / (k.x[0] * k.x[1]);
  for (int64_t i = 0; i < n; ++i)
    c.data<T>(x)[i] = T(r.unit());
  for (int64_t i = 0; i < product(yDims); ++i)
    g.data<T>(dy)[i] = T(r.unit());
  c.run();
  g.run();
  std::vector<double> want(n, 0.0);
  int64_t e = 0;
  forIndex(yDims, [&](const Dims &o) {
    int64_t first = (o[0] * k.x[1] + o[1]) * plane;
    std::vector<Tap> inside = taps(k, o);
    double sum = 0, divisor = k.countPad ? double(product(k.kernel)) : double(inside.size());
    for (Tap t : inside) {
      sum += double(c.data<T>(x)[first + t.at]);
      want[first + t.at] += double(g.data<T>(dy)[e]) / divisor;
    }
    EXPECT_NEAR(c.data<T>(y)[e++], sum / divisor, mostError<T>(sum / divisor));
  });
  for (int64_t i = 0; i < n; ++i)
    EXPECT_NEAR(g.data<T>(dx)[i], want[i], mostError<T>(want[i]));
}

const Case kCases[] = {
    {{2, 3, 16, 16}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}},
    {{2, 3, 15, 40}, {2, 3}, {1, 1}, {0, 1}, {1, 0}, {1, 1}},
    {{1, 2, 20, 21}, {3, 2}, {3, 3}, {1, 0}, {2, 0}, {1, 1}},
    {{2, 5, 7, 7}, {7, 7}, {1, 1}, {0, 0}, {0, 0}, {1, 1}},
    {{2, 3, 30}, {4}, {2}, {1}, {1}, {1}},
    {{1, 3, 6, 7, 8}, {2, 3, 2}, {2, 1, 2}, {0, 1, 1}, {0, 1, 1}, {1, 1, 1}},
    {{1, 2, 3, 700}, {1, 3}, {1, 2}, {0, 1}, {0, 1}, {1, 1}},
};

TEST(Pool, Max) {
  for (const Case &k : kCases)
    for (bool special : {false, true}) {
      checkMax<float, uint8_t>(k, special);
      checkMax<double, uint8_t>(k, special);
    }
  checkMax<float, uint8_t>({{2, 3, 16, 16}, {3, 3}, {1, 1}, {2, 2}, {2, 2}, {2, 2}}, false);
  checkMax<float, uint8_t>({{1, 2, 2}, {2}, {1}, {1}, {1}, {3}}, false); // the only window lies in the padding
}

// From 256 taps on a byte does not hold the position.
TEST(Pool, MaxOfLargeWindows) {
  for (bool special : {false, true}) {
    checkMax<float, uint8_t>({{1, 2, 20, 20}, {15, 17}, {2, 1}, {2, 3}, {1, 2}, {1, 1}}, special);
    checkMax<float, int32_t>({{1, 2, 20, 20}, {16, 16}, {2, 1}, {2, 3}, {1, 2}, {1, 1}}, special);
    checkMax<double, int32_t>({{1, 2, 600}, {270}, {3}, {4}, {5}, {2}}, special);
  }
}

// What several pieces of a plane hold, and rows too long for one.
TEST(Pool, MaxOfLargePlanes) {
  for (const Case &k : {Case{{1, 2, 150, 90}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}},
                        Case{{1, 1, 61, 301}, {4, 5}, {1, 2}, {2, 0}, {1, 3}, {1, 1}},
                        Case{{1, 1, 50, 211}, {3, 4}, {3, 1}, {2, 1}, {0, 1}, {2, 3}},
                        Case{{1, 1, 5, 64, 65}, {3, 2, 3}, {1, 2, 2}, {1, 0, 1}, {1, 1, 1}, {1, 1, 1}},
                        Case{{1, 1, 4, 9000}, {2, 2}, {2, 2}, {0, 0}, {0, 0}, {1, 1}}})
    for (bool special : {false, true})
      checkMax<float, uint8_t>(k, special);
}

TEST(Pool, Average) {
  for (Case k : kCases)
    for (bool countPad : {false, true}) {
      k.countPad = countPad;
      checkAverage<float>(k);
      checkAverage<double>(k);
      checkAverage<Bf16>(k);
    }
}

// Many windows share an element: its gradient is rounded once, not at each of them.
TEST(Pool, NarrowGradientsOfManyWindows) {
  const Case many = {{1, 2, 12, 300}, {5, 100}, {1, 1}, {2, 0}, {2, 0}, {1, 1}};
  checkAverage<Bf16>(many);
  checkAverage<F16>(many);
  checkMax<Bf16, int32_t>(many, false);
  checkMax<F16, int32_t>(many, false);
}

} // namespace

} // namespace kernel_test_pool
