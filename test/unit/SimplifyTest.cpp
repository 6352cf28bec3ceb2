// simplify must not change what a function computes: random graphs and random spellings of attention, run before and after.
#include "ir/Builder.h"
#include "ir/Interpreter.h"
#include "ir/Text.h"
#include "ir/Verifier.h"
#include "passes/Pass.h"
#include <gtest/gtest.h>
#include <random>

namespace simplify_test {

using namespace zcc;

namespace {
/// Builds a random function of two inputs.
class Graph {
public:
  explicit Graph(unsigned seed) : random(seed), fn(*module.addFunction("micro")), b(fn, nullptr, makeLoc("node")) {}

  void grow(int nodes);
  Value *attention();

  Module module;
  std::mt19937 random;
  Function &fn;
  Builder b;

  int pick(int n) { return int(random() % unsigned(n)); }
  Value *any() { return values[values.size() - 1 - pick(std::min<int>(values.size(), 6))]; }
  Value *splat(Elem e = Elem::F32) {
    static const double numbers[] = {0, 1, 2, 0.5, 3, -1};
    return b.scalar(numbers[pick(6)], e);
  }
  Value *unary(Value *x);
  Value *binary(Value *x);
  Value *view(Value *x);
  Value *row(Value *x);

  std::vector<Value *> values;
};
} // namespace

Value *Graph::unary(Value *x) {
  static const OpDef *const plain[] = {&ops::neg, &ops::tanh, &ops::sigmoid, &ops::relu, &ops::abs};
  switch (pick(4)) {
  case 0: // keeps it positive
    return b.make(pick(2) ? ops::sqrt : ops::log1p, {b.make(ops::abs, {x})});
  case 1:
    return b.make(ops::mul, {x, b.make(ops::sigmoid, {x})});
  case 2:
    return b.expr("0.5 * x * (1 + erf(x * 0.70710678118654752))", {{"x", x}});
  default:
    return b.make(*plain[pick(5)], {x});
  }
}

Value *Graph::binary(Value *x) {
  static const OpDef *const all[] = {&ops::add, &ops::sub, &ops::mul, &ops::max};
  Value *y = any();
  if (pick(3) == 0 || !broadcastDims(x->type.dims, y->type.dims))
    y = splat();
  switch (pick(5)) {
  case 0:
    return b.make(ops::pow, {b.make(ops::abs, {x}), b.scalar(pick(4), Elem::F32)});
  case 1:
    return b.make(ops::div, {x, b.scalar(1 << pick(3), Elem::F32)});
  case 2: {
    Value *c = pick(2) ? b.make(ops::gt, {x, y}) : b.splat(pick(2), Type(Elem::Bool, {}));
    return b.make(ops::select, {pick(2) ? b.make(ops::not_, {c}) : c, x, y});
  }
  default:
    return b.make(*all[pick(4)], {pick(2) ? x : y, pick(2) ? y : x});
  }
}

Value *Graph::view(Value *x) {
  Dims d = x->type.dims;
  int n = int(d.size()), axis = n ? pick(n) : 0;
  switch (pick(6)) {
  case 0: {
    std::vector<int64_t> perm(n);
    for (int i = 0; i < n; ++i)
      perm[i] = i;
    std::shuffle(perm.begin(), perm.end(), random);
    return b.make(ops::transpose, {x}, {{"perm", perm}});
  }
  case 1: {
    int64_t count = x->type.count(), rows = count % 2 == 0 && pick(2) ? 2 : 1;
    return b.make(ops::reshape, {x}, {{"dims", std::vector<int64_t>{rows, count / rows}}});
  }
  case 2:
    d.insert(d.begin(), 1 + pick(2));
    return x->type.count() < 200
               ? b.make(ops::broadcast, {x},
                        {{"dims", d.size() ? std::vector<int64_t>(d.begin(), d.end()) : std::vector<int64_t>{}}})
               : x;
  case 3:
    return n && d[axis] > 1 ? b.slice(x, axis, pick(2), d[axis], 1 + pick(2)) : x;
  case 4: {
    std::vector<int64_t> lo(n), hi(n);
    if (n && x->type.count() < 200)
      lo[axis] = pick(2), hi[axis] = pick(2);
    return b.make(ops::pad, {x}, {{"lo", lo}, {"hi", hi}});
  }
  default:
    return n && x->type.count() < 200 ? b.make(ops::concat, {x, x}, {{"axis", int64_t(axis)}}) : x;
  }
}

Value *Graph::row(Value *x) {
  int n = int(x->type.ndim());
  if (n == 0)
    return x;
  int64_t axis = n - 1, extent = x->type.dims[axis];
  switch (pick(4)) {
  case 0:
    return b.reduceSum(x, {axis});
  case 1:
    return b.make(ops::softmax, {x}, {{"axis", axis}});
  case 2: {
    Value *mean = b.make(ops::div, {b.reduceSum(b.make(ops::mul, {x, x}), {axis}), b.scalar(extent, Elem::F32)});
    return b.expr("x / sqrt(m + 0.00001)", {{"x", x}, {"m", mean}});
  }
  default: {
    Value *w = b.splat(0.25, Type(Elem::F32, {extent, 3}));
    return n >= 2 ? b.make(ops::matmul, {x, w}) : x;
  }
  }
}

void Graph::grow(int nodes) {
  values = {fn.addArg("x", Type(Elem::F32, {2, 3, 4})), fn.addArg("y", Type(Elem::F32, {3, 4}))};
  for (int i = 0; i < nodes; ++i) {
    Value *x = any();
    switch (pick(4)) {
    case 0:
      x = unary(x);
      break;
    case 1:
      x = binary(x);
      break;
    case 2:
      x = view(x);
      break;
    default:
      x = row(x);
      break;
    }
    values.push_back(x);
  }
  for (Value *v : values)
    if (!v->hasUses() && !llvm::is_contained(fn.results, v))
      fn.results.push_back(v);
}

/// softmax(q k^T * scale + mask) v in a random spelling.
Value *Graph::attention() {
  int64_t heads = 4, group = pick(2) ? 2 : 1, s = 3, t = 3 + pick(2), d = 4;
  Value *q = fn.addArg("q", Type(Elem::F32, {2, heads, s, d}));
  Value *k = fn.addArg("k", Type(Elem::F32, {2, heads / group, t, d}));
  Value *v = fn.addArg("v", Type(Elem::F32, {2, heads / group, t, d}));
  auto repeat = [&](Value *x) {
    if (group == 1)
      return x;
    Value *one = b.reshape(x, {2, heads / group, 1, t, d});
    return b.reshape(b.expand(one, {2, heads / group, group, t, d}), {2, heads, t, d});
  };
  k = repeat(k), v = repeat(v);
  Value *kt = pick(2) ? b.swapLast(k) : b.reshape(b.swapLast(b.reshape(k, {2 * heads, t, d})), {2, heads, d, t});
  Value *half = b.scalar(0.5, Elem::F32);
  int scaling = pick(4);
  if (scaling == 0)
    q = b.make(ops::mul, {q, half}), kt = b.make(ops::mul, {kt, half});
  Value *x = b.make(ops::matmul, {q, kt});
  if (scaling == 1)
    x = b.make(ops::mul, {half, x});
  if (scaling == 2)
    x = b.make(ops::div, {x, b.scalar(3, Elem::F32)});
  Value *i = b.make(ops::iota, {}, {{"dims", std::vector<int64_t>{s, 1}}, {"axis", int64_t(0)}, {"elem", "i64"}});
  Value *j = b.make(ops::iota, {}, {{"dims", std::vector<int64_t>{1, t}}, {"axis", int64_t(1)}, {"elem", "i64"}});
  Value *last = b.make(ops::add, {i, b.scalar(t - s, Elem::I64)});
  Value *keep = b.make(ops::le, {j, pick(2) ? last : i});
  Value *given = b.make(ops::gt, {fn.addArg("m", Type(Elem::F32, {2, 1, 1, t})), b.scalar(0, Elem::F32)});
  bool finite = pick(2);
  if (finite) // a row that is masked everywhere is then an average, which rounding decides
    given = b.make(ops::or_, {given, b.make(ops::eq, {j, b.scalar(0, Elem::I64)})});
  Value *zero = b.scalar(0, Elem::F32);
  Value *low = b.scalar(finite ? -3.4028234663852886e38 : -INFINITY, Elem::F32);
  switch (pick(5)) {
  case 0:
    x = b.make(ops::add, {x, b.make(ops::select, {keep, zero, low})});
    break;
  case 1:
    x = b.make(ops::select, {keep, x, low});
    break;
  case 2:
    x = b.make(ops::select, {b.make(ops::not_, {given}), low, x});
    break;
  case 3:
    x = b.make(ops::add, {b.make(ops::select, {b.make(ops::and_, {keep, given}), zero, low}), x});
    break;
  default:
    break;
  }
  Value *p = b.make(ops::softmax, {x}, {{"axis", int64_t(3)}});
  p = b.make(ops::select, {b.make(ops::isnan, {p}), zero, p});
  return b.make(ops::matmul, {p, v});
}

static std::vector<Tensor> inputsFor(Function &f, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  std::vector<Tensor> in;
  for (auto &a : f.args) {
    in.emplace_back(a->type);
    for (double &x : in.back().f)
      x = normal(random);
  }
  return in;
}

/// Runs `m` before and after simplify on the same inputs.
static void expectSame(Module &m, unsigned seed) {
  std::unique_ptr<Module> before = m.clone();
  Options o;
  PassContext c{o};
  auto changed = simplify(m, c);
  ASSERT_TRUE(bool(changed)) << llvm::toString(changed.takeError());
  if (llvm::Error e = verify(m))
    FAIL() << llvm::toString(std::move(e)) << "\n" << toText(*before) << toText(m);
  Function &f = *before->function("micro"), &g = *m.function("micro");
  std::vector<Tensor> in = inputsFor(f, seed);
  Memory m1, m2;
  auto want = llvm::cantFail(runFunction(f, in, m1, Compute::F64));
  auto got = llvm::cantFail(runFunction(g, in, m2, Compute::F64));
  ASSERT_EQ(want.size(), got.size());
  for (size_t r = 0; r < want.size(); ++r) {
    ASSERT_TRUE(want[r].type == got[r].type);
    for (size_t e = 0; e < want[r].f.size(); ++e) {
      double a = want[r].f[e], d = got[r].f[e];
      bool same = a == d || (std::isnan(a) && std::isnan(d)) || std::abs(a - d) <= 1e-6 * (1 + std::abs(a));
      ASSERT_TRUE(same) << "result " << r << " element " << e << ": " << a << " became " << d << "\n"
                        << toText(*before) << toText(m);
    }
  }
  EXPECT_FALSE(llvm::cantFail(simplify(m, c))) << "a second run still changes\n" << toText(m);
}

TEST(Simplify, KeepsRandomGraphs) {
  for (unsigned seed = 0; seed < 400 && !HasFatalFailure(); ++seed) {
    SCOPED_TRACE(seed);
    Graph g(seed);
    g.grow(4 + int(seed % 20));
    expectSame(g.module, seed);
  }
}

TEST(Simplify, KeepsAttention) {
  for (unsigned seed = 0; seed < 300 && !HasFatalFailure(); ++seed) {
    SCOPED_TRACE(seed);
    Graph g(seed);
    g.fn.results = {g.attention()};
    expectSame(g.module, seed);
    bool matched = llvm::any_of(g.fn.nodes, [](auto &n) { return n->op->library == Library::Attention; });
    EXPECT_TRUE(matched) << toText(g.module);
  }
}

} // namespace simplify_test
