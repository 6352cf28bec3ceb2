// The decisions that are open: what is computed again, which states and parameters live elsewhere, and how much of what is
// fetched is there at once.
#include "passes/plan/Axes.h"
#include "ir/Op.h"
#include "passes/EvenPart.h"
#include "passes/Target.h"
#include "passes/memory/Activations.h"
#include "passes/memory/RecomputationLadder.h"
#include "passes/offload/Updates.h"
#include "passes/zero/Zero.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/Support/FormatVariadic.h"
#include <deque>
#include <mutex>

using namespace zcc;
using llvm::formatv;

/// Levels of an axis of parameters: a search tries some of them, and looks closer in the end.
constexpr int64_t kPlaceLevels = 64;
/// Where so few nodes are in the forward, all sets of them are levels.
constexpr size_t kFewNodes = 12, kFewParams = 3;

namespace {
class Axes {
public:
  Axes(const Module &m, const PassContext &ctx);
  std::vector<Axis> all() const;

private:
  /// Parameters that move: of each level, which.
  struct Moves {
    std::vector<const GlobalValue *> params;
    std::vector<std::vector<unsigned>> levels;
    int64_t bytes(unsigned level) const;
  };
  llvm::DenseMap<const GlobalValue *, int64_t> timeLeft() const;
  std::vector<const GlobalValue *> movable(bool isParam, size_t &exposed) const;
  Moves movesOf(bool isParam) const;
  std::vector<Space> spaces() const;
  bool mayMoveParams() const;
  bool movesAnything() const;
  void addRecomputation(std::vector<Axis> &out) const;
  void addPlaces(std::vector<Axis> &out) const;
  void addLate(std::vector<Axis> &out) const;
  void addUpdatePlace(std::vector<Axis> &out) const;
  void addDiskShare(std::vector<Axis> &out) const;
  void addActivations(std::vector<Axis> &out) const;
  void addOrder(std::vector<Axis> &out) const;
  void addWindow(std::vector<Axis> &out) const;
  void addSubGroup(std::vector<Axis> &out) const;
  void addReuse(std::vector<Axis> &out) const;
  /// Whether a flag moves parameters, states or both: how that is done is to be decided whatever the search moves.
  bool movesParams() const { return o_.away(o_.offloadParam) != Space::Device; }
  bool movesStates() const { return movesParams() || (trains_ && o_.away(o_.offloadOptimizer) != Space::Device); }

  const Module &m_;
  const PassContext &ctx_;
  const Options &o_;
  const bool trains_;
  const Function &step_; ///< @micro, or @eval where nothing is trained
  bool isSmall_;         ///< all there is to decide is tried
};
} // namespace

static std::string size(int64_t bytes) { return formatv("{0:f2} MiB", double(bytes) / (1 << 20)); }

/// A level that sets a number of the module: level 0 leaves it.
static Axis numbers(const char *name, const char *note, std::vector<int64_t> values, const char *words) {
  Axis a;
  a.name = name;
  a.levels = unsigned(values.size()) + 1;
  a.note = [=](Module &m, unsigned level) {
    if (level)
      m.attrs.set(note, values[level - 1]);
  };
  a.text = [=](unsigned level) { return level ? formatv(words, values[level - 1]).str() : ""; };
  return a;
}

Axes::Axes(const Module &m, const PassContext &ctx)
    : m_(m), ctx_(ctx), o_(ctx.options), trains_(!ctx.options.inference), step_(*m.function(trains_ ? "micro" : "eval")) {
  size_t forward = llvm::count_if(step_.nodes, [](auto &n) { return n->phase == Phase::Forward && !n->op->view; });
  size_t params = llvm::count_if(m.globals, [](auto &g) { return g->role == GlobalValue::Param; });
  isSmall_ = forward <= kFewNodes && params <= kFewParams;
}

// ---- what is computed again

