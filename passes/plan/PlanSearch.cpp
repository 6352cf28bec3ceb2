// Lets chains of plans compete.
#include "passes/plan/PlanSearch.h"
#include <algorithm>

using namespace zcc;

/// All plans are tried where these have so many nodes in all.
constexpr size_t kTriedNodes = size_t(1) << 17;
/// So many steps lead up from what needs least.
constexpr unsigned kClimb = 16;
/// The best ways are exchanged in trials of so many nodes in all.
constexpr size_t kExchanged = size_t(1) << 18;
/// A budget that is smaller by such a part is looked at, too, in so many times fewer trials.
constexpr int64_t kSmallerParts = 8;
constexpr size_t kFewer = 2;

static size_t countNodes(const Module &m) {
  size_t nodes = 1;
  for (auto &f : m.functions)
    nodes += f->nodes.size();
  return nodes;
}

// ---- what needs least

/// Host memory and disk first, which most plans are within; then memory, whatever its budget is: what is found does not depend on
/// that.
bool PlanSearch::needsLess(const Point &a, const Point &b) const {
  auto rank = [&](const Point &p) {
    const Trial &t = trials_.at(p);
    Needs over = excessOf(t.needs, options_);
    return t.isPossible ? std::pair(over.host + over.disk, t.needs.memory) : std::pair(INT64_MAX, INT64_MAX);
  };
  return rank(a) < rank(b);
}

/// Along one axis to its ends, and in longer and longer steps, each from what takes least so far.
llvm::Error PlanSearch::descend(size_t axis) {
  const int64_t last = axes_[axis].levels - 1;
  for (int64_t jump = strideOf(axes_[axis]); jump <= last; jump *= 2) {
    std::vector<Point> points;
    for (int64_t level : {taken_[axis] - jump, taken_[axis] + jump, int64_t(0), last})
      if (level >= 0 && level <= last && level != taken_[axis])
        points.push_back(withLevel(taken_, axis, unsigned(level)));
    if (llvm::Error e = trials_.carryOut(points))
      return e;
    for (const Point &p : points)
      if (needsLess(p, taken_))
        taken_ = p;
  }
  return llvm::Error::success();
}

/// Axis by axis from what takes least as a rule, until nothing takes less; where that rule's leaves a quarter of the memory free,
/// no further.
llvm::Error PlanSearch::findLeast() {
  Point p = plain_;
  for (size_t a = 0; a < axes_.size(); ++a)
    if (!axes_[a].varies && !axes_[a].shifts)
      p[a] = axes_[a].levels - 1;
  if (llvm::Error e = trials_.carryOut({plain_, p}))
    return e;
  taken_ = needsLess(p, plain_) ? p : plain_;
  const int64_t budget = options_.memoryBudget;
  const bool isAmple = isFit(taken_) && (!budget || trials_.at(taken_).needs.memory <= budget - budget / 4);
  for (Point before; taken_ != before && !isAmple;) {
    before = taken_;
    for (size_t a = 0; a < axes_.size(); ++a)
      if (llvm::Error e = descend(a))
        return e;
  }
  return llvm::Error::success();
}

// ---- chains

size_t PlanSearch::trialsFor(size_t nodes) const { return nodes / fewer_ / countNodes(module_); }

/// So many trials are carried out, with those that have been: the larger the module, the fewer more.
size_t PlanSearch::mostTrials() const {
  constexpr size_t kNodes = size_t(1) << 17;
  return trials_.all().size() + trialsFor(kNodes);
}

/// What needs much in each order and share.
std::vector<Point> PlanSearch::starts() const {
  std::vector<Point> out = {plain_};
  for (size_t a = 0; a < axes_.size(); ++a)
    for (unsigned level = 1; axes_[a].shifts && level < axes_[a].levels; ++level)
      out.push_back(withLevel(plain_, a, level));
  return out;
}

/// The same with what flags may ask for.
std::vector<Point> PlanSearch::otherStarts() const {
  std::vector<Point> out = starts();
  const size_t known = out.size();
  for (size_t a = 0; a < axes_.size(); ++a)
    for (size_t i = 0, count = out.size(); axes_[a].mayBeWhole && i < count; ++i)
      out.push_back(withLevel(out[i], a, axes_[a].levels - 1));
  out.erase(out.begin(), out.begin() + known);
  return out;
}

