// The loops of a group that grows, beside those found anew.
#include "passes/fuse/KernelShape.h"
#include "ir/Text.h"
#include <gtest/gtest.h>

namespace kernel_shape_test {

using namespace zcc;
using llvm::ArrayRef;

static bool areEqual(const KernelShape &a, const KernelShape &b) {
  if (a.form != b.form || a.dims != b.dims || a.reduced != b.reduced || a.hasColumns != b.hasColumns ||
      a.extents.size() != b.extents.size())
    return false;
  return llvm::all_of(a.extents, [&](auto &e) {
    auto f = b.extents.find(e.first);
    return f != b.extents.end() && f->second == e.second && a.phases.lookup(e.first) == b.phases.lookup(e.first);
  });
}

/// Cuts the nodes of @f in two wherever both parts have loops, adds the second to the first, and the first to the second; how
/// often that was seen at once.
static unsigned extendsAlike(const char *text) {
  auto m = parse(std::string("module @m {\n") + text + "}\n", "test");
  EXPECT_TRUE(bool(m)) << llvm::toString(m.takeError());
  std::vector<Node *> all;
  for (auto &n : (*m)->function("f")->nodes)
    all.push_back(n.get());
  const auto whole = kernelShape(all);
  unsigned seen = 0;
  for (size_t cut = 1; cut < all.size(); ++cut) {
    ArrayRef<Node *> first = ArrayRef(all).take_front(cut), second = ArrayRef(all).drop_front(cut);
    for (bool isBehind : {true, false}) {
      auto shape = kernelShape(isBehind ? first : second);
      if (!shape)
        continue;
      const KernelShape before = *shape;
      if (isBehind ? extend(*shape, second) : extend(*shape, first, second)) {
        ++seen;
        EXPECT_TRUE(whole && areEqual(*shape, *whole)) << text << cut << isBehind;
        withdraw(*shape, isBehind ? second : first);
      }
      EXPECT_TRUE(areEqual(*shape, before)) << text << cut << isBehind;
    }
  }
  return seen;
}

TEST(KernelShape, GrowsIntoWhatWouldBeFoundAnew) {
  EXPECT_EQ(
      extendsAlike("func @f(%x : f32[8x32], %y : f32[32]) -> (f32[8x32]) {\n"
                   "  %a = add %x, %y : f32[8x32]\n  %b = exp %a : f32[8x32]\n  %c = mul %b, %x : f32[8x32]\n  return %c\n}\n"),
      4u);
  // A row's sum, what follows from it once a row, and again for each element.
  EXPECT_EQ(extendsAlike("func @f(%x : f32[8x32], %y : f32[8x32]) -> (f32[8x1]) {\n"
                         "  %a = mul %x, %y : f32[8x32]\n  %s = reduce_sum %a {axes = [1]} : f32[8x1]\n  %e = exp %s : f32[8x1]\n"
                         "  %c = mul %y, %e : f32[8x32]\n  %t = reduce_sum %c {axes = [1]} : f32[8x1]\n  return %t\n}\n"),
            4u);
  // Through a reshape, and sums over columns.
  EXPECT_EQ(
      extendsAlike("func @f(%x : f32[1x8x32]) -> (f32[1x32]) {\n"
                   "  %a = exp %x : f32[1x8x32]\n  %r = reshape %a {dims = [8, 32]} : f32[8x32]\n  %b = neg %r : f32[8x32]\n"
                   "  %s = reduce_sum %b {axes = [0]} : f32[1x32]\n  return %s\n}\n"),
      3u);
  // Axes that cross, and another extent: there are no loops for all.
  EXPECT_EQ(extendsAlike("func @f(%x : f32[6x4], %y : f32[7]) -> (f32[4x6], f32[7]) {\n"
                         "  %a = exp %x : f32[6x4]\n  %r = reshape %a {dims = [4, 6]} : f32[4x6]\n  %b = neg %r : f32[4x6]\n"
                         "  %c = exp %y : f32[7]\n  return %b, %c\n}\n"),
            0u);
}

} // namespace kernel_shape_test