/// "24 layer_norm, 12 gelu"
static std::string namesOf(const Function &f, const RecomputeNotes &notes) {
  llvm::MapVector<llvm::StringRef, unsigned> count;
  unsigned at = 0;
  for (auto &n : f.nodes)
    if (notes.count(at++))
      ++count[n->op->name];
  std::string s;
  for (auto &[name, n] : count)
    s += (s.empty() ? "" : ", ") + std::to_string(n) + " " + name.str();
  if (const auto shared = llvm::count_if(notes, [](auto &n) { return n.second.isShared; }))
    s += "; " + std::to_string(shared) + " of them once for all";
  return "computed again in the backward: " + s;
}

namespace {
/// Ways to compute again; others are added while trials of those that are there run.
class Ways {
public:
  explicit Ways(const std::vector<RecomputeNotes> &first) : all_(first.begin(), first.end()) {}
  const RecomputeNotes &operator[](unsigned level) const {
    std::lock_guard lock(mutex_);
    return all_[level];
  }
  unsigned add(RecomputeNotes way) {
    std::lock_guard lock(mutex_);
    all_.push_back(std::move(way));
    return unsigned(all_.size() - 1);
  }

private:
  mutable std::mutex mutex_;
  std::deque<RecomputeNotes> all_; ///< which stay where they are
};
} // namespace

void Axes::addRecomputation(std::vector<Axis> &out) const {
  bool isNoted = llvm::any_of(step_.nodes, [](auto &n) { return n->attrs.has("recompute"); });
  if (!o_.seeksCheckpoints() || isNoted)
    return;
  std::vector<RecomputeNotes> first;
  if (isSmall_)
    first = allRecomputations(step_, kTriedAll);
  // Beside other axes, steps down this one should all save something.
  const LadderEnd end = spaces().empty() ? LadderEnd::Blocks : LadderEnd::Segments;
  const Machine machine = machineOf(ctx_.target);
  const bool areAll = !first.empty();
  if (!areAll)
    first = recomputationLadder(step_, machine, end);
  auto ways = std::make_shared<Ways>(first);
  Axis a;
  a.name = "recompute";
  a.mayBeForbidden = true;
  a.levels = unsigned(first.size());
  a.note = [=](Module &m, unsigned level) { note(*m.function("micro"), (*ways)[level]); };
  a.text = [=, f = &step_](unsigned level) { return namesOf(*f, (*ways)[level]); };
  if (!areAll)
    a.before = [=, f = &step_, known = std::map<unsigned, std::vector<unsigned>>()](unsigned level) mutable {
      auto [at, isNew] = known.try_emplace(level);
      if (isNew)
        for (RecomputeNotes &way : recomputationsBefore(*f, machine, end, level))
          at->second.push_back(ways->add(std::move(way)));
      return at->second;
    };
  if (!areAll && end == LadderEnd::Blocks && !keepingOneMore(step_, first.back(), machine).empty()) {
    a.near = [=, f = &step_](unsigned level) {
      std::vector<unsigned> levels;
      for (RecomputeNotes &less : keepingOneMore(*f, (*ways)[level], machine))
        levels.push_back(ways->add(std::move(less)));
      return levels;
    };
    a.changes = [=, f = &step_](unsigned level) { return keptBeside(*f, (*ways)[level], machine); };
    a.changed = [=, f = &step_](unsigned level, unsigned change) {
      std::optional<RecomputeNotes> more = keepingOneLess(*f, (*ways)[level], change, machine);
      return more ? std::optional(ways->add(std::move(*more))) : std::nullopt;
    };
  }
  out.push_back(std::move(a));
}

// ---- what lives elsewhere

bool Axes::mayMoveParams() const { return m_.ranks == 1 || o_.zero == 3 || !trains_; }

/// Where what is to move can go, the nearest first.
std::vector<Space> Axes::spaces() const {
  std::vector<Space> out;
  if (o_.separateHost)
    out.push_back(Space::Host);
  if (o_.nvmeBudget)
    out.push_back(Space::Nvme);
  return out;
}

bool Axes::movesAnything() const {
  const bool seeksStates = trains_ && o_.seeks(o_.offloadOptimizer), seeksParams = o_.seeks(o_.offloadParam) && mayMoveParams();
  return (!spaces().empty() && (seeksStates || seeksParams)) || movesStates();
}

int64_t Axes::Moves::bytes(unsigned level) const {
  int64_t sum = 0;
  for (unsigned i : levels[level])
    sum += params[i]->type.count() * elemBytes(params[i]->type.elem);
  return sum;
}