llvm::Error PlanSearch::begin(llvm::ArrayRef<Point> points) {
  for (const Point &p : points) {
    PlanChain &c = chains_.emplace_back(trials_, options_, axes_, trials_.at(plain_));
    size_t fixed = 0;
    for (size_t a = 0; a < axes_.size(); ++a)
      fixed += axes_[a].mayBeWhole && p[a];
    if (llvm::Error e = c.begin(p, fixed))
      return e;
    best_ = std::min(best_, c.fitNs());
  }
  return llvm::Error::success();
}

/// Takes a step with a chain; once it has ended it looks closer.
llvm::Error PlanSearch::advance(size_t chain) {
  auto other = chains_[chain].advance();
  if (!other)
    return other.takeError();
  if (chains_[chain].hasEnded())
    if (llvm::Error e = chains_[chain].finish())
      return e;
  best_ = std::min(best_, chains_[chain].fitNs());
  if (*other)
    chains_.push_back(std::move(**other));
  return llvm::Error::success();
}

/// Of the first `count` chains that may still find what is faster, the last of those of which least is fixed, which
/// has most in common with what was tried; -1: none.
int PlanSearch::next(size_t count) const {
  int found = -1;
  for (size_t i = 0; i < count; ++i)
    if (!chains_[i].hasEnded() && chains_[i].floor() < best_ && (found < 0 || chains_[i].fixed() <= chains_[found].fixed()))
      found = int(i);
  return found;
}

/// First those from `starts`, to their ends; then what they have left behind, and others, as long as trials are left.
llvm::Error PlanSearch::walk() {
  if (llvm::Error e = begin(starts()))
    return e;
  const size_t count = chains_.size();
  for (int i; (i = next(count)) >= 0;)
    if (llvm::Error e = advance(size_t(i)))
      return e;
  const size_t most = mostTrials();
  for (const std::vector<Point> &points : {std::vector<Point>(), otherStarts()}) {
    if (trials_.all().size() >= most)
      break;
    if (llvm::Error e = begin(points))
      return e;
    for (int i; trials_.all().size() < most && (i = next(chains_.size())) >= 0;)
      if (llvm::Error e = advance(size_t(i)))
        return e;
  }
  for (const PlanChain &c : chains_)
    open_.insert(c.open().begin(), c.open().end());
  return llvm::Error::success();
}

// ---- up

/// Of some of an axis' levels, which needs least by itself.
llvm::Expected<Point> PlanSearch::lowest(size_t axis) {
  const int64_t last = axes_[axis].levels - 1;
  int64_t least = last;
  for (int64_t apart = strideOf(axes_[axis]), begin = last / 2, end = last; apart > 0;
       begin = std::max<int64_t>(least - apart, 0), end = std::min(least + apart, last), apart /= 4) {
    std::vector<Point> points;
    for (int64_t level = end; level >= begin; level -= apart)
      points.push_back(withLevel(plain_, axis, unsigned(level)));
    if (llvm::Error e = trials_.carryOut(points))
      return e;
    Point best = withLevel(plain_, axis, unsigned(least));
    for (const Point &p : points)
      if (needsLess(p, best))
        best = p;
    least = best[axis];
  }
  return withLevel(plain_, axis, unsigned(least));
}

/// What was carried out may be taken.
void PlanSearch::open(const Point &p) {
  const Trial &t = trials_.at(p);
  if (isQuirk(t, trials_.at(plain_)))
    return;
  open_.insert(trials_.key(p));
  if (isFit(p))
    best_ = std::min(best_, t.ns);
}

/// Carries out what may be taken.
llvm::Error PlanSearch::offer(llvm::ArrayRef<Point> points, llvm::ArrayRef<Point> next) {
  if (llvm::Error e = trials_.carryOut(points, next))
    return e;
  for (const Point &p : points)
    open(p);
  return llvm::Error::success();
}

/// Goes on to the best of the levels that are near, as long as it fits and may become the fastest. Which that is the budget does
/// not say: a larger one goes the same way, and further.
llvm::Error PlanSearch::climb(size_t axis, Point at) {
  int64_t mostSaved = 0; // by a step
  for (unsigned left = kClimb; left > 0 && isFit(at); --left) {
    std::vector<Point> points;
    for (unsigned level : axes_[axis].near(at[axis]))
      points.push_back(withLevel(at, axis, level));
    if (llvm::Error e = offer(points))
      return e;
    const Trial &now = trials_.at(at);
    const Point *best = nullptr;
    for (const Point &p : points) {
      const Trial &t = trials_.at(p);
      mostSaved = std::max(mostSaved, t.isPossible ? now.ns - t.ns : 0);
      if (int64_t gain = gainOf(now, t); gain && (!best || gain > gainOf(now, trials_.at(*best))))
        best = &p;
    }
    if (!best || now.ns - mostSaved * left >= best_)
      break;
    at = Point(*best);
  }
  return llvm::Error::success();
}

