// The update of one parameter by each optimizer, and the scalars that all updates of a function share.
#pragma once

#include "ir/Builder.h"
#include "passes/Pass.h"
#include <map>

namespace zcc {

/// An optimizer's name, its defaults, and which of the settings it has.
struct OptimizerDef {
  enum Uses { Betas = 1, Eps = 2, Momentum = 4, BiasCorrection = 8, Accumulator = 16, Coeff = 32 };
  const char *name;
  double lr, eps, weightDecay;
  unsigned uses; ///< bits of Uses
};

/// Defaults are PyTorch's; those of lamb and lion DeepSpeed's.
llvm::ArrayRef<OptimizerDef> optimizers();
/// nullptr if there is none of that name.
const OptimizerDef *findOptimizer(llvm::StringRef name);
/// The learning rate that the options give, or the optimizer's default.
double baseLr(const Options &o);
/// An error if the options name an optimizer that is not there, or settings that PyTorch refuses
/// too.
llvm::Error checkOptimizer(const Options &o);
/// Notes on each parameter what its group says (attributes weight_decay, lr_scale); a group that
/// matches none is an error. The first group whose expression is found in the parameter's name or
/// its name in the model counts.
llvm::Error applyGroups(const Module &m, llvm::ArrayRef<GlobalValue *> params, const Options &o);

/// In which a gradient is added up over micro-batches: 16 bits in f32.
Elem elemOfSums(Elem gradient);
/// The sum of a gradient over the micro-batches so far, `d` being that of this one: of the first, itself.
Value *addUp(Builder &b, Value *sum, Value *d, Value *isFirst, llvm::StringRef name);

/// The sums of squares of tensors: f32[n] for n of them. Each is computed where `b` builds, or before its node in `before`.
/// With several ranks each rank sums its shards and the parts are added in rank order, so that the bits do not depend on
/// what is partitioned.
Value *squaredNorms(Builder &b, llvm::ArrayRef<Value *> values, llvm::ArrayRef<Node *> before = {});

class Optimizer {
public:
  /// The shared scalars go before `top` in `f`.
  Optimizer(Module &m, const Options &o, Function &f, Node *top, Loc loc);

  /// Nodes that update `param` (and its moments) by `gradient`, the mean over ranks and
  /// micro-batches.
  void update(Builder &b, GlobalValue &param, Value *gradient);

  Value *coefficient = nullptr; ///< f32[] by which every gradient is multiplied, or nullptr
  Value *taken = nullptr;       ///< bool[]: whether anything changes; nullptr: always

private:
  /// What an update is made of: the parameter (decayed), its gradient, lr_scale and weight decay.
  struct Update {
    GlobalValue &param;
    Value *p, *g;
    double scale, weightDecay;
  };

  Init boxOfStates(const GlobalValue &param, llvm::StringRef suffix, const Init &init);
  GlobalValue *state(GlobalValue &param, llvm::StringRef suffix, double initial = 0);
  GlobalValue *scalarState(llvm::StringRef name, Elem e, double value);
  void scaleRate();
  Value *number(double x); ///< f32[], one node a function
  Value *rate(double scale);
  Value *decay(double scale, double weightDecay);
  Value *moment(Builder &b, GlobalValue &param, Value *g);
  Value *secondMoment(Builder &b, GlobalValue &param, Value *g);
  // Each returns the parameter after its step.
  Value *adam(Builder &b, const Update &u);
  Value *sgd(Builder &b, const Update &u);
  Value *adagrad(Builder &b, const Update &u);
  Value *lamb(Builder &b, const Update &u);
  Value *direction(Builder &b, const Update &u);
  Value *trustRatio(Builder &b, Value *squares);
  void lambOfBox(Builder &b, const Update &u);
  void keepStates(Builder &b);
  void assignStates(Builder &b);
  void store(Builder &b, GlobalValue &param, Value *updated);
  Value *lion(Builder &b, const Update &u);

  /// LAMB's update of a box, until the norms of its tensor are known.
  struct Pending {
    Update update;
    Value *direction, *squares;
  };

  Module &m_;
  const Options &o_;
  const OptimizerDef &def_;
  Builder top_;
  Value *lr_ = nullptr;                             ///< f32[] for SGD, else f64[]
  Value *numerator_ = nullptr, *divisor_ = nullptr; ///< f64[]; the rate is lr * numerator / divisor
  Value *beta1_ = nullptr,
        *rest1_ = nullptr;                                 ///< f32[]: beta1 and 1 - beta1, if the optimizer has it
  Value *rootFactor_ = nullptr;                            ///< f32[], of Adam: 1 / sqrt(1 - beta2^t)
  std::vector<std::pair<GlobalValue *, Value *>> assigns_; ///< of moments, behind the step
  std::map<const GlobalValue *, std::map<GlobalValue *, Pending>> pending_; ///< by tensor and box
  std::map<double, Value *> numbers_;
  std::map<double, Value *> rates_; ///< by lr_scale
  std::map<std::pair<const GlobalValue *, std::string>, GlobalValue *>
      tensorsOfStates_;                                 ///< by the tensor of parameters and the suffix
  std::map<std::pair<double, double>, Value *> decays_; ///< by lr_scale and weight decay
};

} // namespace zcc
