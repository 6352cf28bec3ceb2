// The plan that fits the budgets in the least predicted time.
#pragma once

#include "passes/plan/PlanChain.h"
#include <cmath>

namespace zcc {

/// Chains of plans lead down from what needs most, one for each order and share. Each that begins to use what a flag may forbid
/// leaves another behind that does not, and others begin where all is elsewhere that a flag may send there: what is found with an
/// axis fixed is found with it left open, too, as far as the number of trials allows. A chain that can no longer end with less
/// than what fits is left. Where an axis has further levels near each, another way leads up from what needs least, whatever the
/// budget is, as far as that allows; and what almost fits is changed until it does. At the end what the best of each way takes
/// along one axis is exchanged for more along another, and what lies near the best of all is looked at. Then a smaller budget is
/// looked at the same way. Of all that was tried on the way the fastest that fits is taken. Where nothing else fits, what needs
/// least is taken: if that does not fit, nothing does. Where there are few plans, all are tried.
class PlanSearch {
public:
  PlanSearch(const Module &m, const PassContext &ctx, llvm::ArrayRef<Axis> axes)
      : module_(m), options_(ctx.options), axes_(axes), trials_(m, ctx, axes) {}
  llvm::Error run();
  /// No further than to something that fits, or what needs least: that is taken.
  llvm::Error runLeast();

  const Trials &trials() const { return trials_; }
  const Point &plain() const { return plain_; }
  const Point &taken() const { return taken_; }
  const std::optional<Point> &second() const { return second_; } ///< the next best that fits
  bool hasFit() const { return isFit(taken_); }

private:
  /// So many of those that are looked at next other threads may begin with.
  static constexpr size_t kExpected = 8;

  bool mayTryAll() const;
  size_t trialsFor(size_t nodes) const;
  size_t mostTrials() const;
  llvm::Error tryAll();
  llvm::Error findLeast();
  llvm::Error descend(size_t axis);
  std::vector<Point> starts() const;
  std::vector<Point> otherStarts() const;
  llvm::Error begin(llvm::ArrayRef<Point> points);
  int next(size_t count) const;
  llvm::Error search(bool triesAll);
  llvm::Error searchSmaller();
  llvm::Error walk();
  llvm::Error advance(size_t chain);
  void open(const Point &p);
  llvm::Error offer(llvm::ArrayRef<Point> points, llvm::ArrayRef<Point> next = {});
  llvm::Error climb(size_t axis, Point at);
  llvm::Expected<Point> lowest(size_t axis);
  bool isNearFit(const Trial &t) const;
  std::vector<Point> almostFits() const;
  llvm::Error stepDown(size_t axis);
  /// What an axis' level may be changed in.
  struct Change {
    unsigned number;
    double rate = INFINITY;  ///< bytes a nanosecond, when it was tried last
    std::optional<Point> to; ///< where it led then; nothing where it changes nothing
  };
  std::vector<Change> changesOf(size_t axis, const Point &at) const;
  llvm::Error rate(size_t axis, const Point &at, llvm::MutableArrayRef<Change> changes, int64_t most);
  llvm::Error fall(size_t axis, Point at, std::vector<Change> changes, size_t mostTrials);
  llvm::Error swap(size_t axis);
  llvm::Error tighten(size_t axis);
  std::vector<Point> untried(llvm::ArrayRef<std::vector<Point>> lists) const;
  llvm::Error goDown(llvm::ArrayRef<Point> down, llvm::ArrayRef<std::vector<Point>> later, size_t mostTrials);
  llvm::Error exchange(const Point &from, size_t mostTrials);
  std::vector<Point> ways() const;
  llvm::Error exchange();
  const Point *fastest() const;
  llvm::Error lookCloser(size_t axis, size_t mostTrials);
  llvm::Error lookCloser();
  void choose();
  bool isFit(const Point &p) const { return excess(trials_.at(p), options_) == 0; }
  bool needsLess(const Point &a, const Point &b) const;
  bool isBetter(const Point &a, const Point &b) const;

  const Module &module_;
  Options options_; ///< as asked for, but for the budget that is looked at
  llvm::ArrayRef<Axis> axes_;
  size_t fewer_ = 1; ///< so many times fewer trials now
  Trials trials_;
  std::vector<PlanChain> chains_;
  std::set<Point> open_;     ///< what may be taken
  int64_t best_ = INT64_MAX; ///< ns of the fastest that fits of that
  Point plain_, taken_;
  std::optional<Point> second_;
};

} // namespace zcc
