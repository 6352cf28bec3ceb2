// The plan that fits the budgets in the least predicted time.
#pragma once

#include "passes/plan/Trials.h"
#include <set>

namespace zcc {

/// From the plan that needs most, each step takes what saves most bytes for its time, until no step saves any: a chain of plans
/// that does not depend on the budget. Of all that was tried on the way, the fastest that fits is taken; between the last of the
/// chain that does not fit and the first that does, it looks closer. So a larger budget never gives a slower step. Where there
/// are few plans, all are tried.
class PlanSearch {
public:
  PlanSearch(const Module &m, const PassContext &ctx, llvm::ArrayRef<Axis> axes)
      : module_(m), options_(ctx.options), axes_(axes), trials_(m, ctx, axes) {}
  llvm::Error run();

  const Trials &trials() const { return trials_; }
  const Point &plain() const { return plain_; }
  const Point &taken() const { return taken_; }
  const std::optional<Point> &second() const { return second_; } ///< the next best that fits
  bool hasFit() const { return isFit(taken_); }

private:
  using Chain = std::vector<Point>;
  /// A step along one axis, and bytes a microsecond; below 0: it saves nothing.
  struct Step {
    size_t axis;
    unsigned level;
    int64_t value;
  };
  bool mayTryAll() const;
  llvm::Error tryAll();
  llvm::Error walk(Point from);
  llvm::Expected<std::optional<Point>> bestStep(const Point &from, std::vector<Step> &steps);
  std::vector<Step> stepsFrom(const Point &from, const std::vector<Step> &known) const;
  int64_t valueOf(const Point &from, const Point &to) const;
  llvm::Error vary(const Chain &chain);
  llvm::Error lookCloser(const Chain &chain);
  void choose();
  bool isFit(const Point &p) const;
  bool isBetter(const Point &a, const Point &b) const;
  int64_t bestWithin(int64_t memory) const;

  const Module &module_;
  const Options &options_;
  llvm::ArrayRef<Axis> axes_;
  Trials trials_;
  std::vector<Chain> chains_;
  std::set<Point> dropped_; ///< faster than what a larger budget gives: a quirk of the schedule
  Point plain_, taken_;
  std::optional<Point> second_;
};

} // namespace zcc
