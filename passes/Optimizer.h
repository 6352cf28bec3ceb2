// The update of one parameter by each optimizer, and the scalars that all updates of a function
// share.
#pragma once

#include "ir/Builder.h"
#include "passes/Pass.h"

namespace zcc {

/// An error if the options name an optimizer that is not there, or settings that PyTorch refuses
/// too.
llvm::Error checkOptimizer(const Options &o);
/// Notes on each parameter what its group says (attributes weight_decay, lr_scale); a group that
/// matches none is an error. The first group whose expression is found in the parameter's name or
/// its name in the model counts.
llvm::Error applyGroups(llvm::ArrayRef<GlobalValue *> params, const Options &o);

class Optimizer {
public:
  /// The shared scalars go before `top` in `f`.
  Optimizer(Module &m, const Options &o, Function &f, Node *top, Loc loc);

  /// Nodes that update `param` (and its moments) by `gradient`, the mean over ranks and
  /// micro-batches.
  void update(Builder &b, GlobalValue &param, Value *gradient);

  Value *coefficient = nullptr; ///< f32[] by which every gradient is multiplied, or nullptr

private:
  GlobalValue *state(GlobalValue &param, llvm::StringRef suffix);
  GlobalValue *scalarState(llvm::StringRef name, Elem e, double value);
  Value *number(double x); ///< f32[], one node a function
  Value *rate(double scale);
  Value *decay(double scale, double weightDecay);
  Value *adam(Builder &b, GlobalValue &param, Value *p, Value *g, double scale);
  Value *sgd(Builder &b, GlobalValue &param, Value *p, Value *g, double scale);

  Module &m_;
  const Options &o_;
  Builder top_;
  Value *lr_ = nullptr; ///< f64[] for Adam, f32[] for SGD
  Value *correction1_ = nullptr, *rootCorrection2_ = nullptr;
  std::map<double, Value *> numbers_;
  std::map<double, Value *> rates_;                     ///< by lr_scale
  std::map<std::pair<double, double>, Value *> decays_; ///< by lr_scale and weight decay
};

} // namespace zcc
