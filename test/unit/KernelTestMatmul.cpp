// matmul against loops in double: layouts, batches, broadcasting, element types.
#include "test/unit/KernelTest.h"
#include <memory>

namespace kernel_test_matmul {

using namespace kerneltest;

namespace {

struct Product {
  Dims a, b;
  Dims aOrder, bOrder, yOrder; ///< storage orders; empty: dense
  const char *way = "";
};

Dims resultDims(const Product &p) {
  Dims y = p.a.size() > p.b.size() ? p.a : p.b;
  for (size_t i = 0; i + 2 < y.size(); ++i) {
    size_t fromEnd = y.size() - i;
    for (const Dims *d : {&p.a, &p.b})
      if (d->size() >= fromEnd)
        y[i] = std::max(y[i], (*d)[d->size() - fromEnd]);
  }
  y[y.size() - 2] = p.a[p.a.size() - 2];
  y.back() = p.b.back();
  return y;
}

/// The index of operand t's matrix for an index of y, then row and column.
Dims operandIndex(const Dims &dims, const Dims &y, int64_t row, int64_t col) {
  Dims at(dims.size());
  for (size_t i = 0; i + 2 < dims.size(); ++i)
    at[i] = dims[i] == 1 ? 0 : y[i + y.size() - dims.size()];
  at[dims.size() - 2] = row;
  at.back() = col;
  return at;
}

template <typename T> void check(const Product &p, int threads) {
  Call c("matmul", threads);
  auto add = [&](const Dims &d, const Dims &order) { return order.empty() ? c.add<T>(d) : c.addPermuted<T>(d, order); };
  Dims yDims = resultDims(p);
  int a = add(p.a, p.aOrder), b = add(p.b, p.bOrder);
  c.results();
  int y = add(yDims, p.yOrder);
  if (*p.way)
    c.text("way", p.way);
  Rng r;
  for (int t : {a, b, y})
    forIndex(c.dims(t), [&](const Dims &i) { c.el<T>(t, i) = T(float(r.unit() * 8)); });
  std::vector<double> want;
  int64_t k = p.a.back();
  forIndex(yDims, [&](const Dims &i) {
    double s = 0;
    Dims ai = operandIndex(p.a, i, i[i.size() - 2], 0), bi = operandIndex(p.b, i, 0, i.back());
    for (int64_t &x = ai.back(); x < k; ++x) {
      bi[bi.size() - 2] = x;
      s += double(c.el<T>(a, ai)) * double(c.el<T>(b, bi));
    }
    want.push_back(s);
  });
  c.run();
  size_t e = 0;
  double worst = 0;
  forIndex(yDims, [&](const Dims &i) { worst = std::max(worst, std::fabs(want[e++] - double(c.el<T>(y, i)))); });
  EXPECT_LT(worst, kTolerance<T> * 64 * std::sqrt(double(k) + 1)) << p.a.size() << " axes, k " << k << ", threads " << threads;
}

TEST(Matmul, Plain) {
  for (int threads : {1, 3})
    for (auto [m, n, k] : {std::array<int64_t, 3>{1, 1, 1},
                           {1, 40, 30},
                           {40, 1, 30},
                           {40, 30, 1},
                           {33, 70, 129},
                           {64, 10, 256},
                           {256, 10, 64},
                           {200, 300, 100},
                           {8, 8, 8}})
      for (bool ta : {false, true})
        for (bool tb : {false, true}) {
          Product p{{m, k}, {k, n}, {}, {}, {}};
          p.aOrder = ta ? Dims{1, 0} : Dims{};
          p.bOrder = tb ? Dims{1, 0} : Dims{};
          check<float>(p, threads);
        }
}

TEST(Matmul, EachWay) {
  for (const char *way : {"sgemm", "primitive"})
    for (const Dims &a : {Dims{}, Dims{1, 0}})
      for (const Dims &b : {Dims{}, Dims{1, 0}}) {
        check<float>({{33, 129}, {129, 70}, a, b, {}, way}, 2);
        check<float>({{8, 300}, {300, 9}, a, b, {}, way}, 2);
        check<Bf16>({{33, 129}, {129, 70}, a, b, {}, way}, 2);
      }
}

TEST(Matmul, Padded) { // in pieces of 1024 terms and columns
  for (int threads : {1, 2}) {
    check<float>({{1536, 1100}, {1100, 40}, {1, 0}, {}, {}, "padded"}, threads);
    check<float>({{40, 1100}, {1100, 1536}, {1, 0}, {}, {}, "padded"}, threads);
    check<float>({{40, 1100}, {1100, 1536}, {}, {}, {}, "padded"}, threads);
    check<float>({{512, 70}, {70, 40}, {1, 0}, {1, 0}, {}, "padded"}, threads);
    check<float>({{512, 70}, {70, 1024}, {1, 0}, {}, {1, 0}, "padded"}, threads);
    check<float>({{3, 20, 30}, {30, 512}, {}, {}, {}, "padded"}, threads); // merged
    check<float>({{3, 20, 30}, {3, 30, 512}, {}, {}, {}, "padded"}, threads);
    check<float>({{20, 70}, {70, 512}, {}, {1, 0}, {}, "padded"}, threads); // no factor is copied
    check<Bf16>({{512, 70}, {70, 40}, {1, 0}, {}, {}, "padded"}, threads);
  }
}

TEST(Matmul, PaddedSum) {
  Call c("add_matmul", 2);
  int sum = c.add<float>({512, 8}), a = c.addPermuted<float>({512, 1100}, {1, 0}), b = c.add<float>({1100, 8});
  c.results();
  int y = c.add<float>({512, 8});
  c.text("way", "padded");
  Rng r;
  for (int t : {sum, a, b})
    c.fillRandom(t, r);
  c.run();
  forIndex({512, 8}, [&](const Dims &i) {
    double s = c.el<float>(sum, i);
    for (int64_t k = 0; k < 1100; ++k)
      s += double(c.el<float>(a, {i[0], k})) * double(c.el<float>(b, {k, i[1]}));
    EXPECT_NEAR(c.el<float>(y, i), s, 1e-4);
  });
}

TEST(Matmul, WideTransposed) {
  check<float>({{300, 64}, {64, 2000}, {}, {1, 0}, {}}, 2);
  check<float>({{300, 64}, {64, 2000}, {1, 0}, {1, 0}, {}}, 2);
}

TEST(Matmul, Thin) {
  check<float>({{65, 130}, {130, 5}, {}, {}, {}}, 2);
  check<float>({{1, 130}, {130, 70}, {}, {}, {}}, 2);
  check<double>({{6, 13}, {13, 7}, {}, {}, {}}, 2);
}

TEST(Matmul, TallTransposed) { // rows of a that lie 2 KiB apart
  check<float>({{1536, 512}, {512, 40}, {1, 0}, {}, {}}, 2);
}

TEST(Matmul, Batches) {
  for (int threads : {1, 2}) {
    check<float>({{3, 20, 30}, {30, 40}, {}, {}, {}}, threads);        // merged
    check<float>({{3, 2, 20, 30}, {1, 30, 40}, {}, {}, {}}, threads);  // merged
    check<float>({{5, 1, 30}, {30, 40}, {}, {}, {}}, threads);         // merged, matrices of one row
    check<float>({{3, 20, 30}, {30, 40}, {1, 0, 2}, {}, {}}, threads); // not mergeable
    check<float>({{3, 20, 30}, {30, 40}, {1, 0, 2}, {}, {1, 0, 2}}, threads);
    check<float>({{2, 3, 20, 30}, {2, 3, 30, 20}, {0, 2, 1, 3}, {0, 2, 3, 1}, {0, 2, 1, 3}}, threads);
    check<float>({{2, 3, 20, 30}, {2, 1, 30, 20}, {}, {}, {}}, threads);
    check<float>({{20, 30}, {4, 30, 20}, {}, {}, {}}, threads);
    check<float>({{7, 100, 64}, {7, 64, 100}, {}, {0, 2, 1}, {}}, threads);
  }
}

TEST(Matmul, NeitherAxisContiguous) {
  check<float>({{3, 20, 30}, {3, 30, 40}, {1, 2, 0}, {2, 1, 0}, {2, 1, 0}}, 2);
  check<float>({{20, 30}, {30, 40}, {}, {}, {1, 0}}, 2);
}

TEST(Matmul, OtherElements) {
  check<double>({{3, 20, 30}, {30, 40}, {}, {1, 0}, {}}, 2);
  check<int64_t>({{20, 30}, {30, 40}, {1, 0}, {}, {}}, 2);
  check<int32_t>({{2, 20, 30}, {30, 40}, {}, {}, {}}, 2);
  check<Bf16>({{33, 70}, {70, 40}, {}, {1, 0}, {}}, 2);
  check<Bf16>({{2, 3, 20, 30}, {2, 1, 30, 20}, {}, {}, {}}, 2);
  check<Bf16>({{3, 20, 30}, {3, 30, 40}, {1, 2, 0}, {2, 1, 0}, {2, 1, 0}}, 2);
  check<F16>({{2, 33, 70}, {70, 40}, {}, {1, 0}, {1, 0, 2}}, 2);
}

TEST(Matmul, NativeBf16) {
  if (!AsIfNative::possible())
    GTEST_SKIP() << "oneDNN has no bf16 here";
  AsIfNative native;
  check<Bf16>({{33, 70}, {70, 40}, {}, {1, 0}, {}}, 2);
  check<Bf16>({{64, 512}, {512, 40}, {1, 0}, {}, {}}, 2);
  check<Bf16>({{2, 3, 20, 30}, {2, 1, 30, 20}, {}, {}, {}}, 2);
  check<Bf16>({{3, 20, 30}, {3, 30, 40}, {1, 2, 0}, {2, 1, 0}, {2, 1, 0}}, 2);
  check<Bf16>({{1, 70}, {70, 40}, {}, {}, {}}, 2);
  for (const Dims &aOrder : {Dims{0, 2, 1, 3}, Dims{0, 2, 3, 1}}) // heads of an attention
    check<Bf16>({{2, 3, 20, 30}, {2, 3, 30, 20}, aOrder, {0, 2, 1, 3}, {0, 2, 1, 3}}, 2);
  check<Bf16>({{2, 3, 20, 30}, {3, 30, 20}, {0, 2, 1, 3}, {1, 0, 2}, {}}, 2);
}

TEST(Matmul, NarrowRowsInBlocks) { // where f32 copies of a and y would take more than 8 MiB; the last block is shorter
  check<Bf16>({{391, 4}, {4, 6000}, {1, 0}, {}, {}}, 2);
}

TEST(Matmul, BroadcastRow) { // a row seen 20 times: stride 0 along the rows
  Call c("matmul");
  int a = c.add<float>({20, 30}, {0, 1}, 30), b = c.add<float>({30, 8});
  c.results();
  int y = c.add<float>({20, 8});
  Rng r;
  c.fillRandom(a, r);
  c.fillRandom(b, r);
  c.run();
  for (int64_t j = 0; j < 8; ++j) {
    double s = 0;
    for (int64_t k = 0; k < 30; ++k)
      s += double(c.el<float>(a, {0, k})) * double(c.el<float>(b, {k, j}));
    for (int64_t i = 0; i < 20; ++i)
      EXPECT_NEAR(c.el<float>(y, {i, j}), s, 1e-5);
  }
}

TEST(Matmul, RepeatedMatrices) { // 2 times 3 of them, all the same in both factors along the second axis
  if (!AsIfNative::possible())
    GTEST_SKIP() << "oneDNN has no bf16 here";
  AsIfNative native;
  Call c("matmul");
  int a = c.add<Bf16>({2, 3, 4, 5}, {20, 0, 5, 1}, 40), b = c.add<Bf16>({2, 3, 5, 6}, {30, 0, 6, 1}, 60);
  c.results();
  int y = c.add<Bf16>({2, 3, 4, 6}, {96, 24, 6, 1}, 192);
  Rng r;
  for (int t : {a, b})
    forIndex(c.dims(t), [&](const Dims &at) { c.el<Bf16>(t, at) = Bf16(float(r.unit())); });
  c.run();
  forIndex({2, 3, 4, 6}, [&](const Dims &i) {
    double s = 0;
    for (int64_t k = 0; k < 5; ++k)
      s += double(c.el<Bf16>(a, {i[0], 0, i[2], k})) * double(c.el<Bf16>(b, {i[0], 0, k, i[3]}));
    EXPECT_NEAR(double(c.el<Bf16>(y, i)), s, 0.02);
  });
}

/// A factor that `pack` has laid out, as it lies or transposed, gives the bits of one that lies in rows.
template <typename T> void checkPacked(int64_t m, int64_t k, int64_t n, bool isTransposed) {
  SCOPED_TRACE(std::to_string(m) + "x" + std::to_string(k) + "x" + std::to_string(n));
  const Dims dims{k, n}, order = isTransposed ? Dims{1, 0} : Dims{0, 1};
  Call plain("matmul"), packed("matmul"), pack("pack");
  for (Call *c : {&plain, &packed}) {
    c->add<T>({m, k});
    c->addPermuted<T>(dims, order);
    c->results();
    c->add<T>({m, n});
    c->text("way", "primitive");
  }
  auto packing = plain.packing();
  if (!packing) // of another implementation, or in another order
    return;
  pack.addPermuted<T>(dims, order);
  pack.results();
  pack.add<T>(dims, dense(dims), packedElements(dims, packing->layout));
  pack.text("layout", packing->layout.c_str());
  Rng r;
  plain.fillRandom<T>(0, r);
  plain.fillRandom<T>(1, r);
  memcpy(pack.data<T>(0), plain.data<T>(1), sizeof(T) * size_t(k * n));
  pack.run();
  packed.redefine<T>(1, dims, packedElements(dims, packing->layout));
  packed.text("packed", packing->layout.c_str());
  memcpy(packed.data<T>(0), plain.data<T>(0), sizeof(T) * size_t(m * k));
  memcpy(packed.data<T>(1), pack.data<T>(1), sizeof(T) * size_t(packedElements(dims, packing->layout)));
  plain.run();
  packed.run();
  EXPECT_EQ(memcmp(packed.data<T>(2), plain.data<T>(2), sizeof(T) * size_t(m * n)), 0);
}

TEST(Matmul, PackedFactors) {
  const int64_t shapes[][3] = {{20, 65, 260}, {20, 260, 65}, {1, 64, 64}, {7, 33, 17}, {64, 512, 96}, {200, 30, 48}};
  for (auto [m, k, n] : shapes)
    for (bool isTransposed : {false, true}) {
      checkPacked<float>(m, k, n, isTransposed);
      if (!AsIfNative::possible())
        continue;
      AsIfNative native;
      checkPacked<Bf16>(m, k, n, isTransposed);
    }
}

TEST(Matmul, ManyRowsArePackedByNobody) {
  Call c("matmul");
  c.add<float>({512, 64});
  c.add<float>({64, 96});
  c.results();
  c.add<float>({512, 96});
  c.text("way", "primitive");
  EXPECT_FALSE(c.packing());
}

// More matrices than a GPU's library takes at once.
TEST(Matmul, LargeBatchOnGpus) {
  OnEmulatedGpu gpu;
  check<float>({{70000, 2, 1}, {70000, 1, 2}, {}, {}, {}}, 1);
  check<Bf16>({{1, 2, 1}, {70000, 1, 2}, {}, {}, {}}, 1);
}

} // namespace

} // namespace kernel_test_matmul
