// Walks down from the plan that needs most.
#include "passes/plan/PlanSearch.h"
#include <algorithm>

using namespace zcc;

/// Trials of one round; several processors carry them out, and their number must not change what is found.
constexpr size_t kAtOnce = 4;
/// Steps down an axis are at least such a part of it; the last look goes closer.
constexpr unsigned kSteps = 12;
/// Steps that save less than such a part of the plain need are not taken.
constexpr int64_t kLeastGain = 2048;
constexpr unsigned kCloser = 8;
/// All plans are tried where these have so many nodes in all.
constexpr size_t kTriedNodes = size_t(1) << 17;

static unsigned strideOf(const Axis &a) { return std::max(1u, (a.levels - 1) / kSteps); }

/// Bytes that a step saves, a microsecond.
int64_t PlanSearch::valueOf(const Point &from, const Point &to) const {
  const Trial &a = trials_.at(from), &b = trials_.at(to), &plain = trials_.at(plain_);
  if (!b.isPossible)
    return -1;
  int64_t bytes = a.needs.memory - b.needs.memory, ns = b.ns - a.ns;
  if (bytes >= 0 && ns < 0)
    return INT64_MAX;
  if (bytes <= plain.needs.memory / kLeastGain)
    return -1;
  return bytes * 1000 / std::max<int64_t>(ns, 1);
}

/// Short steps and long ones: what a short one does not save, a long one may. Values are those of the last time that they were
/// looked at, as a rule too high; but a short step that saved nothing may do so once other steps have been taken.
std::vector<PlanSearch::Step> PlanSearch::stepsFrom(const Point &from, const std::vector<Step> &known) const {
  std::vector<Step> out;
  auto add = [&](size_t axis, unsigned level) {
    auto old = llvm::find_if(known, [&](const Step &s) { return s.axis == axis && s.level == level; });
    bool isShortest = out.empty() || out.back().axis != axis;
    bool isUnknown = old == known.end() || (isShortest && old->value < 0);
    out.push_back({axis, level, isUnknown ? INT64_MAX : old->value});
  };
  for (size_t a = 0; a < axes_.size(); ++a) {
    if (axes_[a].shifts || axes_[a].varies)
      continue;
    unsigned last = axes_[a].levels - 1;
    for (unsigned jump = strideOf(axes_[a]); from[a] + jump < last; jump *= 2)
      add(a, from[a] + jump);
    if (from[a] < last)
      add(a, last);
  }
  return out;
}

/// The best step, looking again only at those that may be it.
llvm::Expected<std::optional<Point>> PlanSearch::bestStep(Chain &c, std::vector<Step> &steps) {
  const Point &from = c.points.back();
  steps = stepsFrom(from, steps);
  std::vector<bool> isFresh(steps.size());
  auto target = [&](const Step &s) {
    Point p = from;
    p[s.axis] = s.level;
    return p;
  };
  while (true) {
    int best = -1;
    llvm::SmallVector<size_t> order;
    for (size_t i = 0; i < steps.size(); ++i)
      if (!isFresh[i])
        order.push_back(i);
      else if (steps[i].value >= 0 && (best < 0 || steps[i].value > steps[best].value))
        best = int(i);
    llvm::erase_if(order, [&](size_t i) { return best >= 0 && steps[i].value <= steps[best].value; });
    llvm::stable_sort(order, [&](size_t a, size_t b) { return steps[a].value > steps[b].value; });
    if (order.empty())
      return best < 0 ? std::nullopt : std::optional(target(steps[best]));
    order.truncate(std::min(order.size(), kAtOnce));
    std::vector<Point> points;
    for (size_t i : order)
      points.push_back(target(steps[i]));
    if (llvm::Error e = carryOut(c, points))
      return e;
    for (size_t k = 0; k < order.size(); ++k) {
      steps[order[k]].value = valueOf(from, points[k]);
      isFresh[order[k]] = true;
    }
  }
}

