// Strides through view operators, and which reshapes of strides exist.
#include "ir/View.h"
#include "ir/Builder.h"
#include <gtest/gtest.h>

namespace view_test {

using namespace zcc;

namespace {
struct ViewTest : testing::Test {
  Module module;
  Function *f = module.addFunction("f");
  Builder b{*f, nullptr, makeLoc("node")};
  Value *x = f->addArg("x", Type(Elem::F32, {2, 3, 4}));

  /// A view must look into x with these numbers.
  void expectView(Value *v, int64_t offset, Dims strides) {
    auto view = viewOf(v);
    ASSERT_TRUE(view);
    EXPECT_EQ(view->base, x);
    EXPECT_EQ(view->offset, offset);
    EXPECT_EQ(view->dims, v->type.dims);
    EXPECT_EQ(view->strides, strides);
  }
};
} // namespace

TEST_F(ViewTest, WhatOwnsMemoryIsItsOwnView) {
  expectView(x, 0, {12, 4, 1});
  EXPECT_TRUE(viewOf(x)->isDense());
  Value *y = b.make(ops::copy, {x});
  EXPECT_EQ(viewOf(y)->base, y);
}

TEST_F(ViewTest, TransposeAndSlice) {
  Value *t = b.transpose(x, {2, 0, 1});
  expectView(t, 0, {1, 12, 4});
  expectView(b.slice(t, 0, 1, 4, 2), 1, {2, 12, 4});
  expectView(b.slice(x, 1, 2, -1, -1), 8, {12, -4, 1});
  EXPECT_FALSE(viewOf(t)->isDense());
}

TEST_F(ViewTest, BroadcastHasStrideZero) {
  Value *row = b.slice(x, 0, 1, 2);
  expectView(b.expand(row, {5, 3, 4}), 12, {0, 4, 1});
  expectView(b.expand(x, {7, 2, 3, 4}), 0, {0, 12, 4, 1});
}

TEST_F(ViewTest, ReshapeOfStrides) {
  expectView(b.reshape(x, {6, 4}), 0, {4, 1});
  Value *t = b.transpose(x, {1, 0, 2}); // strides 4, 12, 1
  expectView(b.reshape(t, {3, 2, 2, 2}), 0, {4, 12, 2, 1});
  EXPECT_FALSE(viewOf(b.reshape(t, {6, 4}))); // 3 and 2 do not step together
  EXPECT_FALSE(viewOf(b.reshape(b.reshape(t, {24}), {2, 12})));
}

TEST_F(ViewTest, AxesOfOneDoNotHideThatAViewIsDense) {
  Value *row = b.slice(x, 0, 0, 1); // [1, 3, 4]
  Value *t = b.transpose(row, {1, 2, 0});
  expectView(t, 0, {4, 1, 1});
  EXPECT_TRUE(viewOf(t)->isDense());
}

TEST(ReshapeStrides, SplitsAndMergesRuns) {
  EXPECT_EQ(reshapeStrides({4, 6}, {6, 1}, {24}), (Dims{1}));
  EXPECT_EQ(reshapeStrides({4, 6}, {12, 2}, {24}), (Dims{2}));
  EXPECT_EQ(reshapeStrides({4, 6}, {6, 1}, {2, 12}), (Dims{12, 1}));
  EXPECT_EQ(reshapeStrides({4, 6}, {8, 1}, {2, 2, 3, 2}), (Dims{16, 8, 2, 1}));
  EXPECT_EQ(reshapeStrides({4, 6}, {8, 1}, {2, 12}), std::nullopt);
  EXPECT_EQ(reshapeStrides({4, 6}, {8, 1}, {8, 3}), std::nullopt);
  EXPECT_EQ(reshapeStrides({6, 4}, {0, 1}, {2, 3, 4}), (Dims{0, 0, 1}));
  EXPECT_EQ(reshapeStrides({6, 4}, {0, 1}, {24}), std::nullopt);
  EXPECT_EQ(reshapeStrides({1, 4}, {7, 3}, {4, 1, 1}), (Dims{3, 1, 1}));
  EXPECT_EQ(reshapeStrides({}, {}, {1, 1}), (Dims{1, 1}));
  EXPECT_EQ(reshapeStrides({0, 3}, {3, 1}, {3, 0}), (Dims{0, 1}));
}

} // namespace view_test
