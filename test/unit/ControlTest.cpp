// Gradients through scan and cond against central finite differences, before and after the passes that follow.
#include "ir/Interpreter.h"
#include "ir/Text.h"
#include "passes/Pass.h"
#include <gtest/gtest.h>
#include <random>

namespace control_test {

using namespace zcc;

namespace {
struct Case {
  const char *name, *text;
};
} // namespace

// Each @micro takes nothing; params are trained, states are data.
static const Case kCases[] = {
    {"a recurrent net: products of stacked rows, carried and stacked results", R"(module @m {
  param %w : f32[3x3] = zero {trained}
  param %b : f32[3] = zero {trained}
  param %h0 : f32[2x3] = zero {trained}
  param %xs : f32[4x2x3] = zero {trained}
  body @rnn(%h : f32[2x3], %x : f32[2x3], %ww : f32[3x3], %bb : f32[3]) -> (f32[2x3], f32[2x3]) {
    %t = transpose %ww {perm = [1, 0]} : f32[3x3]
    %m = matmul %h, %t : f32[2x3]
    %a = add %m, %x : f32[2x3]
    %s = add %a, %bb : f32[2x3]
    %n = tanh %s : f32[2x3]
    %q = mul %n, %h : f32[2x3]
    return %n, %q
  }
  func @micro() -> (f32[]) {
    %last, %all = scan %h0, %xs, %w, %b {body = "rnn", carried = 1, scanned = 1, reverse = 1} : f32[2x3], f32[4x2x3]
    %p = mul %all, %last : f32[4x2x3]
    %r = reduce_sum %p {axes = [0, 1, 2]} : f32[1x1x1]
    %l = reshape %r {dims = []} : f32[]
    return %l
  }
})"},
    {"a loop without slices that exchanges what it carries", R"(module @m {
  param %a0 : f32[3] = zero {trained}
  param %b0 : f32[3] = zero {trained}
  param %w : f32[3] = zero {trained}
  body @turn(%a : f32[3], %b : f32[3], %k : i64[], %ww : f32[3]) -> (f32[3], f32[3], i64[]) {
    %one = constant {dims = [], elem = "i64", value = [1]} : i64[]
    %n = add %k, %one : i64[]
    %f = cast %n {to = "f32"} : f32[]
    %e = exp %ww : f32[3]
    %p = mul %a, %e : f32[3]
    %q = mul %p, %f : f32[3]
    return %b, %q, %n
  }
  func @micro() -> (f32[]) {
    %zero = constant {dims = [], elem = "i64", value = [0]} : i64[]
    %a, %b, %k = scan %a0, %b0, %zero, %w {body = "turn", carried = 3, trips = 5} : f32[3], f32[3], i64[]
    %p = mul %a, %b : f32[3]
    %r = reduce_sum %p {axes = [0]} : f32[1]
    %l = reshape %r {dims = []} : f32[]
    return %l
  }
})"},
    {"a cond in a scan", R"(module @m {
  param %h0 : f32[3] = zero {trained}
  param %w : f32[3] = zero {trained}
  param %v : f32[3] = zero {trained}
  body @even(%h : f32[3], %ww : f32[3], %vv : f32[3]) -> (f32[3], f32[3]) {
    %p = mul %h, %ww : f32[3]
    %s = sin %p : f32[3]
    return %s, %h
  }
  body @odd(%h : f32[3], %ww : f32[3], %vv : f32[3]) -> (f32[3], f32[3]) {
    %p = mul %h, %vv : f32[3]
    return %h, %p
  }
  body @step(%h : f32[3], %even : bool[], %ww : f32[3], %vv : f32[3]) -> (f32[3]) {
    %a, %b = cond %even, %h, %ww, %vv {then = "even", else = "odd"} : f32[3], f32[3]
    %n = add %a, %b : f32[3]
    return %n
  }
  func @micro() -> (f32[]) {
    %even = constant {dims = [4], elem = "bool", value = [1, 0, 0, 1]} : bool[4]
    %h = scan %h0, %even, %w, %v {body = "step", carried = 1, scanned = 1} : f32[3]
    %q = mul %h, %h : f32[3]
    %r = reduce_sum %q {axes = [0]} : f32[1]
    %l = reshape %r {dims = []} : f32[]
    return %l
  }
})"},
    {"a scan in a scan", R"(module @m {
  param %h0 : f32[2x3] = zero {trained}
  param %w : f32[3x3] = zero {trained}
  param %xs : f32[3x2x2x3] = zero {trained}
  body @inner(%h : f32[2x3], %x : f32[2x3], %g : f32[2x3], %ww : f32[3x3]) -> (f32[2x3], f32[2x3]) {
    %m = matmul %h, %ww : f32[2x3]
    %a = add %m, %x : f32[2x3]
    %n = tanh %a : f32[2x3]
    %y = mul %n, %g : f32[2x3]
    return %n, %y
  }
  body @outer(%h : f32[2x3], %x : f32[2x2x3], %ww : f32[3x3]) -> (f32[2x3], f32[2x2x3]) {
    %n, %ys = scan %h, %x, %h, %ww {body = "inner", carried = 1, scanned = 1} : f32[2x3], f32[2x2x3]
    return %n, %ys
  }
  func @micro() -> (f32[]) {
    %h, %ys = scan %h0, %xs, %w {body = "outer", carried = 1, scanned = 1} : f32[2x3], f32[3x2x2x3]
    %p = mul %ys, %h : f32[3x2x2x3]
    %r = reduce_sum %p {axes = [0, 1, 2, 3]} : f32[1x1x1x1]
    %l = reshape %r {dims = []} : f32[]
    return %l
  }
})"},
    {"a recurrent net of which most can leave the scan", R"(module @m {
  param %h0 : f32[2x3] = zero {trained}
  param %xs : f32[4x2x3] = zero {trained}
  param %table : f32[5x3] = zero {trained}
  param %w : f32[3x3] = zero {trained}
  param %u : f32[3x3] = zero {trained}
  param %v : f32[3x4] = zero {trained}
  param %b : f32[3] = zero {trained}
  body @cell(%h : f32[2x3], %i : i64[2], %x : f32[2x3], %tt : f32[5x3], %ww : f32[3x3], %uu : f32[3x3], %vv : f32[3x4], %bb : f32[3]) -> (f32[2x3], f32[4x2], f32[2x3]) {
    %e = gather %tt, %i : f32[2x3]
    %a = add %e, %x : f32[2x3]
    %f = exp %ww : f32[3x3]
    %p = matmul %a, %f : f32[2x3]
    %c = add %p, %bb : f32[2x3]
    %m = matmul %h, %uu : f32[2x3]
    %d = add %m, %bb : f32[2x3]
    %s = add %d, %c : f32[2x3]
    %n = tanh %s : f32[2x3]
    %g = mul %n, %a : f32[2x3]
    %q = matmul %g, %vv : f32[2x4]
    %y = mul %q, %q : f32[2x4]
    %t = transpose %y {perm = [1, 0]} : f32[4x2]
    return %n, %t, %c
  }
  func @micro() -> (f32[]) {
    %is = constant {dims = [4, 2], elem = "i64", value = [0, 1, 4, 2, 2, 1, 0, 0]} : i64[4x2]
    %h, %ys, %cs = scan %h0, %is, %xs, %table, %w, %u, %v, %b {body = "cell", carried = 1, scanned = 2, reverse = 1} : f32[2x3], f32[4x4x2], f32[4x2x3]
    %q = mul %cs, %h : f32[4x2x3]
    %r = reduce_sum %q {axes = [0, 1, 2]} : f32[1x1x1]
    %k = reduce_sum %ys {axes = [0, 1, 2]} : f32[1x1x1]
    %z = add %r, %k : f32[1x1x1]
    %l = reshape %z {dims = []} : f32[]
    return %l
  }
})"},
};

