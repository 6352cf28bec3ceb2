// The timed schedule of a step: what each engine does for which node, after what, and when. Predictions, --plan=json and the
// pages read it; with other rates it is timed anew.
#pragma once

#include "passes/CostModel.h"
#include <map>

namespace zcc {

/// What an engine does for a node, or a wait of the program for that.
struct Span {
  const Node *node = nullptr;
  EngineKind engine = EngineKind::Compute;
  unsigned part = 0;         ///< of a transfer: the operand that is moved
  int waitsFor = -1;         ///< of a wait, which is the program's own: the span in the same function that has to end
  NodeCost work;             ///< of a wait: none
  double begin = 0, end = 0; ///< seconds since its function began
  bool waits() const { return waitsFor >= 0; }
};

/// A function's spans in the order of the program. One begins when its engine is free and the program, whose place is the compute
/// engine's clock, has come to it; a wait holds the program until another has ended.
struct TimedFunction {
  const Function *function = nullptr;
  double times = 1;    ///< that a step runs it
  bool isFirst = true; ///< whether it does what only the first call in a step does
  double seconds = 0;  ///< of one run
  std::vector<Span> spans;
};

/// A step: `grad_accum` times @micro, then @update; of a program for inference, @eval. Where the first call of @micro has more
/// to do than the others, these are a function of their own here.
struct TimedSchedule {
  std::vector<TimedFunction> functions; ///< nothing that one starts goes on behind it
};

/// What is to be done, without times.
TimedSchedule scheduleOf(const Module &m, const Options &o);
/// Walks it with a clock for each engine.
void setTimes(TimedSchedule &s, const Machine &machine);

struct StepCost {
  double flops = 0;
  std::map<std::string, double> sent; ///< bytes a rank sends or transfers, by collective and by "FROM to TO"
  double seconds = 0;
  /// Bytes that a rank writes to disks.
  double diskWrites() const;
  std::array<double, kEngines> busy{}; ///< seconds of each engine
  double taken = 0;                    ///< of compute's, those that threads of disks have its cores for
  std::map<std::string, double> bound; ///< seconds of what computes, by what takes most of each node's: as boundBy has it
  /// "compute", "memory", "launches" or "communication", "disk", "host copies" or "host compute": what takes most of the time.
  std::string boundBy;
};
/// Of a schedule with the times of that machine.
StepCost costOf(const TimedSchedule &s, const Machine &machine);
StepCost costOfStep(const Module &m, const Options &o, const Machine &machine);

} // namespace zcc