// ---- exchanges

static std::vector<Point> waysDown(const Axis &a, size_t axis, Point at) {
  std::vector<Point> out;
  for (unsigned jump = strideOf(a); at[axis] + jump < a.levels; jump *= 2)
    at[axis] += jump, out.push_back(at);
  return out;
}

/// The first ones of lists that nobody has asked for yet.
std::vector<Point> PlanSearch::untried(llvm::ArrayRef<std::vector<Point>> lists) const {
  std::vector<Point> out;
  for (const std::vector<Point> &list : lists) {
    if (out.size() == kExpected)
      break;
    if (!list.empty() && !trials_.has(list.front()))
      out.push_back(list.front());
  }
  return out;
}

/// Down an axis in longer and longer steps, as long as each is faster than all that fits. Behind what fits, too: a smaller budget
/// comes by there. Whether the next step is taken shows then; the first one of each list of `later` is, whatever is found here.
llvm::Error PlanSearch::goDown(llvm::ArrayRef<Point> down, llvm::ArrayRef<std::vector<Point>> later, size_t mostTrials) {
  for (size_t i = 0; i < down.size() && trials_.all().size() < mostTrials; ++i) {
    const int64_t before = best_;
    std::vector<Point> next = untried(later);
    if (i + 1 < down.size())
      next.push_back(down[i + 1]);
    if (llvm::Error e = offer(down[i], next))
      return e;
    if (!trials_.at(down[i]).isPossible || trials_.at(down[i]).ns >= before)
      break;
  }
  return llvm::Error::success();
}

/// What `from` takes along one axis is given back, and more is taken along another one.
llvm::Error PlanSearch::exchange(const Point &from, size_t mostTrials) {
  std::vector<Point> starts, others;
  for (size_t a = 0; a < axes_.size(); ++a) {
    for (unsigned level = 0; axes_[a].varies && level < axes_[a].levels; ++level)
      others.push_back(withLevel(from, a, level));
    if (from[a] && !axes_[a].varies && !axes_[a].shifts)
      starts.push_back(withLevel(from, a, 0));
  }
  if (llvm::Error e = offer(others, starts))
    return e;
  if (llvm::Error e = offer(starts))
    return e;
  llvm::stable_sort(starts, [&](const Point &a, const Point &b) { return trials_.at(a).ns < trials_.at(b).ns; });
  starts.push_back(from);
  std::vector<std::vector<Point>> lists;
  for (const Point &p : starts)
    for (size_t a = 0; a < axes_.size(); ++a)
      if (!axes_[a].varies && !axes_[a].shifts)
        lists.push_back(waysDown(axes_[a], a, p));
  for (size_t i = 0; i < lists.size(); ++i)
    if (llvm::Error e = goDown(lists[i], llvm::ArrayRef(lists).drop_front(i + 1), mostTrials))
      return e;
  return llvm::Error::success();
}

/// Of what uses the same of what flags may ask for the best, if it fits or almost; the best of all first.
std::vector<Point> PlanSearch::ways() const {
  std::map<std::vector<bool>, Point> best;
  for (const Point &p : open_) {
    if (!isNearFit(trials_.at(p)))
      continue;
    std::vector<bool> uses;
    for (size_t a = 0; a < axes_.size(); ++a)
      if (axes_[a].mayBeWhole)
        uses.push_back(p[a]);
    auto [at, isNew] = best.insert({std::move(uses), p});
    if (!isNew && isBetter(p, at->second))
      at->second = p;
  }
  std::vector<Point> out;
  for (auto &[uses, p] : best)
    out.push_back(p);
  llvm::stable_sort(out, [&](const Point &a, const Point &b) { return isBetter(a, b); });
  return out;
}

/// The best way first, each anew where it has become better: a chain takes what is cheapest for its bytes first and ends where it
/// fits, which may be behind a dear step that a further cheap one would have made needless.
llvm::Error PlanSearch::exchange() {
  const size_t most = trials_.all().size() + trialsFor(kExchanged);
  std::set<Point> known;
  while (trials_.all().size() < most) {
    const std::vector<Point> all = ways();
    auto from = llvm::find_if(all, [&](const Point &p) { return known.insert(p).second; });
    if (from == all.end())
      break;
    if (llvm::Error e = exchange(*from, most))
      return e;
  }
  return llvm::Error::success();
}

