// Takes steps down, and looks closer where it ends.
#include "passes/plan/PlanChain.h"
#include <algorithm>

using namespace zcc;

/// Trials of one round; several processors carry them out, and their number must not change what is found.
constexpr size_t kAtOnce = 4;
/// Steps down an axis are at least such a part of it; the last look goes closer.
constexpr unsigned kSteps = 12;
/// Steps that save less than such a part of the plain need are not taken.
constexpr int64_t kLeastGain = 2048;
constexpr unsigned kCloser = 8;
/// A chain goes on behind the first that fits, as long as no more than such a part of the budget is left.
constexpr int64_t kRoomParts = 8;
/// What varies is looked at at each step; where that was in vain so many times in a row, at one of so many.
constexpr unsigned kVain = 3, kRest = 4;
/// So many steps back are taken from where it fits.
constexpr unsigned kBack = 6;
constexpr int64_t kQuirkParts = 1024;

unsigned zcc::strideOf(const Axis &a) { return std::max(1u, (a.levels - 1) / kSteps); }

bool zcc::isQuirk(const Trial &t, const Trial &plain) { return t.ns < plain.ns && t.ns > plain.ns - plain.ns / kQuirkParts; }

int64_t zcc::excess(const Trial &t, const Options &o) {
  Needs n = excessOf(t.needs, o);
  return t.isPossible ? n.memory + n.host + n.disk : INT64_MAX;
}

int64_t zcc::gainOf(const Trial &from, const Trial &to) {
  if (!to.isPossible || to.ns >= from.ns)
    return 0;
  return std::max<int64_t>((from.ns - to.ns) * 1024 / std::max<int64_t>(to.needs.memory - from.needs.memory, 1024), 1);
}

bool PlanChain::isFit(const Point &p) const { return excess(trials_.at(p), options_) == 0; }

/// The least time of what fits, were this the budget of memory.
int64_t PlanChain::bestWithin(int64_t memory) const {
  int64_t best = INT64_MAX;
  for (const Point &p : open_) {
    const Trial &t = trials_.at(p);
    Needs over = excessOf(t.needs, options_);
    if (t.isPossible && t.needs.memory <= memory && !over.host && !over.disk)
      best = std::min(best, t.ns);
  }
  return best == INT64_MAX ? 0 : best;
}

/// What is tried may be taken, unless it is faster than what a larger budget has found.
llvm::Error PlanChain::carryOut(llvm::ArrayRef<Point> points, llvm::ArrayRef<Point> next) {
  if (llvm::Error e = trials_.carryOut(points, next))
    return e;
  for (const Point &p : points) {
    const Trial &t = trials_.at(p);
    Point key = trials_.key(p);
    if (!seen_.insert(key).second || t.ns < floor_ || isQuirk(t, plain_))
      continue;
    open_.insert(std::move(key));
    if (isFit(p))
      fitNs_ = std::min(fitNs_, t.ns);
  }
  return llvm::Error::success();
}

// ---- steps down

/// Bytes that a step saves, a microsecond.
int64_t PlanChain::valueOf(const Point &from, const Point &to) const {
  const Trial &a = trials_.at(from), &b = trials_.at(to);
  if (!b.isPossible)
    return -1;
  int64_t bytes = a.needs.memory - b.needs.memory, ns = b.ns - a.ns;
  if (bytes >= 0 && ns < 0)
    return INT64_MAX;
  if (bytes <= plain_.needs.memory / kLeastGain)
    return -1;
  return bytes * 1000 / std::max<int64_t>(ns, 1);
}

/// Short steps and long ones: what a short one does not save, a long one may. Values are those of the last time that they were
/// looked at, as a rule too high; but a short step that saved nothing may do so once other steps have been taken.
std::vector<PlanChain::Step> PlanChain::stepsFrom(const Point &from) const {
  std::vector<Step> out;
  auto add = [&](size_t axis, unsigned level) {
    auto old = llvm::find_if(steps_, [&](const Step &s) { return s.axis == axis && s.level == level; });
    bool isShortest = out.empty() || out.back().axis != axis;
    bool isUnknown = old == steps_.end() || (isShortest && old->value < 0);
    out.push_back({axis, level, isUnknown ? INT64_MAX : old->value});
  };
  for (size_t a = 0; a < axes_.size(); ++a) {
    if (axes_[a].shifts || axes_[a].varies || frozen_[a])
      continue;
    unsigned last = axes_[a].levels - 1;
    for (unsigned jump = strideOf(axes_[a]); from[a] + jump < last; jump *= 2)
      add(a, from[a] + jump);
    if (from[a] < last)
      add(a, last);
  }
  return out;
}

