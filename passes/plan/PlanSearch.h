// The plan that fits the budgets in the least predicted time.
#pragma once

#include "passes/plan/Trials.h"
#include <set>

namespace zcc {

/// First what needs least is looked for: if that does not fit, nothing does. From the plan that needs most, each step then takes
/// what saves most bytes for its time, until it fits: a chain of plans of which a budget says only where it ends. Of all that was
/// tried on the way, the fastest that fits is taken; between the last of the chain that does not fit and the first that does, it
/// looks closer. What is faster than what a larger budget would have found is a quirk of the schedule, and dropped: so a larger
/// budget never gives a slower step. Where there are few plans, all are tried.
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
  /// A chain, what was tried for it, and the least time of what may still be taken: that of what is taken with a larger budget.
  struct Chain {
    std::vector<Point> points;
    std::set<Point> open;
    std::set<Point> seen;
    int64_t floor = 0;
  };
  /// A step along one axis, and bytes a microsecond; below 0: it saves nothing.
  struct Step {
    size_t axis;
    unsigned level;
    int64_t value;
  };
  bool mayTryAll() const;
  llvm::Error tryAll();
  llvm::Error findLeast();
  llvm::Error descend(size_t axis);
  llvm::Error walk(Point from);
  llvm::Error carryOut(Chain &c, llvm::ArrayRef<Point> points);
  llvm::Expected<std::optional<Point>> bestStep(Chain &c, std::vector<Step> &steps);
  std::vector<Step> stepsFrom(const Point &from, const std::vector<Step> &known) const;
  int64_t valueOf(const Point &from, const Point &to) const;
  llvm::Error vary(Chain &c);
  llvm::Error lookCloser(Chain &c);
  void choose();
  int64_t excess(const Point &p) const;
  bool isFit(const Point &p) const;
  bool isBetter(const Point &a, const Point &b) const;
  int64_t bestWithin(const Chain &c, int64_t memory) const;

  const Module &module_;
  const Options &options_;
  llvm::ArrayRef<Axis> axes_;
  Trials trials_;
  std::set<Point> open_; ///< what may be taken
  Point plain_, taken_;
  std::optional<Point> second_;
};

} // namespace zcc
