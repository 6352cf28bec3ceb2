// Steps in 16 bits whose gradients are not finite are skipped and counted; --check-grad-overflow does so in fp32, too, or not
// in bf16. In fp16 the gradients are those of the loss times `%loss_scale`, which is fixed (--loss-scale) or dynamic as
// DeepSpeed's of stages 1 to 3. With the defaults of its options it is halved at the second such step and each further one
// until it has grown, and doubled at the 1001st good step in a row and each 1000 further ones. Where it may not get smaller
// (--min-loss-scale), the runtime ends the run. DeepSpeed's optimizer of stage 0 halves at each overflow and has no end; here
// every stage trains alike.
#pragma once

#include "ir/Builder.h"
#include "passes/Pass.h"

namespace zcc {

class LossScale {
public:
  /// Adds the states beside `%loss_scale`, and the counters where steps are skipped.
  LossScale(Module &m, const Options &o, const Loc &loc);
  Value *scale() const { return scale_; } ///< f32[]; nullptr: not fp16
  bool skips() const { return skipped_; }
  /// From the sum of squares of all gradients, f32[]: bool[], whether the step is taken. Assigns the states; the scale is
  /// read before. For a module that skips.
  Value *adjust(Builder &b, Value *total);

private:
  const Options &o_;
  GlobalValue *scale_, *hysteresis_ = nullptr, *good_ = nullptr, *skipped_ = nullptr, *overflow_ = nullptr;
};

} // namespace zcc
