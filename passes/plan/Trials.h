// Ways to train, carried out on copies of a module: bytes are exact, and the time is the one that --plan predicts.
#pragma once

#include "passes/plan/Axes.h"
#include "passes/plan/PlanReport.h"
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

namespace zcc {

/// A level of each axis.
using Point = std::vector<unsigned>;
/// The same, but for one axis.
Point withLevel(Point p, size_t axis, unsigned level);

struct Trial {
  bool isPossible = false; ///< no pass refuses it
  Needs needs;
  int64_t ns = 0;
  std::array<int64_t, kEngines> busyNs{};
  int64_t takenNs = 0; ///< of compute's, as StepCost has it
};

/// Writes the notes of a point.
void note(Module &m, llvm::ArrayRef<Axis> axes, const Point &p);
/// Runs the passes behind choose-plan.
llvm::Error carryOut(Module &m, const PassContext &ctx);

/// Trials that have been carried out, each once, by as many threads as there are processors.
class Trials {
public:
  Trials(const Module &m, const PassContext &ctx, llvm::ArrayRef<Axis> axes) : m_(m), ctx_(ctx), axes_(axes) {}
  ~Trials();
  Trials(const Trials &) = delete;
  /// Several at once. An error is a fault of a pass: what one refuses is not possible. `next` may be asked for after them, in
  /// that order: threads that have nothing else to do begin with it, which changes nothing but the time that it takes.
  llvm::Error carryOut(llvm::ArrayRef<Point> points, llvm::ArrayRef<Point> next = {});
  const Trial &at(const Point &p) const { return done_.find(key(p))->second; }
  bool has(const Point &p) const { return done_.count(key(p)); }
  /// The same plan, at level 0 of each axis that decides nothing beside the others.
  Point key(Point p) const;
  const std::map<Point, Trial> &all() const { return done_; } ///< that were asked for
  PlanChoice choice(const Point &p) const;

private:
  struct Task {
    enum { Waits, Runs, Done } state = Waits;
    Trial trial;
    std::optional<llvm::Error> failed;
  };
  using Entry = std::pair<const Point, Task>;
  llvm::Error carryOut(Trial &t, const Point &p) const;
  void run(std::deque<Entry *> &from, std::unique_lock<std::mutex> &lock);
  void help();

  const Module &m_;
  const PassContext &ctx_;
  llvm::ArrayRef<Axis> axes_;
  std::map<Point, Trial> done_;
  std::mutex mutex_; ///< of all below
  std::condition_variable changed_;
  std::map<Point, Task> tasks_; ///< what nobody has asked for yet, or is being asked for
  std::deque<Entry *> asked_, next_;
  bool ends_ = false;
  std::vector<std::thread> helpers_;
};

} // namespace zcc
