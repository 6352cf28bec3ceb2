// What is near to a plan: changes of what almost fits, swaps of what is kept, and what lies between steps.
#include "passes/plan/PlanSearch.h"
#include <numeric>

using namespace zcc;

/// What does not fit by less than such a part of the budget is looked at closer, in trials of so many nodes in all.
constexpr int64_t kFewParts = 8;
constexpr size_t kTightened = size_t(1) << 16;
/// So many of what almost fits are changed, in trials of so many nodes in all; so many changes are tried at once.
constexpr size_t kFalls = 6, kFallen = size_t(3) << 20, kAtOnce = 4;
/// Their promise is by what is too much, and such a part of the budget.
constexpr int64_t kLittleParts = 64;
/// Values of the fastest are swapped in trials of so many nodes in all.
constexpr size_t kSwapped = size_t(1) << 19;
/// What lies between steps is looked at in trials of so many nodes in all, and of so many at once.
constexpr size_t kLooked = size_t(1) << 17, kClosest = 16;

/// Whether it fits, or needs little more memory.
bool PlanSearch::isNearFit(const Trial &t) const {
  const Needs over = excessOf(t.needs, options_);
  return t.isPossible && over.memory <= options_.memoryBudget / kFewParts && !over.host && !over.disk;
}

/// What is faster than all that fits and needs little more memory.
std::vector<Point> PlanSearch::almostFits() const {
  std::vector<Point> out;
  for (auto &[p, t] : trials_.all())
    if (t.ns < best_ && isNearFit(t) && !isFit(p))
      out.push_back(p);
  return out;
}

std::vector<PlanSearch::Change> PlanSearch::changesOf(size_t axis, const Point &at) const {
  std::vector<Change> changes;
  for (unsigned number : axes_[axis].changes(at[axis]))
    changes.push_back({number});
  return changes;
}

/// Tries some changes: what each frees of `most` bytes that have to be freed for its time.
llvm::Error PlanSearch::rate(size_t axis, const Point &at, llvm::MutableArrayRef<Change> changes, int64_t most) {
  std::vector<Point> points;
  for (Change &c : changes) {
    const std::optional<unsigned> level = axes_[axis].changed(at[axis], c.number);
    c.to = level ? std::optional(withLevel(at, axis, *level)) : std::nullopt;
    if (c.to)
      points.push_back(*c.to);
  }
  if (llvm::Error e = offer(points))
    return e;
  const Trial &now = trials_.at(at);
  for (Change &c : changes) {
    const Trial *t = c.to ? &trials_.at(*c.to) : nullptr;
    const int64_t freed = t && t->isPossible ? now.needs.memory - t->needs.memory : 0;
    c.rate = freed > 0 ? double(std::min(freed, most)) / double(std::max<int64_t>(t->ns - now.ns, 1)) : 0;
  }
  return llvm::Error::success();
}

/// Change by change, the best of an axis' first, until it fits or is no longer faster. What a change is worth depends on the
/// others, yet little: one is tried again where it was better than the best so far when it was tried last (Minoux' lazy greedy
/// algorithm, "Accelerated greedy algorithms for maximizing submodular set functions", 1978). What the last change frees beyond
/// that may hold another value again.
llvm::Error PlanSearch::fall(size_t axis, Point at, std::vector<Change> changes, size_t mostTrials) {
  while (!isFit(at) && trials_.at(at).ns < best_ && trials_.all().size() < mostTrials) {
    const int64_t over = excessOf(trials_.at(at).needs, options_).memory;
    llvm::stable_sort(changes, [](const Change &a, const Change &b) { return a.rate > b.rate; });
    const Change *best = nullptr;
    auto bestRate = [&] { return best ? best->rate : 0; };
    for (size_t i = 0; i < changes.size() && changes[i].rate > bestRate(); i += kAtOnce) {
      auto some = llvm::MutableArrayRef(changes).slice(i).take_front(kAtOnce);
      if (llvm::Error e = rate(axis, at, some, over))
        return e;
      for (const Change &c : some)
        best = c.rate > bestRate() ? &c : best;
    }
    if (!best)
      break;
    at = *best->to;
  }
  return isFit(at) && axes_[axis].near ? climb(axis, at) : llvm::Error::success();
}