/// What is tried for a chain may be taken, unless it is faster than what a larger budget has found.
llvm::Error PlanSearch::carryOut(Chain &c, llvm::ArrayRef<Point> points) {
  if (llvm::Error e = trials_.carryOut(points))
    return e;
  for (const Point &p : points)
    if (Point key = trials_.key(p); c.seen.insert(key).second && trials_.at(p).ns >= c.floor)
      c.open.insert(std::move(key));
  return llvm::Error::success();
}

/// Until it fits; a step that makes a plan faster is taken whatever the budget.
llvm::Error PlanSearch::walk(Point from) {
  Chain c;
  std::vector<Step> steps;
  c.points.push_back(from);
  if (llvm::Error e = carryOut(c, from))
    return e;
  while (true) {
    auto to = bestStep(c, steps);
    if (!to)
      return to.takeError();
    const Trial &last = trials_.at(c.points.back());
    bool isFree = *to && trials_.at(**to).ns < last.ns;
    if (!*to || (!isFree && isFit(c.points.back())))
      break;
    if (!isFree)
      c.floor = std::max(c.floor, bestWithin(c, last.needs.memory));
    c.points.push_back(**to);
    if (llvm::Error e = vary(c))
      return e;
  }
  if (llvm::Error e = lookCloser(c))
    return e;
  open_.insert(c.open.begin(), c.open.end());
  return llvm::Error::success();
}

/// The last of the chain with other levels of what varies, unless an engine is too busy for any of them to be faster.
llvm::Error PlanSearch::vary(Chain &c) {
  const Point &last = c.points.back();
  const Trial &t = trials_.at(last);
  if (*llvm::max_element(t.busyNs) >= bestWithin(c, t.needs.memory))
    return llvm::Error::success();
  std::vector<Point> points;
  for (size_t a = 0; a < axes_.size(); ++a)
    for (unsigned level = 1; axes_[a].varies && level < axes_[a].levels; ++level) {
      points.push_back(last);
      points.back()[a] = level;
    }
  return carryOut(c, points);
}

bool PlanSearch::isFit(const Point &p) const { return excess(p) == 0; }

/// The least time of what fits, were this the budget of memory.
int64_t PlanSearch::bestWithin(const Chain &c, int64_t memory) const {
  int64_t best = INT64_MAX;
  for (const Point &p : c.open) {
    const Trial &t = trials_.at(p);
    Needs over = excessOf(t.needs, options_);
    if (t.isPossible && t.needs.memory <= memory && !over.host && !over.disk)
      best = std::min(best, t.ns);
  }
  return best == INT64_MAX ? 0 : best;
}

/// Between the last that does not fit and the first that does.
llvm::Error PlanSearch::lookCloser(Chain &c) {
  if (c.points.size() < 2 || !isFit(c.points.back()))
    return llvm::Error::success();
  const Point &from = *std::prev(c.points.end(), 2), &to = c.points.back();
  if (isFit(from))
    return llvm::Error::success();
  size_t axis = std::mismatch(from.begin(), from.end(), to.begin()).first - from.begin();
  std::vector<Point> points;
  unsigned levels = to[axis] - from[axis], count = std::min(levels, kCloser);
  for (unsigned k = 1; k < count; ++k) {
    points.push_back(from);
    points.back()[axis] += levels * k / count;
  }
  return carryOut(c, points);
}

// ---- what needs least

/// What exceeds the budgets, bytes.
int64_t PlanSearch::excess(const Point &p) const {
  Needs n = excessOf(trials_.at(p).needs, options_);
  return trials_.at(p).isPossible ? n.memory + n.host + n.disk : INT64_MAX;
}