/// What bestStep begins with.
std::vector<Point> PlanChain::firstLook(const Point &from) const {
  std::vector<Step> steps = stepsFrom(from);
  llvm::stable_sort(steps, [](const Step &a, const Step &b) { return a.value > b.value; });
  std::vector<Point> out;
  for (const Step &s : llvm::ArrayRef(steps).take_front(kAtOnce))
    out.push_back(withLevel(from, s.axis, s.level));
  return out;
}

/// The best step, looking again only at those that may be it.
llvm::Expected<std::optional<Point>> PlanChain::bestStep() {
  const Point from = points_.back();
  steps_ = stepsFrom(from);
  std::vector<bool> isFresh(steps_.size());
  auto target = [&](size_t i) { return withLevel(from, steps_[i].axis, steps_[i].level); };
  while (true) {
    int best = -1;
    llvm::SmallVector<size_t> order;
    for (size_t i = 0; i < steps_.size(); ++i)
      if (!isFresh[i])
        order.push_back(i);
      else if (steps_[i].value >= 0 && (best < 0 || steps_[i].value > steps_[best].value))
        best = int(i);
    llvm::erase_if(order, [&](size_t i) { return best >= 0 && steps_[i].value <= steps_[best].value; });
    llvm::stable_sort(order, [&](size_t a, size_t b) { return steps_[a].value > steps_[b].value; });
    if (order.empty())
      return best < 0 ? std::nullopt : std::optional(target(best));
    std::vector<Point> points, next = varied(target(order.front())); // the best of last time as a rule stays it
    for (size_t i : order)
      (points.size() < kAtOnce ? points : next).push_back(target(i));
    order.truncate(points.size());
    if (llvm::Error e = carryOut(points, next))
      return e;
    for (size_t k = 0; k < order.size(); ++k) {
      steps_[order[k]].value = valueOf(from, points[k]);
      isFresh[order[k]] = true;
    }
  }
}

llvm::Error PlanChain::begin(const Point &first, size_t fixed) {
  fixed_ = fixed;
  points_ = {first};
  if (llvm::Error e = carryOut(first))
    return e;
  return vary(first, firstLook(first));
}

/// Whether it goes far enough for the budget: what is a little further may be faster than what just fits.
bool PlanChain::isBehind(const Point &p) const {
  return isFit(p) && trials_.at(p).needs.memory <= options_.memoryBudget - options_.memoryBudget / kRoomParts;
}

/// A step that makes a plan faster is taken whatever the budget. Budgets that are so large that they end at the last plan have
/// found what they take: nothing from here on is faster.
llvm::Expected<std::optional<PlanChain>> PlanChain::advance() {
  const Point last = points_.back();
  auto to = bestStep();
  if (!to)
    return to.takeError();
  bool isFree = *to && trials_.at(**to).ns < trials_.at(last).ns;
  if (!*to || (!isFree && isBehind(last))) {
    hasEnded_ = true;
    return std::nullopt;
  }
  const int64_t memory = trials_.at(last).needs.memory, within = memory + memory / (kRoomParts - 1);
  if (!isFree)
    floor_ = std::max(floor_, bestWithin(within));
  std::optional<PlanChain> without;
  size_t axis = std::mismatch(last.begin(), last.end(), (*to)->begin()).first - last.begin();
  if (axes_[axis].mayBeForbidden && !last[axis]) {
    without.emplace(*this);
    without->frozen_[axis] = true;
    ++without->fixed_;
  }
  points_.push_back(std::move(**to));
  if (llvm::Error e = vary(points_.back(), firstLook(points_.back())))
    return e;
  return without;
}

/// A plan with other levels of what varies, if it is to be looked at now.
std::vector<Point> PlanChain::varied(const Point &p) const {
  std::vector<Point> out;
  if (inVain_ >= kVain && inVain_ % kRest)
    return out;
  for (size_t a = 0; a < axes_.size(); ++a)
    for (unsigned level = 1; axes_[a].varies && level < axes_[a].levels; ++level)
      out.push_back(withLevel(p, a, level));
  return out;
}

