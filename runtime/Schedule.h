// Learning-rate schedules. With warm-up over W of T steps constant, linear and cosine are PyTorch's
//   SequentialLR([LinearLR(1/W, 1, total_iters=W-1), decay], milestones=[W])
// where decay is ConstantLR(1), LinearLR(1, min/lr, total_iters=T-W) or CosineAnnealingLR(T-W, eta_min=min); after T steps the
// rate stays where it ended. The others are DeepSpeed 0.19's (lr_schedules.py), formula by formula, with their parameters' names.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace zccrt {

/// Indices of the parameters of DeepSpeed's schedules.
enum ScheduleParam {
  WarmupMinLr,
  WarmupMaxLr,
  WarmupNumSteps,
  WarmupType, ///< 0: log, 1: linear
  TotalNumSteps,
  WarmupMinRatio,
  CosMinRatio,
  CycleMinLr,
  CycleMaxLr,
  DecayLrRate,
  CycleFirstStepSize,
  CycleSecondStepSize,
  CycleFirstStairCount,
  CycleSecondStairCount,
  DecayStepSize,
  CycleMomentum,
  CycleMinMom,
  CycleMaxMom,
  DecayMomRate,
  RangeMinLr,
  RangeStepSize,
  RangeStepRate,
  RangeStaircase,
  kScheduleParams
};

struct Schedule {
  enum Kind { Constant, Linear, Cosine, WarmupLR, WarmupDecayLR, WarmupCosineLR, OneCycle, LRRangeTest };
  Kind kind = Constant;
  double lr = 0;  ///< after the warm-up
  double min = 0; ///< at the end; of Linear and Cosine
  int64_t warmupSteps = 0;
  int64_t totalSteps = 0; ///< warm-up and decay
  /// Of DeepSpeed's schedules; NaN: not given.
  struct Params : std::array<double, kScheduleParams> {
    Params();
  } param;

  bool isDeepSpeed() const { return kind >= WarmupLR; }
  /// Gives what is not given its default (DeepSpeed's; the run's length in totalSteps). Throws a
  /// Failure for what DeepSpeed refuses, and for what is missing.
  void resolve();
  /// The rate of a step, from 0. resolve() comes first.
  double at(int64_t step) const;
  /// Whether the schedule sets beta1 (the optimizer's first moment), and to what.
  bool cyclesMomentum() const { return kind == OneCycle && param[CycleMomentum] != 0; }
  double beta1At(int64_t step) const;

private:
  double scaleInCycle(int64_t step) const;
};

/// False if there is no schedule of that name.
bool scheduleFromName(const std::string &name, Schedule::Kind &kind);
/// "constant|linear|..."
extern const char *const kScheduleNames;

/// Sets a parameter of the schedule's kind from text: a number, true, false, log or linear. Throws
/// a Failure.
void setParam(Schedule &s, const std::string &name, const std::string &value);
/// The names of the parameters of a kind.
std::vector<std::string> paramNames(Schedule::Kind kind);

} // namespace zccrt
