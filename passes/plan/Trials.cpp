// Runs the rest of the pipeline for each trial.
#include "passes/plan/Trials.h"
#include "passes/Pipeline.h"
#include "passes/Refusal.h"
#include "passes/Target.h"
#include "passes/TimedSchedule.h"
#include <cmath>

using namespace zcc;

Point zcc::withLevel(Point p, size_t axis, unsigned level) {
  p[axis] = level;
  return p;
}

void zcc::note(Module &m, llvm::ArrayRef<Axis> axes, const Point &p) {
  for (size_t a = 0; a < axes.size(); ++a)
    axes[a].note(m, p[a]);
}

llvm::Error zcc::carryOut(Module &m, const PassContext &ctx) {
  static const DumpOptions forTrials = [] {
    DumpOptions d = DumpOptions::quiet();
    d.renames = false;
    return d;
  }();
  PassManager pm(ctx.options, forTrials, ctx.target);
  buildBehindPlan(pm, ctx.options);
  return pm.run(m);
}

llvm::Error Trials::carryOut(Trial &t, const Point &p) const {
  sortFreePieces(); // of the trials before
  std::unique_ptr<Module> copy = m_.clone();
  note(*copy, axes_, p);
  if (llvm::Error e = zcc::carryOut(*copy, ctx_)) {
    bool isPlain = llvm::all_of(p, [](unsigned level) { return level == 0; });
    if (!e.isA<Refusal>() || isPlain)
      return e;
    llvm::consumeError(std::move(e));
    return llvm::Error::success();
  }
  auto whole = [](double seconds) { return int64_t(std::llround(seconds * 1e9)); };
  StepCost cost = costOfStep(*copy, ctx_.options, machineOf(ctx_.target));
  t.isPossible = true;
  t.needs = needsOf(*copy, ctx_.options, ctx_.target);
  t.ns = whole(cost.seconds);
  for (size_t e = 0; e < kEngines; ++e)
    t.busyNs[e] = whole(cost.busy[e]);
  t.takenNs = whole(cost.taken);
  return llvm::Error::success();
}

Point Trials::key(Point p) const {
  auto isOn = [&](const std::string &name) {
    for (size_t a = 0; a < axes_.size(); ++a)
      if (axes_[a].name == name && p[a])
        return true;
    return false;
  };
  for (size_t a = 0; a < axes_.size(); ++a)
    if (!axes_[a].beside.empty() && llvm::none_of(axes_[a].beside, isOn))
      p[a] = 0;
  return p;
}

// ---- threads

/// Carries out the first of a queue.
void Trials::run(std::deque<Entry *> &from, std::unique_lock<std::mutex> &lock) {
  auto &[point, task] = *from.front();
  from.pop_front();
  task.state = Task::Runs;
  lock.unlock();
  llvm::Error e = carryOut(task.trial, point);
  lock.lock();
  if (e)
    task.failed = std::move(e);
  task.state = Task::Done;
  changed_.notify_all();
}

void Trials::help() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return ends_ || !asked_.empty() || !next_.empty(); });
    if (ends_)
      return;
    run(asked_.empty() ? next_ : asked_, lock);
  }
}

Trials::~Trials() {
  {
    std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  for (std::thread &t : helpers_)
    t.join();
  for (auto &[point, task] : tasks_)
    if (task.failed)
      llvm::consumeError(std::move(*task.failed)); // nobody has asked
}

llvm::Error Trials::carryOut(llvm::ArrayRef<Point> points, llvm::ArrayRef<Point> next) {
  while (helpers_.size() + 1 < std::thread::hardware_concurrency())
    helpers_.emplace_back([this] { help(); });
  std::unique_lock lock(mutex_);
  std::vector<Entry *> wanted;
  auto enqueue = [&](const Point &p, std::deque<Entry *> &queue) -> Entry * {
    Point k = key(p);
    if (done_.count(k))
      return nullptr;
    Entry &e = *tasks_.try_emplace(std::move(k)).first;
    if (e.second.state == Task::Waits && !llvm::is_contained(asked_, &e) && !llvm::is_contained(queue, &e))
      queue.push_back(&e);
    return &e;
  };
  next_.clear();
  for (const Point &p : points)
    if (Entry *e = enqueue(p, asked_); e && !llvm::is_contained(wanted, e))
      wanted.push_back(e);
  for (const Point &p : next)
    enqueue(p, next_);
  changed_.notify_all();
  auto isDone = [&] { return llvm::all_of(wanted, [](Entry *e) { return e->second.state == Task::Done; }); };
  while (!isDone())
    if (!asked_.empty() || !next_.empty())
      run(asked_.empty() ? next_ : asked_, lock);
    else
      changed_.wait(lock);
  llvm::Error first = llvm::Error::success(); // as it is: a refusal stays one
  for (Entry *e : wanted) {
    if (auto &failed = e->second.failed; failed && first)
      llvm::consumeError(std::move(*failed));
    else if (failed)
      first = std::move(*failed);
    done_.emplace(e->first, std::move(e->second.trial));
    tasks_.erase(tasks_.find(e->first));
  }
  return first;
}

PlanChoice Trials::choice(const Point &p) const {
  const Trial &t = at(p);
  PlanChoice c{{}, t.needs, t.ns, t.busyNs};
  for (size_t a = 0; a < axes_.size(); ++a)
    if (std::string text = p[a] ? axes_[a].text(p[a]) : ""; !text.empty())
      c.decisions.push_back(std::move(text));
  return c;
}
