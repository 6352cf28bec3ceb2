// Gradient rules against central finite differences, and composites against their bodies, for every record of the operator table.
#include "ir/Builder.h"
#include "ir/Interpreter.h"
#include "passes/Pass.h"
#include "test/unit/OpCases.h"
#include "llvm/ADT/StringSet.h"
#include <gtest/gtest.h>

namespace grad_check_test {

using namespace zcc;
using namespace zcc::test;

namespace {
/// A module whose @micro is sum(op(operands) * random), with float operands as trained parameters
/// and the others as states; their values are in `memory`.
struct Program {
  Module module;
  Function *micro;
  Node *node;
  Memory memory;
  std::vector<GlobalValue *> params;

  Program(const OpCase &c, std::mt19937 &random);

private:
  void addLoss(const OpCase &c, std::mt19937 &random);
  Loc loc = makeLoc("node", "Op");
};
} // namespace

Program::Program(const OpCase &c, std::mt19937 &random) {
  micro = module.addFunction("micro");
  Builder b(*micro, nullptr, loc);
  std::vector<Value *> operands;
  for (const Operand &o : drawOperands(c, random)) {
    if (!o.present) {
      operands.push_back(nullptr);
      continue;
    }
    bool trained = zcc::isFloat(o.type.elem);
    GlobalValue *g = module.addGlobal(trained ? GlobalValue::Param : GlobalValue::State, "x" + std::to_string(operands.size()),
                                      o.type, Init());
    g->trained = trained;
    g->loc = loc;
    if (trained)
      params.push_back(g);
    Tensor t(o.type);
    t.f = o.f;
    t.i = o.i;
    memory[g] = t;
    operands.push_back(g);
  }
  node = b.node(*findOp(c.op), operands, c.attrs);
  addLoss(c, random);
}

void Program::addLoss(const OpCase &c, std::mt19937 &random) {
  Builder b(*micro, nullptr, loc);
  std::uniform_real_distribution<double> uniform(0.5, 2);
  Value *loss = nullptr;
  for (auto &r : node->results) {
    if (!zcc::isFloat(r->type.elem) || !(c.results >> r->index & 1))
      continue;
    GlobalValue *w = module.addGlobal(GlobalValue::State, "r", r->type, Init());
    Tensor t(r->type);
    for (double &x : t.f)
      x = uniform(random);
    memory[w] = t;
    Dims axes;
    for (unsigned i = 0; i < r->type.ndim(); ++i)
      axes.push_back(i);
    Value *sum = b.make(ops::mul, {r.get(), w});
    sum = b.reshape(axes.empty() ? sum : b.reduceSum(sum, axes), {});
    loss = loss ? b.make(ops::add, {loss, sum}) : sum;
  }
  micro->results = {loss};
}

static double lossOf(Program &p) {
  auto out = runFunction(*p.micro, {}, p.memory, Compute::F64);
  if (!out) {
    ADD_FAILURE() << llvm::toString(out.takeError());
    return 0;
  }
  return (*out)[0].f[0];
}

static void checkParam(const OpCase &c, Program &p, GlobalValue *param) {
  lossOf(p); // sets the gradients
  GlobalValue *state = p.module.global(param->name + ".grad");
  std::vector<double> got(param->type.count(), 0.0); // no state: no gradient
  if (state)
    got = p.memory[state].f;
  constexpr double kStep = 1e-5, kTolerance = 1e-8;
  for (int64_t i = 0; i < param->type.count(); ++i) {
    double at = p.memory[param].f[i];
    p.memory[param].f[i] = at + kStep;
    double above = lossOf(p);
    p.memory[param].f[i] = at - kStep;
    double below = lossOf(p);
    p.memory[param].f[i] = at;
    double expected = (above - below) / (2 * kStep);
    EXPECT_NEAR(got[i], expected, kTolerance * std::max(1.0, std::abs(expected)))
        << describe(c) << ": element " << i << " of operand " << param->name;
  }
}

TEST(GradCheck, EveryRuleMatchesFiniteDifferences) {
  for (const OpCase &c : opCases()) {
    const OpDef *op = findOp(c.op);
    ASSERT_TRUE(op) << c.op;
    if (op->noGrad)
      continue;
    std::mt19937 random(1);
    Program p(c, random);
    Options options;
    PassContext ctx{options};
    auto changed = differentiate(p.module, ctx);
    if (!changed) {
      ADD_FAILURE() << describe(c) << ": " << llvm::toString(changed.takeError());
      continue;
    }
    for (GlobalValue *param : p.params)
      checkParam(c, p, param);
  }
}

TEST(GradCheck, EveryDifferentiableRecordHasACase) {
  llvm::StringSet<> known;
  for (const OpCase &c : opCases())
    known.insert(c.op);
  for (const OpDef *op : allOps()) {
    bool differentiable = !op->noGrad;
    EXPECT_TRUE(!differentiable || known.contains(op->name)) << "'" << op->name << "' has a gradient but no case in OpCases.cpp";
  }
}

TEST(GradCheck, BodiesOfCompositesEqualTheirLoops) {
  for (const OpCase &c : opCases()) {
    if (!findOp(c.op)->expand)
      continue;
    std::mt19937 random(2);
    Program p(c, random);
    std::vector<Value *> whole;
    for (auto &r : p.node->results)
      whole.push_back(r.get());
    Builder b(*p.micro, nullptr, p.node->loc);
    auto body = p.node->op->expand(b, *p.node);
    ASSERT_EQ(body.size(), whole.size()) << describe(c);
    p.micro->results = whole;
    p.micro->results.insert(p.micro->results.end(), body.begin(), body.end());
    auto out = runFunction(*p.micro, {}, p.memory, Compute::F64);
    ASSERT_TRUE(bool(out)) << llvm::toString(out.takeError());
    for (size_t i = 0; i < whole.size(); ++i) {
      const Tensor &a = (*out)[i], &e = (*out)[i + whole.size()];
      ASSERT_EQ(a.type.str(), e.type.str()) << describe(c) << ": result " << i;
      for (int64_t k = 0; k < a.count(); ++k)
        EXPECT_NEAR(a.f[k], e.f[k], 1e-12) << describe(c) << ": result " << i;
    }
  }
}

} // namespace grad_check_test
