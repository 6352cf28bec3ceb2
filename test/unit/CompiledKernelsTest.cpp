// Kernels that no single operator makes: over several parts, long sums that blocks share, columns, rows with sums over them.
#include "ir/Op.h"
#include "test/unit/CompiledBatch.h"
#include <gtest/gtest.h>

namespace compiled_kernels_test {

using namespace zcc;
using namespace zcc::test;

/// Kernels over several parts: updates with operands of their own that are equal otherwise, their sums too.
static void checkParts(On on) {
  constexpr int kParts = 3;
  const Elem elems[] = {Elem::F32, Elem::F64, Elem::BF16, Elem::F16, Elem::I64, Elem::I32, Elem::U8, Elem::Bool};
  const int64_t sizes[] = {7, 300, 40000}; // a row, more of them than a block, in units
  Batch b;
  b.eval = b.module.addFunction("eval");
  std::mt19937 random(6);
  Loc loc = makeLoc("node", "Op");
  Builder build(*b.eval, nullptr, loc);
  for (Elem e : elems)
    for (int64_t size : sizes)
      for (int part = 0; part < kParts; ++part) {
        std::string name = std::to_string(b.args.size());
        OpCase c{"neg", "", {}};
        std::string text = Type(Elem::F32, {size}).str();
        c.operands = text.c_str();
        Value *x = b.draw(c, build, false, random)[0];
        GlobalValue *g = b.module.addGlobal(GlobalValue::State, "g" + name, Type(e, {size}), Init{Init::Splat, 1.5});
        g->loc = loc;
        Value *y = build.make(ops::add, {build.make(ops::mul, {x, build.cast(g, Elem::F32)}), x});
        for (Value *v : {y, build.reduceSum(build.make(ops::mul, {y, y}), {0})}) {
          b.eval->results.push_back(v);
          b.what.push_back("part " + std::to_string(part) + " of " + Type(e, {size}).str());
        }
      }
  for (auto &n : b.eval->nodes)
    n->phase = Phase::Update;
  // Where most memory lives is behind them: there is room for the units of several sums.
  Value *large = b.draw({"neg", "f32[9999]", {}}, build, false, random)[0];
  b.eval->results.push_back(build.make(ops::neg, {large}));
  b.what.push_back("the rest");
  check(b, on);
  int joined = 0;
  for (auto &n : b.eval->nodes)
    joined += n->op->isFused() && n->attrs.i("parts", 1) == kParts;
  EXPECT_EQ(joined, int(std::size(elems) * std::size(sizes)));
}

TEST(CompiledOps, PartsEqualTheInterpreter) { checkParts(On::Cpu); }
TEST(CompiledOpsEmulatedGpu, PartsEqualTheInterpreter) { checkParts(On::EmulatedGpu); }

/// Sums that blocks of a GPU share: of few long rows and columns, and of all, in one pass and where a second one needs them.
static void checkLongSums(On on) {
  struct {
    const char *operand;
    Dims axes;
  } cases[] = {{"f32[3x40000]", {1}}, {"f32[2x3x20000]", {0, 2}}, {"f32[40000]", {0}},         {"f32[3x20001]", {0, 1}},
               {"f32[700x5]", {0}},   {"f32[2x600x40]", {1}},     {"f32[30x2x30x33]", {0, 2}}, {"i64[700x5]<90", {0}}};
  Batch b;
  b.eval = b.module.addFunction("eval");
  std::mt19937 random(6);
  Loc loc = makeLoc("node", "Op");
  Builder build(*b.eval, nullptr, loc);
  for (auto &[operand, axes] : cases) {
    Value *x = b.draw({"neg", operand, {}, 0.5, 2}, build, false, random)[0];
    Value *sum = build.reduceSum(x, axes),
          *away = x->type.elem == Elem::F32 ? build.expr("x - s * 1e-5", {{"x", x}, {"s", sum}}) : build.make(ops::sub, {x, sum});
    Value *most = build.make(ops::reduce_max, {x}, {{"axes", std::vector<int64_t>(axes.begin(), axes.end())}});
    for (Value *v : {sum, most, build.make(ops::add, {build.reduceSum(build.make(ops::mul, {away, away}), axes), most}), away}) {
      b.eval->results.push_back(v);
      b.what.push_back(std::string("result ") + std::to_string(b.what.size() % 4) + " of " + operand);
    }
  }
  check(b, on);
}

TEST(CompiledOps, LongSumsEqualTheInterpreter) { checkLongSums(On::Cpu); }
TEST(CompiledOpsEmulatedGpu, LongSumsEqualTheInterpreter) { checkLongSums(On::EmulatedGpu); }

/// A node of a kernel, its operands drawn.
static Node *addFused(Batch &b, Builder &build, const Function &kernel, std::mt19937 &random) {
  auto node = std::make_unique<Node>(&ops::fused, build.loc);
  node->attrs.set("kernel", kernel.name);
  for (auto &a : kernel.args) {
    auto draw = [&] { return b.draw({"neg", Type(Elem::F32, a->type.dims).str().c_str(), {}}, build, false, random)[0]; };
    Value *x = draw();
    node->addOperand(a->type.elem == Elem::Bool ? build.make(ops::ge, {x, draw()}) : x);
  }
  Node *n = b.eval->insert(std::move(node));
  for (Value *r : kernel.results) {
    std::string name = "y" + std::to_string(b.eval->results.size());
    n->results.push_back(std::make_unique<Value>(Value::Result, name, r->type));
    n->results.back()->def = n;
    n->results.back()->index = n->results.size() - 1;
    b.what.push_back("result " + std::to_string(n->results.size() - 1) + " of " + kernel.args[0]->type.str());
    b.eval->results.push_back(build.cast(n->results.back().get(), Elem::F32));
  }
  return n;
}

/// Kernels over long columns of 16-bit floats with sums of them, of which a thread of a GPU has two at once if their number is
/// even.
static void checkColumns(On on) {
  for (Elem elem : {Elem::BF16, Elem::F16}) {
    Batch b;
    b.elem = elem;
    b.eval = b.module.addFunction("eval");
    std::mt19937 random(6);
    Loc loc = makeLoc("node", "Op");
    Builder build(*b.eval, nullptr, loc);
    for (const Dims &dims : {Dims{elem == Elem::BF16 ? 103 : 2, 513, 64}, Dims{700, 34}, Dims{2, 600, 5}}) {
      const Type whole(elem, dims), row(elem, {dims.back()});
      Function *kernel = b.module.addFunction("columns" + std::to_string(dims.back()));
      kernel->isKernel = true;
      Builder in(*kernel, nullptr, loc);
      Value *x = kernel->addArg("x", whole), *y = kernel->addArg("y", whole), *w = kernel->addArg("w", row);
      Value *z = in.expr("x * y + w", {{"x", x}, {"y", y}, {"w", w}});
      const int64_t axis = int64_t(dims.size()) - 2;
      Value *most = in.make(ops::reduce_max, {y}, {{"axes", std::vector<int64_t>{axis}}});
      Value *sum = in.reduceSum(in.cast(z, Elem::F32), {axis});
      kernel->results = {z, most, sum, in.make(ops::add, {in.cast(most, Elem::F32), sum})};
      addFused(b, build, *kernel, random);
    }
    check(b, on);
  }
}

TEST(CompiledOps, ColumnsOf16Bits) { checkColumns(On::Cpu); }
TEST(CompiledOpsEmulatedGpu, ColumnsOf16Bits) { checkColumns(On::EmulatedGpu); }

/// A kernel of short and of long rows with sums over them, the last unit of rows a part of one; these sums have the bits that a
/// kernel of their own gives them.
static void checkSumsOverRows(On on) {
  Batch b;
  b.eval = b.module.addFunction("eval");
  std::mt19937 random(6);
  Loc loc = makeLoc("node", "Op");
  Builder build(*b.eval, nullptr, loc);
  for (const Dims &dims : {Dims{600, 33}, Dims{513, 600}, Dims{700, 1030}}) {
    const Type whole(Elem::F32, dims), row(Elem::F32, {dims[1]});
    Function *kernel = b.module.addFunction("rows" + std::to_string(dims[1]));
    kernel->isKernel = true;
    Builder in(*kernel, nullptr, loc);
    Value *x = kernel->addArg("x", whole), *y = kernel->addArg("y", whole), *w = kernel->addArg("w", row);
    Value *mean = in.reduceSum(in.make(ops::mul, {x, y}), {1});
    Value *away = in.expr("(x - s * 1e-2) * w", {{"x", x}, {"s", mean}, {"w", w}});
    Value *sum = in.make(ops::reshape, {in.reduceSum(away, {0})}, {{"dims", std::vector<int64_t>{dims[1]}}});
    kernel->results = {away, mean, in.make(ops::sub, {w, sum}), in.reduceSum(away, {0}), in.reduceSum(x, {0})};
    Node *n = addFused(b, build, *kernel, random);
    Value *again = b.eval->addArg("again" + std::to_string(dims[1]), whole);
    b.args.push_back(b.args[b.args.size() - 3]);
    Value *alone = build.reduceSum(n->result(0), {0}), *ofOperand = build.reduceSum(again, {0});
    b.eval->results.push_back(build.expr("(a - b) * 1e9", {{"a", n->result(3)}, {"b", alone}}));
    b.eval->results.push_back(build.expr("(a - b) * 1e9", {{"a", n->result(4)}, {"b", ofOperand}}));
    for (const char *of : {"what is computed", "an operand"})
      b.what.push_back("sums over rows of " + std::string(of) + " of " + whole.str());
  }
  check(b, on);
}

TEST(CompiledOps, SumsOverRowsBesideThem) { checkSumsOverRows(On::Cpu); }
TEST(CompiledOpsEmulatedGpu, SumsOverRowsBesideThem) { checkSumsOverRows(On::EmulatedGpu); }

/// Kernels that read and write truth values along short rows of all numbers of lanes, with a rest and without: sums with the bits
/// of a kernel of their own, results beside them and behind them, of which some lie where operands do.
static void checkTruthsInShortRows(On on) {
  for (Elem elem : {Elem::F32, Elem::BF16, Elem::F16}) {
    Batch b;
    b.elem = elem;
    b.eval = b.module.addFunction("eval");
    std::mt19937 random(6);
    Loc loc = makeLoc("node", "Op");
    Builder build(*b.eval, nullptr, loc);
    for (int64_t n : {8, 9, 16, 25, 31, 32, 49, 63, 100, 127, 500}) {
      const Type whole(elem, {3, 4, n}), truths(Elem::Bool, whole.dims), row(elem, {1, 4, 1});
      Function *kernel = b.module.addFunction("rows" + std::to_string(n));
      kernel->isKernel = true;
      Builder in(*kernel, nullptr, loc);
      Value *x = kernel->addArg("x", whole), *y = kernel->addArg("y", whole), *m = kernel->addArg("m", truths),
            *w = kernel->addArg("w", row);
      Value *chosen = in.make(ops::mul, {in.make(ops::select, {m, x, y}), y});
      Value *sum = in.reduceSum(in.cast(chosen, Elem::F32), {0, 2});
      Value *most = in.make(ops::reduce_max, {chosen}, {{"axes", std::vector<int64_t>{0, 2}}});
      Value *away = in.expr("x - m * w", {{"x", x}, {"m", most}, {"w", w}});
      kernel->results = {chosen, in.make(ops::ge, {away, y}), away, sum, most};
      Node *node = addFused(b, build, *kernel, random);
      Value *alone = build.reduceSum(build.cast(node->result(0), Elem::F32), {0, 2});
      b.eval->results.push_back(build.expr("(a - b) * 1e9", {{"a", node->result(3)}, {"b", alone}}));
      b.what.push_back("sums of " + whole.str() + " beside those of a kernel of their own");
    }
    check(b, on);
  }
}

TEST(CompiledOps, TruthsInShortRows) { checkTruthsInShortRows(On::Cpu); }
TEST(CompiledOpsEmulatedGpu, TruthsInShortRows) { checkTruthsInShortRows(On::EmulatedGpu); }

/// Operands that lie across the results, in tiles, whole and cut ones: more of them than have tiles, and truth values.
static void checkOperandsAcross(On on) {
  Batch b;
  b.eval = b.module.addFunction("eval");
  std::mt19937 random(8);
  Loc loc = makeLoc("node", "Op");
  Builder build(*b.eval, nullptr, loc);
  for (Elem elem : {Elem::F32, Elem::BF16, Elem::F64})
    for (int64_t wide : {9, 32, 45, 100}) {
      auto draw = [&](Dims dims) {
        return build.cast(b.draw({"neg", Type(Elem::F32, dims).str().c_str(), {}}, build, false, random)[0], elem);
      };
      auto across = [&](Value *x) { return build.transpose(x, {0, 2, 1}); };
      Value *y = draw({3, 70, wide});
      for (int i = 0; i < 6; ++i)
        y = build.make(ops::add, {y, across(draw({3, wide, 70}))});
      Value *keep = across(build.make(ops::ge, {draw({3, wide, 70}), draw({3, wide, 70})}));
      for (Value *v : {build.make(ops::select, {keep, y, build.make(ops::neg, {y})}), build.make(ops::mul, {y, y})}) {
        b.eval->results.push_back(build.cast(v, Elem::F32));
        b.what.push_back("result of " + y->type.str());
      }
    }
  check(b, on);
}

TEST(CompiledOps, OperandsAcross) { checkOperandsAcross(On::Cpu); }
TEST(CompiledOpsEmulatedGpu, OperandsAcross) { checkOperandsAcross(On::EmulatedGpu); }

} // namespace compiled_kernels_test
