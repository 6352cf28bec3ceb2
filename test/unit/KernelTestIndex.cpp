// Kernels that move or select: gather, scatter, scans, concat, pad, random numbers.
#include "ir/Philox.h"
#include "test/unit/KernelTest.h"
#include <algorithm>
#include <numeric>

namespace kernel_test_index {

using namespace kerneltest;

namespace {

template <typename I> void fillIndices(Call &c, int t, Rng &r, int64_t n) {
  for (int64_t i = 0; i < product(c.dims(t)); ++i)
    c.data<I>(t)[i] = I(r.below(2 * n) - n); // negative ones count from the end
}
int64_t positive(int64_t i, int64_t n) { return i < 0 ? i + n : i; }

template <typename I> void checkGather(const Dims &x, const Dims &index, int64_t axis) {
  Dims y(x.begin(), x.begin() + axis);
  y.insert(y.end(), index.begin(), index.end());
  y.insert(y.end(), x.begin() + axis + 1, x.end());
  Call c("gather");
  int tx = c.add<float>(x), ti = c.add<I>(index);
  c.results();
  int ty = c.add<float>(y);
  c.ints("axis", {axis});
  Rng r;
  c.fillRandom(tx, r);
  fillIndices<I>(c, ti, r, x[axis]);
  c.run();
  forIndex(y, [&](const Dims &at) {
    Dims xi(at.begin(), at.begin() + axis), ii(at.begin() + axis, at.begin() + axis + int64_t(index.size()));
    xi.push_back(positive(c.el<I>(ti, ii), x[axis]));
    xi.insert(xi.end(), at.begin() + axis + int64_t(index.size()), at.end());
    EXPECT_EQ(c.el<float>(ty, at), c.el<float>(tx, xi));
  });

  for (int threads : {1, 2, 3})
    for (bool inPlace : {false, true}) {
      Call s("scatter_add", threads);
      int sb = s.add<float>(x), si = s.add<I>(index), su = s.add<float>(y);
      s.results();
      int sy = s.add<float>(x);
      if (inPlace)
        s.alias(sy, sb);
      s.ints("axis", {axis});
      Rng again;
      s.fillRandom(sb, again);
      s.fillRandom(su, again);
      std::copy_n(c.data<I>(ti), product(index), s.data<I>(si));
      std::vector<float> want(s.data<float>(sb), s.data<float>(sb) + product(x));
      forIndex(y, [&](const Dims &at) {
        Dims xi(at.begin(), at.begin() + axis), ii(at.begin() + axis, at.begin() + axis + int64_t(index.size()));
        xi.push_back(positive(s.el<I>(si, ii), x[axis]));
        xi.insert(xi.end(), at.begin() + axis + int64_t(index.size()), at.end());
        int64_t flat = 0;
        for (size_t a = 0; a < xi.size(); ++a)
          flat = flat * x[a] + xi[a];
        want[flat] += s.el<float>(su, at); // in the order of the indices: the same bits
      });
      s.run();
      for (int64_t i = 0; i < product(x); ++i)
        EXPECT_EQ(s.data<float>(sy)[i], want[i]);
    }
}

/// Rows that many updates go to are summed in f32, in the order of the updates, and rounded once.
template <typename T> void checkNarrowSums(int64_t width, int threads) {
  constexpr int64_t kRows = 5, kUpdates = 300;
  Call s("scatter_add", threads);
  int base = s.add<T>({kRows, width}), index = s.add<int64_t>({kUpdates}), updates = s.add<T>({kUpdates, width});
  s.results();
  int y = s.add<T>({kRows, width});
  s.ints("axis", {0});
  Rng r;
  s.fillRandom<T>(base, r);
  s.fillRandom<T>(updates, r);
  fillIndices<int64_t>(s, index, r, kRows - 1); // the last row is nobody's
  std::vector<float> want(s.data<T>(base), s.data<T>(base) + kRows * width);
  for (int64_t i = 0; i < kUpdates; ++i) {
    int64_t row = positive(s.data<int64_t>(index)[i], kRows);
    for (int64_t k = 0; k < width; ++k)
      want[row * width + k] += float(s.data<T>(updates)[i * width + k]);
  }
  s.run();
  for (int64_t i = 0; i < kRows * width; ++i)
    EXPECT_EQ(float(s.data<T>(y)[i]), float(T(want[i])));
}

TEST(Gather, NarrowSumsAreRoundedOnce) {
  for (int threads : {1, 2, 3})
    for (int64_t width : {1, 7, 64, 1100}) {
      checkNarrowSums<Bf16>(width, threads);
      checkNarrowSums<F16>(width, threads);
    }
}

TEST(Gather, RowsAndTheirSums) {
  checkGather<int64_t>({50, 200}, {6, 30}, 0);
  checkGather<int32_t>({50, 7}, {600}, 0);
  checkGather<int64_t>({4, 9, 40}, {3, 5}, 1);
  checkGather<int64_t>({4, 9, 40}, {11}, 2);
  checkGather<int64_t>({9, 4}, {}, 0);
}

double combined(const std::string &how, double a, double b) {
  return how == "add" ? a + b : how == "mul" ? a * b : how == "max" ? std::max(a, b) : how == "min" ? std::min(a, b) : b;
}

TEST(Gather, Elements) {
  for (int64_t axis : {0, 1, 2})
    for (const char *how : {"none", "add", "mul", "max", "min"})
      for (int threads : {1, 2}) {
        Dims x{6, 7, 8}, index{4, 5, 6};
        Call g("gather_elements", threads), s("scatter_elements", threads);
        int gx = g.add<float>(x), gi = g.add<int64_t>(index);
        int sx = s.add<float>(x), si = s.add<int64_t>(index), su = s.add<float>(index);
        g.results();
        s.results();
        int gy = g.add<float>(index), sy = s.add<float>(x);
        g.ints("axis", {axis});
        s.ints("axis", {axis});
        s.text("reduce", how);
        Rng r;
        g.fillRandom(gx, r);
        s.fillRandom(sx, r);
        s.fillRandom(su, r);
        fillIndices<int64_t>(g, gi, r, x[axis]);
        std::copy_n(g.data<int64_t>(gi), product(index), s.data<int64_t>(si));
        std::vector<double> want(s.data<float>(sx), s.data<float>(sx) + product(x));
        forIndex(index, [&](const Dims &at) {
          Dims xi = at;
          xi[axis] = positive(g.el<int64_t>(gi, at), x[axis]);
          double &w = want[(xi[0] * x[1] + xi[1]) * x[2] + xi[2]];
          w = combined(how, w, s.el<float>(su, at));
        });
        g.run();
        s.run();
        forIndex(index, [&](const Dims &at) {
          Dims xi = at;
          xi[axis] = positive(g.el<int64_t>(gi, at), x[axis]);
          EXPECT_EQ(g.el<float>(gy, at), g.el<float>(gx, xi));
        });
        for (int64_t i = 0; i < product(x); ++i)
          EXPECT_NEAR(s.data<float>(sy)[i], want[i], 1e-5);
      }
}

TEST(Gather, Tuples) {
  Dims x{3, 6, 7, 8};
  Call g("gather_nd");
  int gx = g.add<float>(x), gi = g.add<int64_t>({3, 5, 2});
  g.results();
  int gy = g.add<float>({3, 5, 8});
  g.ints("batch", {1});
  Rng r;
  g.fillRandom(gx, r);
  forIndex({3, 5, 2}, [&](const Dims &i) { g.el<int64_t>(gi, i) = r.below(x[i[2] + 1]); });
  g.run();
  forIndex({3, 5, 8}, [&](const Dims &i) {
    Dims at{i[0], g.el<int64_t>(gi, {i[0], i[1], 0}), g.el<int64_t>(gi, {i[0], i[1], 1}), i[2]};
    EXPECT_EQ(g.el<float>(gy, i), g.el<float>(gx, at));
  });

  Call s("scatter_nd");
  int sx = s.add<int64_t>({6, 7}), si = s.add<int64_t>({40, 2}), su = s.add<int64_t>({40});
  s.results();
  int sy = s.add<int64_t>({6, 7});
  s.text("reduce", "add");
  std::vector<int64_t> want;
  for (int64_t i = 0; i < 42; ++i)
    want.push_back(s.data<int64_t>(sx)[i] = i);
  for (int64_t i = 0; i < 40; ++i) {
    int64_t a = r.below(6), b = r.below(7);
    s.el<int64_t>(si, {i, 0}) = a;
    s.el<int64_t>(si, {i, 1}) = b - 7;
    want[a * 7 + b] += s.data<int64_t>(su)[i] = i * i;
  }
  s.run();
  EXPECT_TRUE(std::equal(want.begin(), want.end(), s.data<int64_t>(sy)));
}

TEST(Gather, OutsideIndexEndsTheProgram) {
  EXPECT_EXIT(
      {
        Call c("gather", 1);
        c.add<float>({5, 2});
        int i = c.add<int64_t>({1});
        c.results();
        c.add<float>({1, 2});
        c.data<int64_t>(i)[0] = 5;
        c.run();
      },
      testing::ExitedWithCode(1), "index 5 is outside of an axis of 5");
}

TEST(Scan, Extremes) {
  for (int64_t axis : {0, 1, 2})
    for (const char *op : {"argmax", "argmin"})
      for (bool last : {false, true}) {
        Dims x{3, 10, 4}, y = x;
        y[axis] = 1;
        Call c(op);
        int tx = c.add<float>(x);
        c.results();
        int ty = c.add<int64_t>(y);
        c.ints("axis", {axis});
        c.ints("last", {last});
        Rng r;
        forIndex(x, [&](const Dims &i) { c.el<float>(tx, i) = float(r.below(4)); });
        c.run();
        forIndex(y, [&](Dims i) {
          int64_t best = 0, at = c.el<int64_t>(ty, i);
          auto value = [&](int64_t j) {
            Dims k = i;
            k[axis] = j;
            return (op[3] == 'm' && op[4] == 'a' ? 1 : -1) * c.el<float>(tx, k);
          };
          for (int64_t j = 1; j < x[axis]; ++j)
            if (value(j) > value(best) || (last && value(j) == value(best)))
              best = j;
          EXPECT_EQ(at, best);
        });
      }
}

TEST(Scan, RunningSums) {
  for (bool exclusive : {false, true})
    for (bool reverse : {false, true}) {
      Call c("cumsum");
      int x = c.add<int32_t>({3, 10, 4});
      c.results();
      int y = c.add<int32_t>({3, 10, 4});
      c.ints("axis", {1});
      c.ints("exclusive", {exclusive});
      c.ints("reverse", {reverse});
      Rng r;
      for (int64_t i = 0; i < 120; ++i)
        c.data<int32_t>(x)[i] = int32_t(r.below(100));
      c.run();
      forIndex({3, 10, 4}, [&](const Dims &i) {
        int32_t want = 0;
        for (int64_t j = 0; j < 10; ++j)
          if ((reverse ? j > i[1] : j < i[1]) || (j == i[1] && !exclusive))
            want += c.el<int32_t>(x, {i[0], j, i[2]});
        EXPECT_EQ(c.el<int32_t>(y, i), want);
      });
    }
}

TEST(Scan, TopK) {
  for (bool largest : {true, false}) {
    Call c("topk");
    int x = c.add<float>({3, 20, 4});
    c.results();
    int values = c.add<float>({3, 6, 4}), indices = c.add<int64_t>({3, 6, 4});
    c.ints("axis", {1});
    c.ints("k", {6});
    c.ints("largest", {largest});
    Rng r;
    forIndex({3, 20, 4}, [&](const Dims &i) { c.el<float>(x, i) = float(r.below(9)); });
    c.run();
    forIndex({3, 4}, [&](const Dims &i) {
      std::vector<int64_t> order(20);
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
        float u = c.el<float>(x, {i[0], a, i[1]}), v = c.el<float>(x, {i[0], b, i[1]});
        return largest ? u > v : u < v;
      });
      for (int64_t j = 0; j < 6; ++j) {
        EXPECT_EQ(c.el<int64_t>(indices, {i[0], j, i[1]}), order[j]);
        EXPECT_EQ(c.el<float>(values, {i[0], j, i[1]}), c.el<float>(x, {i[0], order[j], i[1]}));
      }
    });
  }
}

