// The loops that are planned for kernels of each form, as data.
#include "codegen/LoopPlan.h"
#include "ir/Text.h"
#include "ir/View.h"
#include "gtest/gtest.h"

namespace loop_plan_test {

using namespace zcc;

namespace {

/// The plan of the kernel @k of a module, whose operands lie at `strides`, or densely.
std::string planOf(const std::string &kernel, std::vector<Dims> strides = {}, int threads = 2) {
  auto m = parse("module @test {\n" + kernel + "}\n");
  if (!m)
    return llvm::toString(m.takeError());
  const Function *k = (*m)->function("k");
  for (size_t i = strides.size(); i < k->args.size(); ++i)
    strides.push_back(denseStrides(k->args[i]->type.dims));
  return describe(planLoops(*k, strides, threads));
}

const char *const kAdd = R"(
  kernel @k(%a : f32[8x10x600], %b : f32[600]) -> (f32[8x10x600]) {
    %v = add %a, %b : f32[8x10x600]
    return %v
  }
)";

/// Axes that all operands step through together are one; large loops have threads.
TEST(LoopPlan, Elementwise) {
  EXPECT_EQ(planOf(kAdd), R"(elementwise: i0 < 80 i1 < 600, threads 2
a0: 600 1
a1: 0 1
r0: 600 1
pass: store r0;
)");
  EXPECT_EQ(planOf(R"(
  kernel @k(%a : f32[20x1000]) -> (f32[20x1000]) {
    %v = exp %a : f32[20x1000]
    return %v
  }
)"),
            R"(elementwise: i0 < 20000, threads 2, chunk 4096
a0: 1
r0: 1
pass: store r0;
)");
}

/// An operand that is contiguous along another axis is read in tiles.
TEST(LoopPlan, Tiles) {
  EXPECT_EQ(planOf(kAdd, {{10, 1, 80}}), R"(tiled: i0 < 80 i1 < 600, threads 2, tile 32
a0: 1 80
a1: 0 1
r0: 600 1
pass: store r0;
)");
}

/// Softmax: what is dear and needed again is kept, and what a later pass needs of the whole row comes before it.
TEST(LoopPlan, Rows) {
  EXPECT_EQ(planOf(R"(
  kernel @k(%a : f32[100x600], %f : f32[1]) -> (f32[100x600], f32[100x1]) {
    %max = reduce_max %a {axes = [1]} : f32[100x1]
    %top = mul %max, %f : f32[100x1]
    %x = sub %a, %top : f32[100x600]
    %e = exp %x : f32[100x600]
    %sum = reduce_sum %e {axes = [1]} : f32[100x1]
    %y = div %e, %sum : f32[100x600]
    return %y, %sum
  }
)"),
            R"(rows: i0 < 100 i1 < 600 reduced, threads 2, lanes 64
a0: 600 1
a1: 0 0
r0: 600 1
r1: 1 0
pass: sum %max;
pass: before %top; sum %sum; keep %e;
pass: store r0;
)");
}

/// Strips of columns, wide enough for all threads; rows are summed in blocks.
TEST(LoopPlan, Columns) {
  EXPECT_EQ(planOf(R"(
  kernel @k(%a : f32[600x100]) -> (f32[600x100], f32[1x100]) {
    %e = exp %a : f32[600x100]
    %sum = reduce_sum %e {axes = [0]} : f32[1x100]
    return %e, %sum
  }
)"),
            R"(columns: i0 < 600 reduced i1 < 100, threads 2, strip 32, block 64
a0: 100 1
r0: 100 1
r1: 0 1
pass: sum %sum; store r0;
)");
}

// Many rows: threads share blocks of them.
TEST(LoopPlan, BlocksOfRows) {
  EXPECT_EQ(planOf(R"(
  kernel @k(%a : f32[6x400x100]) -> (f32[6x400x100], f32[1x1x100]) {
    %e = exp %a : f32[6x400x100]
    %sum = reduce_sum %e {axes = [0, 1]} : f32[1x1x100]
    return %e, %sum
  }
)"),
            R"(columns: i0 < 2400 reduced i1 < 100, threads 2, strip 32, block 64, units 38
a0: 100 1
r0: 100 1
r1: 0 1
pass: sum %sum; store r0;
)");
}

/// Rows and sums over them: what follows from these comes after the last row.
TEST(LoopPlan, RowsAndSumsOverThem) {
  EXPECT_EQ(planOf(R"(
  kernel @k(%a : f32[400x100], %b : f32[100]) -> (f32[400x100], f32[1x100]) {
    %s = reduce_sum %a {axes = [1]} : f32[400x1]
    %d = sub %a, %s : f32[400x100]
    %e = exp %d : f32[400x100]
    %c = reduce_sum %e {axes = [0]} : f32[1x100]
    %r = sub %c, %b : f32[1x100]
    return %e, %r
  }
)"),
            R"(rows: i0 < 400 i1 < 100 reduced, threads 2, lanes 64, strip 32, block 64, units 7
a0: 100 1
a1: 0 1
r0: 100 1
r1: 0 1
pass: sum %s;
pass: sum over rows %c; store r0;
)");
}

/// The value that a plan looks at before it computes a row, or "".
std::string guardOf(const std::string &body) {
  const std::string plan = planOf("  kernel @k(%a : f32[400x100], %is : bool[400x1]) -> " + body + "  }\n"), word = "where ";
  const size_t at = plan.find(word);
  return at == std::string::npos ? "" : plan.substr(at + word.size(), plan.find(' ', at + word.size()) - at - word.size());
}

const std::string kZero = "    %zero = constant {dims = [], value = [0.0]} : f32[]\n";

/// Where a row's condition does not hold, and all that is stored there or added over rows is zero, nothing else is computed.
TEST(LoopPlan, GuardsOfRows) {
  const std::string row = "(f32[400x1], f32[400x100]) {\n" + kZero + R"(    %s = reduce_sum %a {axes = [1]} : f32[400x1]
    %d = sub %a, %s : f32[400x100]
)";
  EXPECT_EQ(guardOf(row + R"(
    %r = select %is, %s, %zero : f32[400x1]
    %o = select %is, %d, %zero : f32[400x100]
    return %r, %o
)"),
            "%is");
  // One is something else; the condition needs the row.
  EXPECT_EQ(guardOf(row + R"(
    %o = select %is, %d, %zero : f32[400x100]
    return %s, %o
)"),
            "");
  EXPECT_EQ(guardOf(row + R"(
    %le = le %s, %zero : bool[400x1]
    %r = select %le, %s, %zero : f32[400x1]
    %o = select %le, %d, %zero : f32[400x100]
    return %r, %o
)"),
            "");
}