/// Nanoseconds that are left of a step where a parameter's gradient is there: the backward comes back from where the parameter
/// is first read, and takes twice the time of the forward. Without one, those until it is first read.
llvm::DenseMap<const GlobalValue *, int64_t> Axes::timeLeft() const {
  const Machine machine = machineOf(ctx_.target);
  llvm::DenseMap<const GlobalValue *, int64_t> left;
  int64_t ns = 0;
  for (auto &n : step_.nodes) {
    if (n->phase != Phase::Forward)
      break;
    for (Value *v : n->operands())
      if (v && v->isGlobal())
        left.try_emplace(static_cast<GlobalValue *>(v), trains_ ? 2 * ns : ns);
    ns += int64_t(costOf(*n, m_.ranks).seconds(machine) * 1e9);
  }
  return left;
}

/// Parameters that may move, in the order of the forward; those that a step would have to wait for in the end, last.
std::vector<const GlobalValue *> Axes::movable(bool isParam, size_t &exposed) const {
  const Machine machine = machineOf(ctx_.target);
  const Space away = spaces().front();
  const double there = 1 / machine[rateOfMove(away, Space::Device)], back = 1 / machine[rateOfMove(Space::Device, away)];
  const double each = trains_ ? 2 * there + 2 * back : there; // seconds a byte
  const int64_t small = zeroLimits(m_, o_).persistence;
  auto left = timeLeft();
  std::vector<std::pair<int64_t, const GlobalValue *>> beside, behind;
  for (auto &g : m_.globals) {
    bool isOpen = g->role == GlobalValue::Param && g->type.count() > small && (isParam || g->trained);
    if (!isOpen)
      continue;
    int64_t late = int64_t(double(g->type.localBytes()) * each * 1e9) - left.lookup(g.get());
    (late > 0 ? behind : beside).push_back({late > 0 ? late : left.lookup(g.get()), g.get()});
  }
  std::vector<const GlobalValue *> out;
  for (auto *part : {&beside, &behind}) {
    llvm::stable_sort(*part, [](auto &a, auto &b) { return a.first < b.first; });
    for (auto &[key, g] : *part)
      out.push_back(g);
  }
  exposed = behind.size();
  return out;
}

/// Every set, where these are few. Otherwise more and more: a part of the parameters that lie evenly between the others, so that
/// the disk works all through the backward.
Axes::Moves Axes::movesOf(bool isParam) const {
  Moves moves;
  size_t exposed = 0;
  moves.params = movable(isParam, exposed);
  moves.levels.emplace_back();
  auto bytes = [&](size_t i) { return moves.params[i]->type.count(); };
  size_t count = moves.params.size(), even = count - exposed;
  if (isSmall_) {
    for (unsigned set = 1; set < 1u << count; ++set) {
      moves.levels.emplace_back();
      for (unsigned i = 0; i < count; ++i)
        if (set >> i & 1)
          moves.levels.back().push_back(i);
    }
    return moves;
  }
  int64_t total = 0, sum = 0;
  for (size_t i = 0; i < count; ++i)
    total += bytes(i), sum += i < even ? bytes(i) : 0;
  int64_t levels = total ? std::max<int64_t>(kPlaceLevels * sum / total, 1) : 0;
  for (int64_t level = 1; level <= levels && even; ++level) {
    std::vector<unsigned> taken;
    EvenPart evenly(level, levels);
    for (unsigned i = 0; i < even; ++i)
      if (evenly.takes(bytes(i)))
        taken.push_back(i);
    if (taken != moves.levels.back())
      moves.levels.push_back(std::move(taken));
  }
  for (unsigned i = even; i < count; ++i) {
    moves.levels.push_back(moves.levels.back());
    moves.levels.back().push_back(i);
  }
  return moves;
}