/// The fastest that fits of what may be taken, or nothing.
const Point *PlanSearch::fastest() const {
  const Point *best = nullptr;
  for (const Point &p : open_)
    if (isFit(p) && (!best || isBetter(p, *best)))
      best = &p;
  return best;
}

/// Of what fits, the fastest; of what does not, what exceeds the budgets least.
bool PlanSearch::isBetter(const Point &a, const Point &b) const {
  auto rank = [&](const Point &p) {
    const Trial &t = trials_.at(p);
    return std::tuple(excess(t, options_), t.ns, t.needs.memory, t.needs.disk);
  };
  return rank(a) < rank(b);
}

/// What needed least is taken only where nothing else fits.
void PlanSearch::choose() {
  second_.reset();
  if (const Point *best = fastest())
    taken_ = *best;
  for (const Point &p : open_)
    if (isFit(p) && p != taken_ && (!second_ || isBetter(p, *second_)))
      second_ = p;
}

llvm::Error PlanSearch::tryAll() {
  std::vector<Point> points = {plain_};
  for (size_t a = 0; a < axes_.size(); ++a)
    for (size_t i = 0, n = points.size(); i < n; ++i)
      for (unsigned level = 1; level < axes_[a].levels; ++level)
        points.push_back(withLevel(points[i], a, level));
  if (llvm::Error e = trials_.carryOut(points))
    return e;
  taken_ = plain_;
  for (const Point &p : points)
    if (trials_.at(p).isPossible) {
      open(p);
      taken_ = isBetter(p, taken_) ? p : taken_;
    }
  return llvm::Error::success();
}

/// Small modules are tried in no time.
bool PlanSearch::mayTryAll() const { return countOf(axes_) <= std::min(kTriedAll, trialsFor(kTriedNodes)); }

/// Within the budgets as they are now; what is slower than what was found before is not followed.
llvm::Error PlanSearch::search(bool triesAll) {
  chains_.clear();
  if (!triesAll)
    if (llvm::Error e = walk())
      return e;
  for (size_t a = 0; a < axes_.size(); ++a)
    if (axes_[a].near) {
      auto from = lowest(a);
      if (!from)
        return from.takeError();
      if (llvm::Error e = climb(a, *from))
        return e;
    }
  for (size_t a = 0; a < axes_.size(); ++a)
    if (axes_[a].changes) {
      if (llvm::Error e = stepDown(a))
        return e;
      if (llvm::Error e = swap(a))
        return e;
    }
  for (size_t a = 0; a < axes_.size(); ++a)
    if (axes_[a].tightens && !triesAll)
      if (llvm::Error e = tighten(a))
        return e;
  if (!triesAll)
    if (llvm::Error e = exchange())
      return e;
  return lookCloser();
}

/// What a smaller budget is led to may be faster than all that lies on the ways of a larger one, which has room for it, too. It
/// is led as if nothing had been found before: what is left because that is faster may be on the way.
llvm::Error PlanSearch::searchSmaller() {
  const int64_t budget = options_.memoryBudget;
  options_.memoryBudget = budget - budget / kSmallerParts;
  fewer_ = kFewer;
  const bool isPossible = llvm::any_of(open_, [&](const Point &p) { return isFit(p); });
  const std::set<Point> found = std::exchange(open_, {});
  const int64_t best = std::exchange(best_, INT64_MAX);
  llvm::Error e = isPossible ? search(false) : llvm::Error::success();
  open_.insert(found.begin(), found.end());
  best_ = std::min(best_, best);
  options_.memoryBudget = budget;
  return e;
}

llvm::Error PlanSearch::runLeast() {
  plain_.assign(axes_.size(), 0);
  return mayTryAll() ? tryAll() : findLeast();
}

llvm::Error PlanSearch::run() {
  if (llvm::Error e = runLeast())
    return e;
  const bool triesAll = mayTryAll();
  if (hasFit())
    if (llvm::Error e = search(triesAll))
      return e;
  if (!triesAll && hasFit() && options_.memoryBudget)
    if (llvm::Error e = searchSmaller())
      return e;
  choose();
  return llvm::Error::success();
}