static Memory drawn(const Module &m, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> uniform(-1, 1);
  Memory memory;
  for (auto &g : m.globals)
    if (g->trained) {
      Tensor t(g->type);
      for (double &x : t.f)
        x = uniform(random);
      memory[g.get()] = t;
    }
  return memory;
}

static double lossOf(Module &m, Memory &memory) {
  auto out = runFunction(*m.function("micro"), {}, memory, Compute::F64);
  if (!out) {
    ADD_FAILURE() << llvm::toString(out.takeError());
    return 0;
  }
  return (*out)[0].f[0];
}

static void checkGradients(Module &m, const char *name) {
  Memory memory = drawn(m, 1);
  for (auto &g : m.globals) {
    if (!g->trained)
      continue;
    GlobalValue *state = m.global(g->name + ".grad");
    ASSERT_TRUE(state) << name << ": " << g->name;
    lossOf(m, memory); // sets the gradients
    std::vector<double> got = memory[state].f;
    constexpr double kStep = 1e-5, kTolerance = 1e-8;
    for (int64_t i = 0; i < g->type.count(); ++i) {
      double &x = memory[g.get()].f[i], at = x;
      x = at + kStep;
      double above = lossOf(m, memory);
      x = at - kStep;
      double below = lossOf(m, memory);
      x = at;
      double expected = (above - below) / (2 * kStep);
      EXPECT_NEAR(got[i], expected, kTolerance * std::max(1.0, std::abs(expected)))
          << name << ": element " << i << " of " << g->name;
    }
  }
}

static void run(Module &m, const char *pass, const char *name) {
  Options options;
  PassContext ctx{options};
  auto changed = findPass(pass)->run(m, ctx);
  ASSERT_TRUE(bool(changed)) << name << ": " << pass << ": " << llvm::toString(changed.takeError());
}

static void checkThroughPasses(const Case &c, std::initializer_list<const char *> first) {
  auto m = parse(c.text);
  ASSERT_TRUE(bool(m)) << llvm::toString(m.takeError());
  for (const char *pass : first)
    run(**m, pass, c.name);
  for (const char *pass : {"differentiate", "fold-constants", "simplify", "eliminate-dead", "expand-composites", "sink-casts",
                           "globalize-constants", "legalize-operands", "fuse"}) {
    run(**m, pass, c.name);
    checkGradients(**m, c.name);
  }
}

TEST(Control, GradientsMatchFiniteDifferences) {
  for (const Case &c : kCases) {
    checkThroughPasses(c, {});
    checkThroughPasses(c, {"thin-scans", "eliminate-dead"});
  }
}

} // namespace control_test