void Axes::addPlaces(std::vector<Axis> &out) const {
  if (spaces().empty())
    return;
  std::string to = spaceName(spaces().front()).str();
  for (bool isParam : {false, true}) {
    if (!o_.seeks(isParam ? o_.offloadParam : o_.offloadOptimizer) || !(isParam ? mayMoveParams() : trains_))
      continue;
    auto moves = std::make_shared<Moves>(movesOf(isParam));
    const char *note = isParam ? "place" : "states_place";
    Axis a;
    a.name = isParam ? "parameters" : "states";
    a.mayBeForbidden = a.mayBeWhole = true;
    a.levels = unsigned(moves->levels.size());
    a.note = [=](Module &m, unsigned level) {
      for (unsigned i : moves->levels[level])
        m.global(moves->params[i]->name)->attrs.set(note, to);
    };
    a.text = [=](unsigned level) {
      return formatv("{0} of {1} of {2} parameters ({3}) live elsewhere: {4}", isParam ? "the values" : "the states",
                     moves->levels[level].size(), moves->params.size(), size(moves->bytes(level)), to)
          .str();
    };
    out.push_back(std::move(a));
  }
}

/// Whether updates of states that live elsewhere run on into the next step. Of parameters that the forward reads first they do
/// not, where @update is not far behind.
void Axes::addLate(std::vector<Axis> &out) const {
  if (!movesAnything())
    return;
  const bool areAway = o_.away(o_.offloadOptimizer) != Space::Device;
  const bool areCalls = o_.gradAccum > 1 && !o_.ordersBlocks();
  Axis a;
  a.name = "late updates";
  a.varies = true;
  if (!areAway)
    a.beside = {"states"};
  a.levels = 2;
  a.note = [=](Module &m, unsigned level) {
    if (!level)
      return;
    const llvm::DenseSet<const GlobalValue *> first = areCalls ? llvm::DenseSet<const GlobalValue *>() : readFirst(m);
    for (auto &g : m.globals)
      if (g->role == GlobalValue::Param && g->trained && (areAway || g->attrs.has("states_place")) && !first.contains(g.get()))
        g->attrs.set("late", int64_t(1));
  };
  a.text = [](unsigned level) { return level ? "updates of what lives elsewhere run on into the next step's forward" : ""; };
  out.push_back(std::move(a));
}

/// Where updates are computed, if host memory is not the device's.
void Axes::addUpdatePlace(std::vector<Axis> &out) const {
  if (!movesAnything() || !o_.hasHost() || o_.offloadUpdate != UpdatePlace::Auto)
    return;
  Axis a;
  a.name = "update";
  a.varies = true;
  a.levels = 2;
  a.note = [](Module &m, unsigned level) {
    for (auto &g : m.globals)
      if (g->role == GlobalValue::Param && g->trained)
        g->attrs.set("update_place", spaceName(level ? Space::Host : Space::Device).str());
  };
  a.text = [](unsigned level) { return level ? "states that live elsewhere are updated in host memory" : ""; };
  out.push_back(std::move(a));
}

/// With host memory and a disk: of what moves, how much goes to the disk. The last noted are first needed, and stay in the host.
void Axes::addDiskShare(std::vector<Axis> &out) const {
  constexpr unsigned kParts = 4;
  if (spaces().size() < 2 || out.empty())
    return;
  Axis a;
  a.name = "disk";
  a.levels = kParts + 1;
  a.shifts = true;
  a.note = [](Module &m, unsigned level) {
    int64_t total = 0, sum = 0;
    for (auto &g : m.globals)
      total += g->attrs.has("place") || g->attrs.has("states_place") ? g->type.count() : 0;
    for (auto &g : m.globals) {
      if (!g->attrs.has("place") && !g->attrs.has("states_place"))
        continue;
      sum += g->type.count();
      if (sum * kParts <= total * level)
        for (const char *note : {"place", "states_place"})
          if (g->attrs.has(note))
            g->attrs.set(note, std::string("nvme"));
    }
  };
  a.text = [=](unsigned level) {
    return formatv("{0} of {1} parts of what lives elsewhere lie on the disk", level, kParts).str();
  };
  out.push_back(std::move(a));
}

