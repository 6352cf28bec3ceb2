// Three steps of each optimizer on given gradients against PyTorch 2's results (torch.optim,
// foreach=False, fp32).
#include "ir/Interpreter.h"
#include "ir/Text.h"
#include "ir/Verifier.h"
#include "passes/Pass.h"
#include <gtest/gtest.h>

using namespace zcc;

static const char *const kModule = R"(
module @step properties [differentiated] {
  param %w : f32[3] = zero {trained}
  param %b : f32[2] = zero {trained}
  state %w.grad : f32[3] = zero {of = "w"}
  state %b.grad : f32[2] = zero {of = "b"}
  func @micro(%gw : f32[3], %gb : f32[2]) -> (f32[]) {
    %s = reduce_sum %gw {axes = [0]} : f32[1]
    %loss = reshape %s {dims = []} : f32[]
    assign %w.grad, %gw
    assign %b.grad, %gb
    return %loss
  }
}
)";

static Tensor tensor(std::vector<double> v) {
  Tensor t(Type(Elem::F32, {int64_t(v.size())}));
  t.f = std::move(v);
  return t;
}

static Tensor counter(int64_t v) {
  Tensor t(Type(Elem::I64, {}));
  t.i = {v};
  return t;
}

namespace {
struct Trained {
  std::vector<double> weights; ///< w, then b
  std::vector<double> norms;   ///< grad_norm of each step, if there is one
};
} // namespace

/// Three steps; with K micro-batches each sees K times its share of the gradient in equal parts.
static Trained train(const Options &o) {
  static const std::vector<double> gw[] = {{0.5, -1.25, 2.0}, {0.1, 0.0, -3.0}, {-0.75, 0.25, 1.5}};
  static const std::vector<double> gb[] = {{2.0, -1.0}, {0.5, 0.5}, {-1.0, 3.0}};
  std::unique_ptr<Module> m = llvm::cantFail(parse(kModule));
  PassContext c{o};
  EXPECT_TRUE(llvm::cantFail(appendOptimizer(*m, c)));
  m->add(Property::Optimized);
  llvm::cantFail(verify(*m));
  Memory memory;
  memory[m->global("w")] = tensor({1.0, -2.0, 0.5});
  memory[m->global("b")] = tensor({0.25, 4.0});
  Trained out;
  for (int step = 0; step < 3; ++step) {
    if (GlobalValue *g = m->global("step"))
      memory[g] = counter(step);
    for (int k = 0; k < o.gradAccum; ++k) {
      if (GlobalValue *g = m->global("micro"))
        memory[g] = counter(k);
      Tensor args[] = {tensor(gw[step]), tensor(gb[step])};
      llvm::cantFail(runFunction(*m->function("micro"), args, memory));
    }
    if (Function *update = m->function("update"))
      llvm::cantFail(runFunction(*update, {}, memory));
    if (GlobalValue *g = m->global("grad_norm"))
      out.norms.push_back(memory[g].f[0]);
  }
  for (const char *name : {"w", "b"})
    for (double v : memory[m->global(name)].f)
      out.weights.push_back(v);
  return out;
}

static void expectNear(const std::vector<double> &got, std::vector<double> want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i], want[i], 4e-7 * std::max(1.0, std::abs(want[i]))) << "element " << i;
}

TEST(Optimizer, AdamW) {
  Options o;
  expectNear(train(o).weights, {0.998346567, -1.99788737, 0.499163926, 0.247863382, 4.00061941});
  o.lr = 0.1, o.beta1 = 0.8, o.beta2 = 0.95, o.eps = 1e-3, o.weightDecay = 0.2;
  expectNear(train(o).weights, {0.79622221, -1.69276249, 0.397416949, 0.0386645086, 3.82154393});
}

TEST(Optimizer, Adam) {
  Options o;
  o.optimizer = "adam", o.lr = 0.05, o.weightDecay = 0.1;
  expectNear(train(o).weights, {0.906558037, -1.88364124, 0.457018524, 0.14274247, 4.00412273});
}

TEST(Optimizer, Sgd) {
  Options o;
  o.optimizer = "sgd";
  expectNear(train(o).weights, {1.00014997, -1.99899995, 0.499499977, 0.248500004, 3.9974997});
  o.lr = 0.1;
  expectNear(train(o).weights, {1.01499999, -1.89999998, 0.450000018, 0.099999994, 3.74999976});
  o.momentum = 0.9, o.nesterov = true;
  expectNear(train(o).weights, {0.943449974, -1.617625, 0.340200007, -0.383299977, 3.63840008});
  o.nesterov = false, o.weightDecay = 0.01;
  expectNear(train(o).weights, {0.915094733, -1.67551446, 0.375657141, -0.287591487, 3.85324931});
}

TEST(Optimizer, Clipping) {
  Options o;
  o.optimizer = "sgd", o.lr = 0.1, o.clipGradNorm = 1;
  Trained t = train(o);
  expectNear(t.weights, {1.00245357, -1.96895301, 0.494654804, 0.200832859, 3.93058991});
  expectNear(t.norms, {3.2882368564605713, 3.083828926086426, 3.588175058364868});
  o.clipGradNorm = 100;
  expectNear(train(o).weights, {1.01499999, -1.89999998, 0.450000018, 0.099999994, 3.74999976});
}

TEST(Optimizer, Groups) {
  Options o;
  o.lr = 0.1, o.weightDecay = 0.2;
  o.groups = {{"^b$", 0, 0.1}};
  expectNear(train(o).weights, {0.784421265, -1.68243062, 0.391956478, 0.228708491, 4.00739527});
}

TEST(Optimizer, MicroBatches) {
  Options o;
  o.gradAccum = 4;
  expectNear(train(o).weights, {0.998346567, -1.99788737, 0.499163926, 0.247863382, 4.00061941});
  o.optimizer = "sgd", o.lr = 0.1, o.clipGradNorm = 1;
  expectNear(train(o).weights, {1.00245357, -1.96895301, 0.494654804, 0.200832859, 3.93058991});
}

TEST(Optimizer, Refuses) {
  for (auto [name, text] : {std::pair("lamb", "optimizer 'lamb' is not supported"),
                            std::pair("adam", "nesterov needs sgd with a momentum")}) {
    Options o;
    o.optimizer = name;
    o.nesterov = true;
    std::unique_ptr<Module> m = llvm::cantFail(parse(kModule));
    PassContext c{o};
    auto changed = appendOptimizer(*m, c);
    ASSERT_FALSE(bool(changed));
    EXPECT_NE(llvm::toString(changed.takeError()).find(text), std::string::npos);
  }
}
