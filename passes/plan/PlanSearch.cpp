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
llvm::Expected<std::optional<Point>> PlanSearch::bestStep(const Point &from, std::vector<Step> &steps) {
  steps = stepsFrom(from, steps);
  std::vector<bool> isFresh(steps.size());
  auto target = [&](const Step &s) {
    Point p = from;
    p[s.axis] = s.level;
    return p;
  };
  while (true) {
    int best = -1;
    std::vector<size_t> order;
    for (size_t i = 0; i < steps.size(); ++i)
      if (!isFresh[i])
        order.push_back(i);
      else if (steps[i].value >= 0 && (best < 0 || steps[i].value > steps[best].value))
        best = int(i);
    llvm::erase_if(order, [&](size_t i) { return best >= 0 && steps[i].value <= steps[best].value; });
    llvm::stable_sort(order, [&](size_t a, size_t b) { return steps[a].value > steps[b].value; });
    if (order.empty())
      return best < 0 ? std::nullopt : std::optional(target(steps[best]));
    order.resize(std::min(order.size(), kAtOnce));
    std::vector<Point> points;
    for (size_t i : order)
      points.push_back(target(steps[i]));
    if (llvm::Error e = trials_.carryOut(points))
      return e;
    for (size_t k = 0; k < order.size(); ++k) {
      steps[order[k]].value = valueOf(from, points[k]);
      isFresh[order[k]] = true;
    }
  }
}

/// The whole chain; where what is faster than the plain plan fits already, no more than that.
llvm::Error PlanSearch::walk(Point from) {
  Chain chain = {from};
  std::vector<Step> steps;
  bool isFree = true;
  int64_t fastest = INT64_MAX;
  if (llvm::Error e = trials_.carryOut(from))
    return e;
  while (true) {
    auto to = bestStep(chain.back(), steps);
    if (!to)
      return to.takeError();
    if (isFree && !(*to && trials_.at(**to).ns < trials_.at(chain.back()).ns)) {
      isFree = false;
      fastest = bestWithin(INT64_MAX);
      if (isFit(chain.back()))
        break;
    }
    if (!*to)
      break;
    chain.push_back(**to);
  }
  if (llvm::Error e = vary(chain))
    return e;
  for (auto &[p, t] : trials_.all())
    if (t.ns < fastest)
      dropped_.insert(p);
  chains_.push_back(std::move(chain));
  return llvm::Error::success();
}

/// At each step but the first, whatever the budget.
llvm::Error PlanSearch::vary(const Chain &chain) {
  std::vector<Point> points;
  for (size_t a = 0; a < axes_.size(); ++a)
    for (const Point &p : llvm::drop_begin(chain))
      for (unsigned level = 1; axes_[a].varies && level < axes_[a].levels; ++level) {
        points.push_back(p);
        points.back()[a] = level;
      }
  return trials_.carryOut(points);
}

bool PlanSearch::isFit(const Point &p) const { return trials_.at(p).isPossible && fits(trials_.at(p).needs, options_); }

/// The least time of what fits, were this the budget of memory.
int64_t PlanSearch::bestWithin(int64_t memory) const {
  int64_t best = INT64_MAX;
  for (auto &[p, t] : trials_.all()) {
    Needs over = excessOf(t.needs, options_);
    if (t.isPossible && t.needs.memory <= memory && !over.host && !over.disk && !dropped_.count(p))
      best = std::min(best, t.ns);
  }
  return best;
}

llvm::Error PlanSearch::lookCloser(const Chain &chain) {
  for (size_t i = 0; i + 1 < chain.size(); ++i) {
    const Point &from = chain[i], &to = chain[i + 1];
    if (!isFit(to))
      continue;
    if (isFit(from))
      break;
    int64_t fastest = bestWithin(trials_.at(from).needs.memory);
    size_t axis = std::mismatch(from.begin(), from.end(), to.begin()).first - from.begin();
    std::vector<Point> points;
    unsigned levels = to[axis] - from[axis], count = std::min(levels, kCloser);
    for (unsigned k = 1; k < count; ++k) {
      points.push_back(from);
      points.back()[axis] += levels * k / count;
    }
    llvm::erase_if(points, [&](const Point &p) { return trials_.has(p); });
    if (llvm::Error e = trials_.carryOut(points))
      return e;
    for (const Point &p : points)
      if (trials_.at(p).ns < fastest)
        dropped_.insert(p);
    break;
  }
  return llvm::Error::success();
}

/// Of what fits, the fastest; of what does not, what exceeds the budgets least.
bool PlanSearch::isBetter(const Point &a, const Point &b) const {
  const Trial &x = trials_.at(a), &y = trials_.at(b);
  auto over = [&](const Trial &t) {
    Needs n = excessOf(t.needs, options_);
    return n.memory + n.host + n.disk;
  };
  auto rank = [&](const Trial &t) { return std::tuple(over(t), t.ns, t.needs.memory, t.needs.disk); };
  return rank(x) < rank(y);
}

void PlanSearch::choose() {
  taken_ = plain_;
  for (auto &[p, t] : trials_.all())
    if (t.isPossible && !dropped_.count(p) && isBetter(p, taken_))
      taken_ = p;
  for (auto &[p, t] : trials_.all())
    if (p != taken_ && isFit(p) && !dropped_.count(p) && (!second_ || isBetter(p, *second_)))
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
  return trials_.carryOut(points);
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
  if (mayTryAll()) {
    if (llvm::Error e = tryAll())
      return e;
    choose();
    return llvm::Error::success();
  }
  std::vector<Point> starts = {plain_};
  for (size_t a = 0; a < axes_.size(); ++a)
    for (unsigned level = 1; axes_[a].shifts && level < axes_[a].levels; ++level) {
      starts.push_back(plain_);
      starts.back()[a] = level;
    }
  for (const Point &p : starts)
    if (llvm::Error e = walk(p))
      return e;
  for (const Chain &c : chains_)
    if (llvm::Error e = lookCloser(c))
      return e;
  choose();
  return llvm::Error::success();
}