/// Unless an engine is too busy for any of them to be faster.
llvm::Error PlanChain::vary(const Point &p, llvm::ArrayRef<Point> next) {
  const Trial &t = trials_.at(p);
  if (!t.isPossible || *llvm::max_element(t.busyNs) >= bestWithin(t.needs.memory))
    return llvm::Error::success();
  std::vector<Point> points = varied(p);
  if (llvm::Error e = carryOut(points, next))
    return e;
  auto isFaster = [&](const Point &q) { return trials_.at(q).isPossible && trials_.at(q).ns < t.ns; };
  inVain_ = llvm::any_of(points, isFaster) ? 0 : inVain_ + 1;
  return llvm::Error::success();
}

// ---- a closer look

llvm::Error PlanChain::finish() {
  auto fits = llvm::find_if(points_, [&](const Point &p) { return isFit(p); });
  if (fits == points_.begin() || fits == points_.end())
    return llvm::Error::success();
  const Point &from = *std::prev(fits), &to = *fits;
  floor_ = std::max(floor_, bestWithin(trials_.at(from).needs.memory));
  if (llvm::Error e = lookCloser(from, to))
    return e;
  return giveBack(to, trials_.at(from).needs.memory);
}

/// Between two that lie one step apart.
llvm::Error PlanChain::lookCloser(const Point &from, const Point &to) {
  size_t axis = std::mismatch(from.begin(), from.end(), to.begin()).first - from.begin();
  std::vector<Point> points;
  unsigned levels = to[axis] - from[axis], count = std::min(levels, kCloser);
  for (unsigned k = 1; k < count; ++k) {
    points.push_back(withLevel(from, axis, from[axis] + levels * k / count));
  }
  return carryOut(points);
}

/// What saves more than it has to has room for what earlier steps have taken: back from there, as long as it needs less than
/// `most`, which the last that does not fit needs. Where the budget lies below that changes nothing of the way.
llvm::Error PlanChain::giveBack(Point at, int64_t most) {
  for (unsigned i = 0; i < kBack; ++i) {
    auto to = bestStepBack(at, most);
    if (!to)
      return to.takeError();
    if (!*to)
      break;
    at = std::move(**to);
    if (llvm::Error e = vary(at, along(at, waysBack(at))))
      return e;
  }
  return llvm::Error::success();
}

/// Short steps, with which bestStepBack begins.
std::vector<PlanChain::Way> PlanChain::waysBack(const Point &from) const {
  std::vector<Way> ways;
  for (size_t a = 0; a < axes_.size(); ++a)
    if (!axes_[a].shifts && !axes_[a].varies && from[a])
      ways.push_back({a, strideOf(axes_[a])});
  return ways;
}

/// Of ways that do not lead to level 0 yet, twice as long ones.
std::vector<PlanChain::Way> PlanChain::longer(const Point &from, llvm::ArrayRef<Way> ways) {
  std::vector<Way> out;
  for (const Way &w : ways)
    if (w.jump < from[w.axis])
      out.push_back({w.axis, w.jump * 2});
  return out;
}

std::vector<Point> PlanChain::along(const Point &from, llvm::ArrayRef<Way> ways) {
  std::vector<Point> points;
  for (const Way &w : ways)
    points.push_back(withLevel(from, w.axis, from[w.axis] - std::min(w.jump, from[w.axis])));
  return points;
}

/// The step back along one axis that gains most time for its bytes: longer and longer ones, as long as there is room.
llvm::Expected<std::optional<Point>> PlanChain::bestStepBack(const Point &from, int64_t most) {
  std::vector<Way> ways = waysBack(from);
  const Trial &start = trials_.at(from);
  std::optional<Point> best;
  int64_t bestValue = 0;
  while (!ways.empty()) {
    std::vector<Point> points = along(from, ways);
    if (llvm::Error e = carryOut(points, along(from, longer(from, ways))))
      return e;
    std::vector<Way> open; // behind them there is room
    for (size_t i = 0; i < ways.size(); ++i) {
      const Trial &t = trials_.at(points[i]);
      if (!t.isPossible || t.needs.memory >= most)
        continue;
      if (int64_t value = gainOf(start, t); value > bestValue)
        best = points[i], bestValue = value;
      open.push_back(ways[i]);
    }
    ways = longer(from, open);
  }
  return best;
}