/// One condition along two axes of the domain: what is zero in one result may not be in the other.
TEST(LoopPlan, NoGuardLiesTwoWays) {
  const std::string plan = planOf(R"(  kernel @k(%a : f32[400x400], %is : bool[400]) -> (f32[400], f32[400x400]) {
    %zero = constant {dims = [], value = [0.0]} : f32[]
    %e = exp %a : f32[400x400]
    %s = reduce_sum %e {axes = [1]} : f32[400x1]
    %t = reshape %s {dims = [400]} : f32[400]
    %r = select %is, %t, %zero : f32[400]
    %o = select %is, %e, %zero : f32[400x400]
    return %r, %o
  }
)");
  EXPECT_EQ(plan.find("where "), std::string::npos) << plan;
}

TEST(LoopPlan, GuardsOfStrips) {
  auto strips = [](const std::string &values) {
    return guardOf("(f32[400x100], f32[1x100]) {\n" + kZero + "    %e = exp %a : f32[400x100]\n" + values + R"(
    %c = reduce_sum %h {axes = [0]} : f32[1x100]
    return %o, %c
)");
  };
  EXPECT_EQ(strips(R"(
    %o = select %is, %e, %zero : f32[400x100]
    %b = cast %o {to = "bf16"} : bf16[400x100]
    %h = cast %b {to = "f32"} : f32[400x100]
)"),
            "%is");
  // Something else is added, or stored; what is stored is not zero; the condition is an element's.
  EXPECT_EQ(strips(R"(
    %o = select %is, %e, %zero : f32[400x100]
    %h = add %e, %a : f32[400x100]
)"),
            "");
  EXPECT_EQ(strips(R"(
    %h = select %is, %e, %zero : f32[400x100]
    %o = add %e, %a : f32[400x100]
)"),
            "");
  EXPECT_EQ(strips(R"(
    %one = constant {dims = [], value = [1.0]} : f32[]
    %o = select %is, %e, %one : f32[400x100]
    %h = select %is, %e, %zero : f32[400x100]
)"),
            "");
  EXPECT_EQ(strips(R"(
    %le = le %a, %zero : bool[400x100]
    %h = select %le, %e, %zero : f32[400x100]
    %o = select %le, %a, %zero : f32[400x100]
)"),
            "");
}

