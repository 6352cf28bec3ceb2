// Ways to train, carried out on copies of a module: bytes are exact, and the time is the one that --plan predicts.
#pragma once

#include "passes/plan/Axes.h"
#include "passes/plan/PlanReport.h"

namespace zcc {

/// A level of each axis.
using Point = std::vector<unsigned>;

struct Trial {
  bool isPossible = false; ///< no pass refuses it
  Needs needs;
  int64_t ns = 0;
  std::array<int64_t, kEngines> busyNs{};
};

/// Writes the notes of a point.
void note(Module &m, llvm::ArrayRef<Axis> axes, const Point &p);
/// Runs the passes behind choose-plan.
llvm::Error carryOut(Module &m, const PassContext &ctx);

/// Trials that have been carried out, each once.
class Trials {
public:
  Trials(const Module &m, const PassContext &ctx, llvm::ArrayRef<Axis> axes) : m_(m), ctx_(ctx), axes_(axes) {}
  /// Several at once. An error is a fault of a pass: what one refuses is not possible.
  llvm::Error carryOut(llvm::ArrayRef<Point> points);
  const Trial &at(const Point &p) const { return done_.find(key(p))->second; }
  bool has(const Point &p) const { return done_.count(key(p)); }
  /// The same plan, at level 0 of each axis that decides nothing beside the others.
  Point key(Point p) const;
  const std::map<Point, Trial> &all() const { return done_; }
  PlanChoice choice(const Point &p) const;

private:
  llvm::Error carryOut(Trial &t, const Point &p) const;

  const Module &m_;
  const PassContext &ctx_;
  llvm::ArrayRef<Axis> axes_;
  std::map<Point, Trial> done_;
};

} // namespace zcc