/// Of what the fastest computes again one value is kept, and others no longer, as long as that makes it faster.
llvm::Error PlanSearch::swap(size_t axis) {
  const size_t most = trials_.all().size() + trialsFor(kSwapped);
  std::set<Point> known;
  for (const Point *at = fastest(); at && known.insert(*at).second && trials_.all().size() < most; at = fastest()) {
    const Point from = *at;
    std::vector<Change> changes = changesOf(axis, from);
    if (llvm::Error e = rate(axis, from, changes, INT64_MAX))
      return e;
    std::vector<Point> points;
    for (unsigned level : axes_[axis].near(from[axis]))
      points.push_back(withLevel(from, axis, level));
    if (llvm::Error e = offer(points))
      return e;
    llvm::stable_sort(points, [&](const Point &a, const Point &b) { return trials_.at(a).ns < trials_.at(b).ns; });
    for (const Point &p : points)
      if (llvm::Error e = trials_.at(p).isPossible ? fall(axis, p, changes, most) : llvm::Error::success())
        return e;
  }
  return llvm::Error::success();
}

/// From where most time may be won for the memory that is too much, and a little.
llvm::Error PlanSearch::stepDown(size_t axis) {
  std::vector<std::pair<double, Point>> from;
  for (Point &p : almostFits()) {
    const Trial &t = trials_.at(p);
    const int64_t over = excessOf(t.needs, options_).memory + options_.memoryBudget / kLittleParts;
    from.push_back({double(best_ - t.ns) / double(over), std::move(p)});
  }
  llvm::stable_sort(from, [](auto &a, auto &b) { return a.first > b.first; });
  const size_t most = trialsFor(kFallen) / kFalls;
  for (auto &[promise, p] : llvm::ArrayRef(from).take_front(kFalls))
    if (llvm::Error e = fall(axis, p, changesOf(axis, p), trials_.all().size() + most))
      return e;
  return llvm::Error::success();
}

/// What almost fits may fit with a further level of an axis.
llvm::Error PlanSearch::tighten(size_t axis) {
  std::vector<std::pair<int64_t, Point>> near;
  for (Point &p : almostFits())
    near.push_back({trials_.at(p).ns, std::move(p)});
  llvm::sort(near);
  struct Look {
    const Point *from;
    int64_t ns; ///< of that
    Point point;
  };
  std::vector<Look> looks;
  std::set<Point> seen; // at level 0 of the axis
  for (auto &[ns, p] : near) {
    Point q = p;
    q[axis] = 0;
    if (seen.insert(q).second)
      for (q[axis] = p[axis] + 1; q[axis] < axes_[axis].levels; ++q[axis])
        looks.push_back({&p, ns, q});
  }
  const size_t most = trials_.all().size() + trialsFor(kTightened);
  for (size_t i = 0; i < looks.size() && looks[i].ns < best_ && trials_.all().size() < most; ++i) {
    const Point &p = looks[i].point;
    std::vector<Point> next;
    for (const Look &l : llvm::ArrayRef(looks).slice(i + 1).take_front(kExpected))
      next.push_back(l.point);
    if (llvm::Error e = offer(p, next))
      return e;
    if (!isFit(p))
      continue;
    while (i + 1 < looks.size() && looks[i + 1].from == looks[i].from) // its further levels
      ++i;
  }
  return llvm::Error::success();
}

/// Steps are long: what lies between the fastest and the step before it, along one axis; then what lies between neighbours.
llvm::Error PlanSearch::lookCloser(size_t axis, size_t mostTrials) {
  const Axis &a = axes_[axis];
  const Point *at = fastest();
  if (!at || (*at)[axis] >= a.levels)
    return llvm::Error::success();
  const Point from = *at;
  auto look = [&](llvm::ArrayRef<unsigned> levels) {
    std::vector<Point> points;
    for (size_t k = 0, count = std::min(levels.size(), kClosest); k < count; ++k)
      points.push_back(withLevel(from, axis, levels[levels.size() * (k + 1) / count - 1]));
    return trials_.all().size() < mostTrials ? offer(points) : llvm::Error::success();
  };
  const unsigned last = from[axis], first = last - std::min(last, strideOf(a) - 1);
  std::vector<unsigned> levels(last - first);
  std::iota(levels.begin(), levels.end(), first);
  if (llvm::Error e = look(levels))
    return e;
  const unsigned found = (*fastest())[axis];
  return a.before && found && found < a.levels ? look(a.before(found)) : llvm::Error::success();
}

llvm::Error PlanSearch::lookCloser() {
  const size_t most = trials_.all().size() + trialsFor(kLooked);
  for (size_t a = 0; a < axes_.size(); ++a)
    if (!axes_[a].varies && !axes_[a].shifts)
      if (llvm::Error e = lookCloser(a, most))
        return e;
  return llvm::Error::success();
}