TEST(Shape, Concat) {
  Call c("concat");
  int a = c.addPermuted<float>({30, 40, 50}, {2, 0, 1}), b = c.add<float>({30, 7, 50}), d = c.add<float>({30, 1, 50});
  c.results();
  int y = c.add<float>({30, 48, 50});
  c.ints("axis", {1});
  Rng r;
  for (int t : {a, b, d})
    c.fillRandom(t, r);
  c.run();
  forIndex({30, 48, 50}, [&](const Dims &i) {
    int t = i[1] < 40 ? a : i[1] < 47 ? b : d;
    int64_t at = i[1] - (t == a ? 0 : t == b ? 40 : 47);
    EXPECT_EQ(c.el<float>(y, i), c.el<float>(t, {i[0], at, i[2]}));
  });
}

TEST(Shape, Pad) {
  for (const char *mode : {"constant", "reflect", "edge", "wrap"})
    for (Dims lo : {Dims{1, 2, 3}, Dims{-1, 0, -2}}) {
      Dims hi{2, -1, 1}, x{4, 5, 6}, y;
      for (int i = 0; i < 3; ++i)
        y.push_back(x[i] + lo[i] + hi[i]);
      Call c("pad");
      int tx = c.addPermuted<float>(x, {1, 2, 0});
      c.results();
      int ty = c.add<float>(y);
      c.ints("lo", lo);
      c.ints("hi", hi);
      c.text("mode", mode);
      c.number("value", 7.5);
      Rng r;
      c.fillRandom(tx, r);
      c.run();
      forIndex(y, [&](const Dims &i) {
        Dims at(3);
        bool inside = true;
        for (int a = 0; a < 3; ++a) {
          int64_t p = i[a] - lo[a], n = x[a];
          inside &= p >= 0 && p < n;
          if (!strcmp(mode, "edge"))
            p = std::clamp<int64_t>(p, 0, n - 1);
          else if (!strcmp(mode, "wrap"))
            p = (p + n) % n;
          else if (!strcmp(mode, "reflect"))
            p = p < 0 ? -p : p >= n ? 2 * (n - 1) - p : p;
          at[a] = p;
        }
        float want = !inside && !strcmp(mode, "constant") ? 7.5f : c.el<float>(tx, at);
        EXPECT_EQ(c.el<float>(ty, i), want);
      });
    }
}

TEST(Random, ByPosition) {
  for (int threads : {1, 2}) {
    Call c("random_normal", threads);
    int seed = c.add<int64_t>({}), step = c.add<int64_t>({}), micro = c.add<int64_t>({});
    c.results();
    int y = c.add<float>({333, 31});
    c.ints("id", {12});
    *c.data<int64_t>(seed) = 0x1234567890;
    *c.data<int64_t>(step) = 3 + 7 * 65536;
    *c.data<int64_t>(micro) = 1;
    c.run();
    for (int64_t e = 0; e < 333 * 31; ++e)
      EXPECT_NEAR(c.data<float>(y)[e], zcc::philoxNormal(0x1234567890 ^ 7LL << 32, e, 12, zcc::philoxTime(3, 1)), 5e-6) << e;
  }
}

} // namespace

} // namespace kernel_test_index
