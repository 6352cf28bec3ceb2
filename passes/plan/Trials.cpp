// Runs the rest of the pipeline for each trial.
#include "passes/plan/Trials.h"
#include "passes/Pipeline.h"
#include "passes/Refusal.h"
#include "passes/Target.h"
#include "passes/TimedSchedule.h"
#include <atomic>
#include <cmath>
#include <optional>
#include <thread>

using namespace zcc;

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

llvm::Error Trials::carryOut(llvm::ArrayRef<Point> points) {
  std::vector<std::pair<const Point *, Trial *>> open;
  for (const Point &p : points)
    if (auto [at, isNew] = done_.try_emplace(key(p)); isNew)
      open.push_back({&at->first, &at->second});
  std::vector<std::optional<llvm::Error>> failed(open.size());
  std::atomic<size_t> next = 0;
  auto work = [&] {
    for (size_t i; (i = next++) < open.size();)
      if (llvm::Error e = carryOut(*open[i].second, *open[i].first))
        failed[i] = std::move(e);
  };
  std::vector<std::thread> others;
  for (unsigned i = 1; i < std::min<size_t>(std::thread::hardware_concurrency(), open.size()); ++i)
    others.emplace_back(work);
  work();
  for (std::thread &t : others)
    t.join();
  llvm::Error first = llvm::Error::success(); // as it is: a refusal stays one
  for (auto &e : failed)
    if (e && first)
      llvm::consumeError(std::move(*e));
    else if (e)
      first = std::move(*e);
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