/// Along one axis in longer and longer steps, as long as that takes less.
llvm::Error PlanSearch::descend(size_t axis) {
  const int64_t last = axes_[axis].levels - 1;
  for (int64_t jump = strideOf(axes_[axis]); jump <= last; jump *= 2) {
    std::vector<Point> points;
    for (int64_t level : {taken_[axis] - jump, taken_[axis] + jump})
      if (level >= 0 && level <= last) {
        points.push_back(taken_);
        points.back()[axis] = unsigned(level);
      }
    if (llvm::Error e = trials_.carryOut(points))
      return e;
    const Point before = taken_;
    for (const Point &p : points)
      if (excess(p) < excess(taken_))
        taken_ = p;
    if (taken_ == before || !excess(taken_))
      break;
  }
  return llvm::Error::success();
}

/// Axis by axis from what takes least as a rule, until it fits or hardly anything takes less.
llvm::Error PlanSearch::findLeast() {
  constexpr int64_t kLeastPart = 128;
  Point p = plain_;
  for (size_t a = 0; a < axes_.size(); ++a)
    if (!axes_[a].varies && !axes_[a].shifts)
      p[a] = axes_[a].levels - 1;
  if (llvm::Error e = trials_.carryOut({plain_, p}))
    return e;
  taken_ = excess(p) < excess(plain_) ? p : plain_;
  for (int64_t before = INT64_MAX; excess(taken_) && excess(taken_) < before - before / kLeastPart;) {
    before = excess(taken_);
    for (size_t a = 0; a < axes_.size() && excess(taken_); ++a)
      if (llvm::Error e = descend(a))
        return e;
  }
  return llvm::Error::success();
}

/// Of what fits, the fastest; of what does not, what exceeds the budgets least.
bool PlanSearch::isBetter(const Point &a, const Point &b) const {
  auto rank = [&](const Point &p) {
    const Trial &t = trials_.at(p);
    return std::tuple(excess(p), t.ns, t.needs.memory, t.needs.disk);
  };
  return rank(a) < rank(b);
}

/// What needed least is taken only where nothing else fits.
void PlanSearch::choose() {
  for (const Point &p : open_)
    if (isFit(p) && (!second_ || isBetter(p, *second_)))
      second_ = p;
  if (second_)
    taken_ = *std::exchange(second_, std::nullopt);
  for (const Point &p : open_)
    if (isFit(p) && p != taken_ && (!second_ || isBetter(p, *second_)))
      second_ = p;
}

llvm::Error PlanSearch::tryAll() {
  std::vector<Point> points = {plain_};
  for (size_t a = 0; a < axes_.size(); ++a)
    for (size_t i = 0, n = points.size(); i < n; ++i)
      for (unsigned level = 1; level < axes_[a].levels; ++level) {
        points.push_back(points[i]);
        points.back()[a] = level;
      }
  if (llvm::Error e = trials_.carryOut(points))
    return e;
  taken_ = plain_;
  for (const Point &p : points)
    if (trials_.at(p).isPossible) {
      open_.insert(trials_.key(p));
      taken_ = isBetter(p, taken_) ? p : taken_;
    }
  return llvm::Error::success();
}

/// Small modules are tried in no time.
bool PlanSearch::mayTryAll() const {
  size_t nodes = 1;
  for (auto &f : module_.functions)
    nodes += f->nodes.size();
  return countOf(axes_) <= std::min(kTriedAll, kTriedNodes / nodes);
}

llvm::Error PlanSearch::run() {
  plain_.assign(axes_.size(), 0);
  if (llvm::Error e = mayTryAll() ? tryAll() : findLeast())
    return e;
  if (!mayTryAll() && hasFit()) {
    std::vector<Point> starts = {plain_};
    for (size_t a = 0; a < axes_.size(); ++a)
      for (unsigned level = 1; axes_[a].shifts && level < axes_[a].levels; ++level) {
        starts.push_back(plain_);
        starts.back()[a] = level;
      }
    for (const Point &p : starts)
      if (llvm::Error e = walk(p))
        return e;
  }
  choose();
  return llvm::Error::success();
}