/// What the forward keeps, as much as compute hides.
void Axes::addActivations(std::vector<Axis> &out) const {
  bool isLarge = llvm::any_of(step_.nodes, [](auto &n) {
    return n->phase == Phase::Forward && holdsActivation(*n) && n->result()->type.localBytes() >= kLeastMoved;
  });
  if (spaces().empty() || !o_.seeks(o_.offloadActivations) || !isLarge)
    return;
  std::string to = spaceName(spaces().front()).str();
  Axis a;
  a.name = "activations";
  a.mayBeForbidden = true;
  a.levels = 2;
  a.note = [=](Module &m, unsigned level) {
    if (level)
      m.attrs.set("activations_place", to);
  };
  a.text = [=](unsigned level) { return level ? "what the forward keeps lives elsewhere until the backward: " + to : ""; };
  out.push_back(std::move(a));
}

// ---- the order of micro-batches

/// Blocks first keeps more, and fetches less.
void Axes::addOrder(std::vector<Axis> &out) const {
  if (!o_.seeksOrder())
    return;
  Axis a;
  a.name = "order";
  a.levels = 2;
  a.shifts = true;
  a.note = [](Module &m, unsigned level) {
    if (level)
      m.attrs.set("accum_order", std::string("blocks"));
  };
  a.text = [](unsigned level) { return level ? "all micro-batches pass through a block before the next one" : ""; };
  out.push_back(std::move(a));
}

// ---- how much is there at once

/// Less than what schedule-transfers takes, down to one transfer at a time.
void Axes::addWindow(std::vector<Axis> &out) const {
  constexpr int64_t kMostWindow = 128 << 20;
  int64_t total = 0;
  for (auto &g : m_.globals)
    if (g->role == GlobalValue::Param)
      total += g->type.localBytes();
  int64_t most = std::min(kMostWindow, total / 2);
  std::vector<int64_t> values = {most, most / 2, 3 * most / 8, most / 4, most / 16, 0};
  if (isSmall_)
    values = {0};
  out.push_back(numbers("window", "transfer_window", values, "under way between spaces at once: {0} bytes"));
  out.back().tightens = true;
  if (!movesStates() && o_.away(o_.offloadActivations) == Space::Device)
    out.back().beside = {"states", "parameters", "activations"};
}

void Axes::addSubGroup(std::vector<Axis> &out) const {
  constexpr int64_t kMostRuns = 512; // of all updates: each is some nodes more
  int64_t total = 0, largest = 0;
  for (auto &g : m_.globals)
    if (g->role == GlobalValue::Param) {
      total += g->type.count();
      largest = std::max(largest, g->type.count());
    }
  std::vector<int64_t> values;
  for (int64_t length : {int64_t(1) << 19})
    if (length < largest && total / length <= kMostRuns)
      values.push_back(length);
  if (o_.subGroup > 0 || values.empty())
    return;
  out.push_back(numbers("sub-group", "sub_group", values, "elements of states that are updated at once: {0}"));
  if (!movesStates())
    out.back().beside = {"states", "parameters"};
}

void Axes::addReuse(std::vector<Axis> &out) const {
  bool gathers = trains_ && m_.ranks > 1 && o_.zero == 3;
  bool fetches = (o_.seeks(o_.offloadParam) && mayMoveParams() && !spaces().empty()) || movesParams();
  if (o_.maxReuse >= 0 || !(gathers || fetches))
    return;
  out.push_back(
      numbers("reuse", "max_reuse", {0}, "elements between two uses of a parameter that is fetched once for both: {0}"));
  if (!movesParams() && !gathers)
    out.back().beside = {"parameters"};
}

// ---- all

std::vector<Axis> Axes::all() const {
  std::vector<Axis> out;
  if (trains_)
    addRecomputation(out);
  addPlaces(out);
  if (trains_) {
    addLate(out);
    addUpdatePlace(out);
  }
  addDiskShare(out);
  if (trains_) {
    addActivations(out);
    addOrder(out);
  }
  if (movesAnything()) {
    addWindow(out);
    if (trains_)
      addSubGroup(out);
  }
  addReuse(out);
  return out;
}

std::vector<Axis> zcc::openAxes(const Module &m, const PassContext &ctx) { return Axes(m, ctx).all(); }

size_t zcc::countOf(llvm::ArrayRef<Axis> axes) {
  size_t n = 1;
  for (const Axis &a : axes)
    n = std::min<size_t>(n * a.levels, size_t(1) << 32);
  return n;
}
