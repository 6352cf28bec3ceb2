// One way down from a plan that needs much to plans that need less.
#pragma once

#include "passes/plan/Trials.h"
#include <set>

namespace zcc {

/// From its first plan on, each takes what saves most bytes for its time, until one fits and some way on. Budgets of memory say
/// only where a chain ends, not how it goes: so what it finds for a larger budget is known, and what is faster than that is a
/// quirk of the schedule, and dropped. A larger budget never gives a slower step.
class PlanChain {
public:
  PlanChain(Trials &trials, const Options &options, llvm::ArrayRef<Axis> axes, const Trial &plain)
      : trials_(trials), options_(options), axes_(axes), plain_(plain), frozen_(axes.size()) {}
  /// `fixed`: so many axes are in the first plan as a flag may have them.
  llvm::Error begin(const Point &first, size_t fixed);
  /// Takes a step, or ends. Where that begins to use an axis that a flag may forbid, another chain goes on without it from here.
  llvm::Expected<std::optional<PlanChain>> advance();
  /// Looks closer between the last that does not fit and the first that does.
  llvm::Error finish();

  bool hasEnded() const { return hasEnded_; }
  /// How many axes are fixed, by its first plan or because it does not use them.
  size_t fixed() const { return fixed_; }
  int64_t floor() const { return floor_; }              ///< nothing that it may still find is faster, ns
  int64_t fitNs() const { return fitNs_; }              ///< of the fastest that fits of what may be taken
  const std::set<Point> &open() const { return open_; } ///< what may be taken

private:
  /// A step along one axis, and bytes a microsecond; below 0: it saves nothing.
  struct Step {
    size_t axis;
    unsigned level;
    int64_t value;
  };
  /// Back along an axis, by so many levels.
  struct Way {
    size_t axis;
    unsigned jump;
  };
  llvm::Error carryOut(llvm::ArrayRef<Point> points, llvm::ArrayRef<Point> next = {});
  llvm::Expected<std::optional<Point>> bestStep();
  std::vector<Step> stepsFrom(const Point &from) const;
  std::vector<Point> firstLook(const Point &from) const;
  int64_t valueOf(const Point &from, const Point &to) const;
  std::vector<Point> varied(const Point &p) const;
  llvm::Error vary(const Point &p, llvm::ArrayRef<Point> next);
  std::vector<Way> waysBack(const Point &from) const;
  static std::vector<Way> longer(const Point &from, llvm::ArrayRef<Way> ways);
  static std::vector<Point> along(const Point &from, llvm::ArrayRef<Way> ways);
  llvm::Error lookCloser(const Point &from, const Point &to);
  llvm::Error giveBack(Point at, int64_t most);
  llvm::Expected<std::optional<Point>> bestStepBack(const Point &from, int64_t most);
  bool isFit(const Point &p) const;
  bool isBehind(const Point &p) const;
  int64_t bestWithin(int64_t memory) const;

  Trials &trials_;
  const Options &options_;
  llvm::ArrayRef<Axis> axes_;
  const Trial &plain_;
  size_t fixed_ = 0;
  std::vector<bool> frozen_; ///< axes that it does not use
  std::vector<Point> points_;
  std::set<Point> open_, seen_;
  std::vector<Step> steps_;
  unsigned inVain_ = 0; ///< steps in a row at which other levels of what varies were not faster
  int64_t floor_ = 0, fitNs_ = INT64_MAX;
  bool hasEnded_ = false;
};

/// Whether it is faster than the plain plan, yet so little that it is a quirk of the schedule: where all fits, nothing is to be
/// slower than with less memory.
bool isQuirk(const Trial &t, const Trial &plain);
/// What exceeds the budgets, bytes; INT64_MAX: a pass refuses it.
int64_t excess(const Trial &t, const Options &o);
/// Time that the second saves for its bytes, above 0; 0: none.
int64_t gainOf(const Trial &from, const Trial &to);
/// Steps down an axis are at least so long; a last look goes closer.
unsigned strideOf(const Axis &a);

} // namespace zcc
