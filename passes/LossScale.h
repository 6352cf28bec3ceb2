// Dynamic loss scaling for fp16 as DeepSpeed's: the gradients are those of the loss times `%loss_scale`. A step whose
// gradients overflow is skipped; the scale is halved at the second such step and each further one, and doubled after 1000 good
// steps in a row. At scale 1 there is nothing left to halve: the runtime ends the run.
#pragma once

#include "ir/Builder.h"
#include "passes/Pass.h"

namespace zcc {

class LossScale {
public:
  /// Adds the states beside `%loss_scale`; nothing where the module has no such state.
  LossScale(Module &m, const Options &o, const Loc &loc);
  explicit operator bool() const { return scale_; }
  Value *scale() const { return scale_; } ///< f32[]
  /// From the sum of squares of all gradients, f32[]: bool[], whether the step is taken. Assigns the states; the scale is
  /// read before.
  Value *adjust(Builder &b, Value *total);

private:
  const Options &o_;
  GlobalValue *scale_, *hysteresis_ = nullptr, *good_ = nullptr, *skipped_ = nullptr,
                       *overflow_ = nullptr;
};

} // namespace zcc
