// Three steps of each optimizer on given gradients against PyTorch 2's results (torch.optim, foreach=False, fp32); LAMB and Lion
// against DeepSpeed's formulas in numpy, fp32.
#include "ir/Interpreter.h"
#include "ir/Text.h"
#include "ir/Verifier.h"
#include "passes/Pass.h"
#include <gtest/gtest.h>

namespace optimizer_test {

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

static Tensor scalar(double v) {
  Tensor t(Type(Elem::F32, {}));
  t.f = {v};
  return t;
}

namespace {
struct Trained {
  std::vector<double> weights; ///< w, then b
  std::vector<double> norms;   ///< grad_norm of each step, if there is one
};
} // namespace

/// A momentum that the schedule sets at each step.
static const double kCycledBeta1[] = {0.8, 0.85, 0.9};

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
    if (o.cycleMomentum)
      memory[m->global("beta1")] = scalar(kCycledBeta1[step]);
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
  o.lr = 0.1, o.betas = {0.8, 0.95}, o.eps = 1e-3, o.weightDecay = 0.2;
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

TEST(Optimizer, Adagrad) {
  Options o;
  o.optimizer = "adagrad";
  expectNear(train(o).weights, {0.996308625, -1.99196112, 0.494479418, 0.241938993, 3.99615765});
  o.lr = 0.1, o.lrDecay = 0.5, o.weightDecay = 0.1, o.initialAccumulator = 0.3, o.eps = 1e-3;
  expectNear(train(o).weights, {0.941819966, -1.90030193, 0.438069165, 0.158374622, 3.9770751});
}

TEST(Optimizer, Lamb) {
  Options o;
  o.optimizer = "lamb";
  expectNear(train(o).weights, {0.999373078, -1.99883235, 0.499631584, 0.247806296, 4.00047922});
  o.lr = 0.1;
  Options decayed = o;
  decayed.betas = {0.8, 0.95}, decayed.eps = 1e-3, decayed.weightDecay = 0.2;
  expectNear(train(decayed).weights, {0.773309708, -1.56635189, 0.37019065, -0.526938558, 3.55624461});
  o.maxCoeff = 0.5;
  expectNear(train(o).weights, {0.927984834, -1.90636313, 0.466810703, 0.143542573, 4.03697586});
  o.lr = 0.01, o.minCoeff = 5, o.maxCoeff = 6;
  expectNear(train(o).weights, {0.918831646, -1.89737332, 0.458947957, 0.143542573, 4.03697586});
  o.minCoeff = 0.01, o.maxCoeff = 10, o.biasCorrection = false;
  expectNear(train(o).weights, {0.979255676, -1.9524895, 0.488388509, 0.163300544, 4.00546837});
}

TEST(Optimizer, Lion) {
  Options o;
  o.optimizer = "lion";
  expectNear(train(o).weights, {0.999000013, -1.99899995, 0.499000013, 0.248999998, 3.99900007});
  o.lr = 0.1, o.betas = {0.8, 0.95}, o.weightDecay = 0.2;
  expectNear(train(o).weights, {0.847151995, -1.78834403, 0.372556031, 0.141258001, 3.66280818});
}

TEST(Optimizer, AdamWithoutBiasCorrection) {
  Options o;
  o.optimizer = "adam", o.lr = 0.01, o.biasCorrection = false;
  expectNear(train(o).weights, {0.943145514, -1.92096901, 0.475500613, 0.16830121, 4.01686239});
}

TEST(Optimizer, CycledMomentum) {
  Options o;
  o.optimizer = "adam", o.lr = 0.01, o.betas.second = 0.99, o.cycleMomentum = true;
  expectNear(train(o).weights, {0.978927076, -1.97294033, 0.490718126, 0.222067192, 4.01007175});
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

/// The group's parameter is updated as with these settings for all, the other as before.
TEST(Optimizer, GroupsOfEachOptimizer) {
  for (const char *name : {"adagrad", "lamb", "lion", "sgd"}) {
    Options all, own, grouped;
    all.optimizer = own.optimizer = grouped.optimizer = name;
    all.lr = grouped.lr = 0.1, own.lr = 0.05;
    all.weightDecay = grouped.weightDecay = 0.2, own.weightDecay = 0.3;
    grouped.groups = {{"^b$", 0.3, 0.5}};
    std::vector<double> want = train(all).weights, ofGroup = train(own).weights;
    std::copy(ofGroup.begin() + 3, ofGroup.end(), want.begin() + 3);
    expectNear(train(grouped).weights, want);
  }
}

TEST(Optimizer, MicroBatches) {
  Options o;
  o.gradAccum = 4;
  expectNear(train(o).weights, {0.998346567, -1.99788737, 0.499163926, 0.247863382, 4.00061941});
  o.optimizer = "sgd", o.lr = 0.1, o.clipGradNorm = 1;
  expectNear(train(o).weights, {1.00245357, -1.96895301, 0.494654804, 0.200832859, 3.93058991});
}

TEST(Optimizer, Refuses) {
  Options unknown, nesterov, cycle, coefficients;
  unknown.optimizer = "lamp";
  nesterov.optimizer = "adam", nesterov.nesterov = true;
  cycle.optimizer = "sgd", cycle.cycleMomentum = true;
  coefficients.optimizer = "lamb", coefficients.minCoeff = 11;
  for (auto [o, text] : {std::pair(unknown, "'lamp' is not available; did you mean 'lamb'?"),
                         std::pair(nesterov, "nesterov needs sgd with a momentum"),
                         std::pair(cycle, "a cycled momentum needs an optimizer with betas"),
                         std::pair(coefficients, "min-coeff is above its max-coeff")}) {
    std::unique_ptr<Module> m = llvm::cantFail(parse(kModule));
    PassContext c{o};
    auto changed = appendOptimizer(*m, c);
    ASSERT_FALSE(bool(changed));
    EXPECT_NE(llvm::toString(changed.takeError()).find(text), std::string::npos);
  }
}

} // namespace optimizer_test
