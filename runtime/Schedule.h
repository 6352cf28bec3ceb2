// Learning-rate schedules. With warm-up over W of T steps they are PyTorch's
//   SequentialLR([LinearLR(1/W, 1, total_iters=W-1), decay], milestones=[W])
// where decay is ConstantLR(1), LinearLR(1, min/lr, total_iters=T-W) or CosineAnnealingLR(T-W,
// eta_min=min); after T steps the rate stays where it ended.
#pragma once

#include <cstdint>
#include <string>

namespace zccrt {

struct Schedule {
  enum Kind { Constant, Linear, Cosine };
  Kind kind = Constant;
  double lr = 0;  ///< after the warm-up
  double min = 0; ///< at the end; not of Constant
  int64_t warmupSteps = 0;
  int64_t totalSteps = 0; ///< warm-up and decay

  /// The rate of a step, from 0.
  double at(int64_t step) const;
};

/// False if there is no schedule of that name.
bool scheduleFromName(const std::string &name, Schedule::Kind &kind);

} // namespace zccrt