// Of a GPU: blocks share the sums of few long columns and rows, of whichever axes; others have a block each.
TEST(LoopPlan, Grids) {
  auto planOfSum = [](const std::string &from, const std::string &axes, const std::string &to) {
    return planOf("kernel @k(%a : " + from + ") -> (" + to + ") {\n %s = reduce_sum %a {axes = [" + axes + "]} : " + to +
                      "\n return %s\n}\n",
                  {}, kGrid);
  };
  auto has = [](const std::string &plan, const std::string &what) { return plan.find(what) != std::string::npos; };
  EXPECT_TRUE(has(planOfSum("f32[600x100]", "0", "f32[1x100]"), "chunk 128, units 5"));
  const char *const apart =
      "kernel @k(%a : f32[600x520x2]) -> (f32[1x520x2]) {\n %s = reduce_sum %a {axes = [0]} : f32[1x520x2]\n"
      " return %s\n}\n";
  EXPECT_TRUE(has(planOf(apart, {}, kGrid), "units 5"));
  EXPECT_TRUE(has(planOf(apart, {{1040, 1, 520}}, kGrid), "units 5")); // the same order, however the columns lie
  EXPECT_FALSE(has(planOfSum("f32[600x20000]", "0", "f32[1x20000]"), "units"));
  EXPECT_FALSE(has(planOfSum("f32[512x100]", "0", "f32[1x100]"), "units"));
  EXPECT_TRUE(has(planOfSum("f32[2x3x20000]", "0, 2", "f32[1x3x1]"), "chunk 8192, units 5"));
  EXPECT_FALSE(has(planOfSum("f32[512x40000]", "1", "f32[512x1]"), "units"));
  EXPECT_TRUE(has(planOfSum("f32[40000]", "0", "f32[1]"), "chunk 16384, units 3"));
}

TEST(LoopPlan, Total) {
  EXPECT_EQ(planOf(R"(
  kernel @k(%a : f32[40000]) -> (f32[1]) {
    %sum = reduce_sum %a {axes = [0]} : f32[1]
    return %sum
  }
)",
                   {}, 1),
            R"(total: i0 < 40000 reduced, threads 1, lanes 64, chunk 16384, units 3
a0: 1
r0: 0
pass: sum %sum;
)");
}

/// Axes that do not merge are summed in the order of one axis: of rows of 50 elements the second begins at lane 50.
TEST(LoopPlan, AxesThatDoNotMerge) {
  EXPECT_EQ(planOf(R"(
  kernel @k(%a : f32[30x20x50]) -> (f32[30x1x1]) {
    %sum = reduce_sum %a {axes = [1, 2]} : f32[30x1x1]
    return %sum
  }
)",
                   {{1100, 55, 1}}),
            R"(rows: i0 < 30 i1 < 20 reduced i2 < 50 reduced, threads 2, turning lanes 64
a0: 1100 55 1
r0: 1 0 0
pass: sum %sum;
pass:
)");
}

} // namespace

} // namespace loop_plan_test
