// Optimizer state, master weights, gradients that wait, and parameters live in another space (ZeRO-Offload, arXiv 2101.06840;
// ZeRO-Infinity, arXiv 2104.07857, section 5): what reads them reads a transfer, and what they become is transferred back.
//
//   state %w.m : f32[64]                 state %w.m : f32[64]@nvme
//                                        %m0, %v0 = transfer %w.m, %w.v {to = "device"}
//   %m1 = add %w.m, %g            ->     %m1 = add %m0, %g
//   assign %w.m, %m1                     %m2, %v2 = transfer %m1, %v1 {to = "nvme"}
//   assign %w.v, %v1                     assign %w.m, %m2
//                                        assign %w.v, %v2
//
// A large update is first cut into runs of elements (--sub-group-size), each with transfers of its own. A gradient that waits for
// something that follows from all gradients, such as their norm, goes the same way: it is transferred as soon as it is there and
// its share of the norm is taken, and comes back with the states; the last ones stay, which would come back at once. A parameter
// is transferred for each cluster of uses, as it is gathered at stage 3, and before it is gathered there; an update soon behind
// such a cluster reads what is there. schedule-transfers starts and waits. Where host memory is not the device's and the CPU is
// said to be quicker at it, an update is computed there instead (HostUpdate.h).
//
// Where each lives is what a note on the parameter says (`place`, `states_place`, by choose-plan or by hand), else what the flag
// says for all of them.
#include "ir/Builder.h"
#include "passes/Pass.h"
#include "passes/Refusal.h"
#include "passes/Target.h"
#include "passes/memory/Activations.h"
#include "passes/offload/HostUpdate.h"
#include "passes/offload/LateNodes.h"
#include "passes/offload/Updates.h"
#include "passes/zero/Zero.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/Support/MathExtras.h"
#include <map>

using namespace zcc;

/// Elements of a sub-group: some transfers of 8 MiB keep a disk busy, and a few of them are small beside a model that needs this.
constexpr int64_t kSubGroup = 2 << 20;
/// A run of elements of at least two bytes begins at a whole block of a disk.
constexpr int64_t kRunAlign = 2048;

namespace {
/// What is transferred together: values that live elsewhere, and the assignments to those that do.
struct StateGroup {
  llvm::SmallVector<Value *, 4> in;
  llvm::SmallVector<Node *, 4> assigns;
};
/// By parameter, and by where a run begins, or one of these.
constexpr int64_t kAll = -1, kForOthers = -2, kLate = -3;
constexpr int64_t kAgain = int64_t(1) << 62; ///< more: of the second pass
constexpr int64_t kEach = int64_t(1) << 61;  ///< more: of each call of @micro, where the first one updates, too
using StateGroups = llvm::MapVector<std::pair<GlobalValue *, int64_t>, StateGroup>;

class Offloader {
public:
  Offloader(Module &m, PassContext &ctx);
  llvm::Expected<bool> run();

private:
  llvm::Error readNotes();
  llvm::Error chooseUpdates();
  void noteLate();
  void collect();
  Space spaceOf(const GlobalValue &g) const;
  void cut(Function &f, GlobalValue *param, llvm::ArrayRef<GlobalValue *> away);
  void cut(Function &f, const Update &u, GlobalValue &param);
  void fetch(Function &f, GlobalValue &param);
  void reuse(Function &f, GlobalValue &param);
  void offload(Function &f, GlobalValue *param, llvm::ArrayRef<GlobalValue *> globals);
  void keepLast(const Function &f);
  Value *spill(Function &f, Value *v, Space to, llvm::ArrayRef<Value::Use> updates);
  void transfer(Function &f, StateGroup &g, bool isLate);
  void takeBack(Function &f, StateGroup &g);
  bool isHostSooner(const GlobalValue &param) const;
  bool updatesOnHost(const GlobalValue &param) const;
  bool isLargePart(const GlobalValue &param) const;
  int64_t lengthOf(const Update &u) const;

  Module &m_;
  PassContext &ctx_;
  ZeroLimits limits_;
  int64_t elements_ = 0; ///< of all parameters
  PlacesOfParams places_;
  llvm::DenseMap<const GlobalValue *, int64_t> statesAway_; ///< bytes of a parameter's states that are not on the device
  /// What is away, by parameter, and by the shards of the type: accumulated gradients may be whole where moments are not.
  llvm::MapVector<std::pair<GlobalValue *, int>, llvm::SmallVector<GlobalValue *, 4>> away_;
  llvm::DenseSet<const Node *> late_;         ///< what only the first of several calls of @micro does, with transfers of its own
  llvm::SmallPtrSet<const Value *, 16> sums_; ///< of gradients, to which each of those adds
  llvm::SmallPtrSet<const Node *, 32> again_; ///< runs and assignments of second passes
  llvm::SmallPtrSet<Node *, 32> members_;     ///< of updates that are not cut
  std::map<const Function *, Positions> at_;  ///< but of what a cut or a transfer adds
  std::map<const Function *, HostUpdates> hostUpdates_;
  std::map<const Function *, std::vector<int64_t>> fetched_; ///< by position, and one more: elements of params fetched before it
  /// What gradients that wait are read by, of each function and parameter.
  std::map<std::pair<Function *, GlobalValue *>, llvm::MapVector<Value *, std::vector<Value::Use>>> waiting_;
  llvm::SmallPtrSet<const Value *, 8> staying_; ///< of them
};
} // namespace

Offloader::Offloader(Module &m, PassContext &ctx) : m_(m), ctx_(ctx), limits_(zeroLimits(m, ctx.options)) {
  for (auto &g : m.globals)
    elements_ += g->role == GlobalValue::Param ? g->type.count() : 0;
}

// ---- gradients that wait

/// The last ones, of all that are to go away, as long as they are no larger together than the largest of all.
void Offloader::keepLast(const Function &f) {
  if (m_.attrs.i("transfer_window", 1) == 0)
    return; // as little memory as can be
  std::vector<std::pair<int, Value *>> made;
  const Positions &at = at_.at(&f);
  auto add = [&](Value *v) {
    if (v->def)
      made.push_back({at.lookup(v->def), v});
  };
  for (auto &[key, gradients] : waiting_)
    if (key.first == &f && !updatesOnHost(*key.second))
      for (auto &[v, updates] : gradients)
        add(v);
  for (auto &g : m_.globals)
    for (auto &u : g->uses)
      if (g->attrs.has("late") && g->attrs.has("of") && isWrite(u) && u.node->parent() == &f)
        add(u.node->operand(1));
  llvm::sort(made, [](auto &a, auto &b) { return std::pair(a.first, a.second->index) > std::pair(b.first, b.second->index); });
  int64_t largest = 0, sum = 0;
  for (auto &[when, v] : made)
    largest = std::max(largest, v->type.localBytes());
  for (auto &[when, v] : made)
    if ((sum += v->type.localBytes()) <= largest)
      staying_.insert(v);
}

/// Transfers a gradient away as soon as its share of the norm is taken. Returns what its update reads instead.
Value *Offloader::spill(Function &f, Value *v, Space to, llvm::ArrayRef<Value::Use> updates) {
  Node *last = summarizeFirst(*v, at_.at(&f));
  Node *out = Builder(f, last->next(), v->def->loc).node(ops::transfer, {v}, {{"to", spaceName(to).str()}});
  out->phase = Phase::Update;
  for (auto &u : updates)
    u.node->setOperand(u.index, out->result());
  return out->result();
}

// ---- transfers

/// In front of the first node that reads any of them; of those that late updates are, or of the others.
void Offloader::transfer(Function &f, StateGroup &g, bool isLate) {
  const Positions &at = at_.at(&f);
  Node *first = nullptr;
  llvm::SmallVector<Value *, 4> read;
  auto readers = [&](Value *v) {
    llvm::SmallVector<Value::Use, 4> uses;
    for (auto &u : v->uses)
      if (u.node->parent() == &f && !isWrite(u) && !u.node->is(ops::run) && !u.node->is(ops::transfer) &&
          late_.contains(u.node) == isLate)
        uses.push_back(u);
    return uses;
  };
  for (Value *v : g.in) {
    auto uses = readers(v);
    for (auto &u : uses)
      if (!first || at.lookup(u.node) < at.lookup(first))
        first = u.node;
    if (!uses.empty())
      read.push_back(v);
  }
  if (first) {
    Builder b(f, first, first->loc);
    Node *in = b.node(ops::transfer, read, {{"to", spaceName(Space::Device).str()}});
    for (unsigned i = 0; i < read.size(); ++i)
      for (auto &u : readers(read[i]))
        u.node->setOperand(u.index, in->result(i));
  }
}

/// Behind the last node that makes what is assigned to what lives elsewhere.
void Offloader::takeBack(Function &f, StateGroup &g) {
  const Positions &at = at_.at(&f);
  Node *last = nullptr;
  llvm::SmallVector<Value *, 4> written;
  for (Node *a : g.assigns)
    if (!last || at.lookup(a) > at.lookup(last))
      last = a;
  for (Space to : {Space::Host, Space::Nvme}) {
    llvm::SmallVector<Node *, 4> assigns;
    for (Node *a : g.assigns)
      if (a->operand(0)->type.space == to && a->operand(1)->type.space != to) {
        assigns.push_back(a);
        written.push_back(a->operand(1));
      }
    if (assigns.empty())
      continue;
    Node *out = Builder(f, last, last->loc).node(ops::transfer, written, {{"to", spaceName(to).str()}});
    written.clear();
    for (unsigned i = 0; i < assigns.size(); ++i) {
      assigns[i]->setOperand(1, out->result(i));
      if (assigns[i] != last)
        assigns[i]->moveBefore(last);
    }
  }
}

/// Transfers of a parameter for what is not its update: to the device for compute, for each cluster of uses; a shard in front of
/// what gathers it.
void Offloader::fetch(Function &f, GlobalValue &param) {
  llvm::SmallVector<Value::Use, 4> uses;
  for (auto &u : param.uses)
    if (u.node->parent() == &f && !isWrite(u) && !u.node->is(ops::run) && !members_.contains(u.node))
      uses.push_back(u);
  bool isResult = llvm::is_contained(f.results, &param);
  if (uses.empty() && !isResult)
    return;
  auto fetched = [&](Node *before) {
    Node *in = Builder(f, before, before->loc).node(ops::transfer, {&param}, {{"to", spaceName(Space::Device).str()}});
    in->phase = uses.empty() ? Phase::Forward : uses[0].node->phase;
    return in->result();
  };
  if (param.type.isPartitioned()) {
    for (auto &u : uses)
      u.node->setOperand(u.index, fetched(u.node));
    return;
  }
  Value *there = fetched(f.first());
  for (auto &u : uses)
    u.node->setOperand(u.index, there);
  std::replace(f.results.begin(), f.results.end(), static_cast<Value *>(&param), there);
}

/// Whether it holds a large part of all that parameters hold, and more than is under way as a rule.
bool Offloader::isLargePart(const GlobalValue &param) const {
  constexpr int64_t kPart = 4;
  return param.type.localBytes() > kLeastWindow && param.type.count() > elements_ / kPart;
}

/// Elements of parameters that are fetched before each node.
static std::vector<int64_t> elementsFetched(const Function &f) {
  std::vector<int64_t> sums = {0};
  for (auto &n : f.nodes)
    sums.push_back(sums.back() + (isTransfer(*n) ? n->result()->type.count() : 0));
  return sums;
}

/// An update reads what was fetched for compute, if that is used shortly before. A parameter that is a large part of all is not
/// kept beside its gradient.
void Offloader::reuse(Function &f, GlobalValue &param) {
  if (isLargePart(param))
    return;
  const Positions &at = at_.at(&f);
  const std::vector<int64_t> &fetched = fetched_.at(&f);
  std::vector<std::pair<int, Value *>> there; // by the last reader of each fetch
  for (auto &u : param.uses)
    if (u.node->parent() == &f && isTransfer(*u.node)) {
      int last = -1;
      for (Node *r : readersOf(*u.node->result(u.index)))
        last = std::max(last, at.lookup(r));
      there.push_back({last, u.node->result(u.index)});
    }
  llvm::sort(there, [](auto &a, auto &b) { return a.first < b.first; });
  llvm::SmallVector<Value::Use, 4> uses(param.uses.begin(), param.uses.end());
  for (auto &u : uses) {
    if (u.node->parent() != &f || isWrite(u) || !(u.node->is(ops::run) || members_.contains(u.node)))
      continue;
    int here = at.lookup(u.node);
    auto behind = llvm::partition_point(there, [&](auto &t) { return t.first < here; });
    if (behind != there.begin() && fetched[here] - fetched[std::prev(behind)->first] <= limits_.maxReuse)
      u.node->setOperand(u.index, std::prev(behind)->second);
  }
}

// ---- all

/// Whether the CPU takes less time for a parameter's update, with what is copied for it, than the device with its copies; where
/// neither does, what copies less.
bool Offloader::isHostSooner(const GlobalValue &param) const {
  const Machine m = machineOf(ctx_.target);
  const int64_t weights = param.type.localBytes(), states = statesAway_.lookup(&param);
  const double touched = 2 * double(states + weights);
  // A disk reads and writes the device's memory by itself.
  const double copied = places_.lookup(&param).states == Space::Host ? double(states) : 0;
  auto seconds = [&](double copies, Rate bytes) { return std::max(copies / m[Rate::HostCopy], touched / m[bytes]); };
  return std::pair(seconds(double(weights), Rate::HostBytes), double(weights)) < std::pair(seconds(copied, Rate::Bytes), copied);
}

bool Offloader::updatesOnHost(const GlobalValue &param) const {
  const Places &places = places_.find(&param)->second;
  return places.states != Space::Device && places.update == Space::Host;
}

/// Elements updated at once, in runs of about the same length; 0: all.
int64_t Offloader::lengthOf(const Update &u) const {
  int64_t otherwise = m_.attrs.i("sub_group", kSubGroup), count = u.type.localCount();
  int64_t most = ctx_.options.subGroup > 0 ? ctx_.options.subGroup : otherwise;
  if (count <= most || u.nodes.empty())
    return 0;
  const int64_t longest = std::max<int64_t>(llvm::alignDown(most, kRunAlign), kRunAlign);
  int64_t length = llvm::alignTo(llvm::divideCeil(count, llvm::divideCeil(count, longest)), kRunAlign);
  return length < count ? length : 0;
}

/// While all is still on the device: cuts a large update into runs, and notes which gradients wait.
void Offloader::cut(Function &f, GlobalValue *param, llvm::ArrayRef<GlobalValue *> away) {
  llvm::SmallVector<GlobalValue *, 4> updated; // what keeps a gradient for the next step is written long after it is read
  llvm::copy_if(away, std::back_inserter(updated), [](GlobalValue *g) { return !g->attrs.has("late"); });
  auto sums = std::stable_partition(updated.begin(), updated.end(), [&](GlobalValue *g) { return !sums_.contains(g); });
  if (sums != updated.end())
    cut(f, findUpdate(f, at_.at(&f), nullptr, {sums, updated.end()}), *param);
  if (sums != updated.begin())
    cut(f, findUpdate(f, at_.at(&f), param, {updated.begin(), sums}), *param);
}

void Offloader::cut(Function &f, const Update &u, GlobalValue &param) {
  std::vector<Value *> gradients =
      places_[&param].states == Space::Device ? std::vector<Value *>() : waitingGradients(u, at_.at(&f));
  int64_t length = lengthOf(u);
  const bool isCut = length && u.isElementwise && splitUpdate(u, length, at_[&f], again_);
  if (!isCut) {
    members_.insert(u.nodes.begin(), u.nodes.end());
    members_.insert(u.norms.begin(), u.norms.end());
  }
  if (length && !isCut)
    ctx_.remarks.push_back("the update of '%" + param.name +
                           "' needs all of its elements at once: --sub-group-size does not cut it");
  for (Value *v : gradients)
    for (auto &use : v->uses)
      if (use.node->is(ops::run) || members_.contains(use.node))
        waiting_[{&f, &param}][v].push_back(use);
}

void Offloader::offload(Function &f, GlobalValue *param, llvm::ArrayRef<GlobalValue *> globals) {
  llvm::SmallVector<Value *, 8> away(globals.begin(), globals.end());
  if (auto i = waiting_.find({&f, param}); i != waiting_.end())
    for (auto &[v, updates] : i->second)
      if (!staying_.contains(v))
        away.push_back(spill(f, v, places_[param].states, updates));
  waiting_.erase({&f, param});
  const bool onHost = updatesOnHost(*param);
  auto eachOf = [&](const Node &n) { return f.name == "micro" && !late_.empty() && !late_.contains(&n) ? kEach : 0; };
  auto runOf = [&](const Node &n) { return n.attrs.i("begin") + (again_.contains(&n) ? kAgain : eachOf(n)); };
  StateGroups groups;
  for (Value *v : away) {
    // What a collective gets of them, it gets long before the update.
    bool isForUpdate = llvm::all_of(v->uses, [&](auto &u) {
      return u.node->parent() != &f || isWrite(u) || u.node->is(ops::run) || u.node->is(ops::transfer) ||
             members_.contains(u.node);
    });
    groups[{param, isForUpdate || onHost ? kAll : kForOthers}].in.push_back(v);
    for (auto &use : v->uses) {
      if (use.node->parent() != &f)
        continue;
      if (isWrite(use)) {
        bool isRun = use.node->operand(1)->type.dims != v->type.dims;
        bool isLate = static_cast<GlobalValue *>(v)->attrs.has("late");
        groups[{param, isRun ? runOf(*use.node) : isLate ? kLate : kAll + eachOf(*use.node)}].assigns.push_back(use.node);
      } else if (use.node->is(ops::run)) {
        use.node->result()->type.space = v->type.space;
        groups[{param, runOf(*use.node)}].in.push_back(use.node->result());
      }
    }
  }
  for (auto &[key, group] : groups) {
    if (onHost)
      hostUpdates_.try_emplace(&f, f, at_.at(&f), late_).first->second.place(group.in);
    else
      for (bool isLate : {true, false})
        transfer(f, group, isLate);
    takeBack(f, group);
  }
}

static llvm::Error checkShards(const Module &m, const Options &o) {
  if (m.ranks == 1 || o.zero == 3 || o.inference) // without training each rank has all of them
    return llvm::Error::success();
  return refuse("--offload-param needs --zero=3, or one rank: with several ranks it is a parameter's shard that lives elsewhere");
}

/// Where the notes and flags say that a global lives.
Space Offloader::spaceOf(const GlobalValue &g) const {
  if (g.type.isScalar())
    return Space::Device;
  if (g.role == GlobalValue::Param)
    return places_.lookup(&g).own;
  return g.role == GlobalValue::State && g.attrs.has("of") ? places_.lookup(m_.global(g.attrs.s("of"))).states : Space::Device;
}

/// Finds and erases the notes.
llvm::Error Offloader::readNotes() {
  auto places = placesOf(m_, ctx_.options);
  if (!places)
    return places.takeError();
  places_ = std::move(*places);
  for (auto &g : m_.globals) {
    if (g->role != GlobalValue::Param)
      continue;
    g->attrs.erase("place");
    g->attrs.erase("states_place");
    if (places_.lookup(g.get()).own != Space::Device)
      if (auto e = checkShards(m_, ctx_.options))
        return e;
  }
  return chooseUpdates();
}

/// By the notes on params, by the flag, or by the rates.
llvm::Error Offloader::chooseUpdates() {
  const bool hasHost = ctx_.options.hasHost();
  if (hasHost)
    for (auto &g : m_.globals)
      if (g->role == GlobalValue::State && spaceOf(*g) != Space::Device)
        statesAway_[m_.global(g->attrs.s("of"))] += g->type.localBytes();
  for (auto &g : m_.globals) {
    if (g->role != GlobalValue::Param)
      continue;
    std::string note = g->attrs.s("update_place");
    g->attrs.erase("update_place");
    if (!note.empty() && note != "device" && note != "host")
      return refuse("param '%" + g->name + "': update_place must be device or host, not '" + note + "'");
    UpdatePlace place = note == "host" ? UpdatePlace::Host : note == "device" ? UpdatePlace::Device : ctx_.options.offloadUpdate;
    bool onHost = hasHost && (place == UpdatePlace::Auto ? isHostSooner(*g) : place == UpdatePlace::Host);
    places_[g.get()].update = onHost ? Space::Host : Space::Device;
  }
  return llvm::Error::success();
}

/// What only the first of several calls of @micro does, of the nodes that are there now.
void Offloader::noteLate() {
  if (m_.function("update"))
    late_ = lateNodes(m_);
}

void Offloader::collect() {
  noteLate();
  auto isSum = [&](const GlobalValue &g) {
    return !late_.empty() && llvm::any_of(g.uses, [&](auto &u) {
      return u.node->parent()->name == "micro" && isWrite(u) && !late_.contains(u.node);
    });
  };
  for (auto &g : m_.globals)
    if (spaceOf(*g) != Space::Device) {
      if (isSum(*g))
        sums_.insert(g.get());
      bool isParam = g->role == GlobalValue::Param;
      away_[{isParam ? g.get() : m_.global(g->attrs.s("of")), g->type.shards}].push_back(g.get());
    }
}

llvm::Expected<bool> Offloader::run() {
  bool hadNotes = llvm::any_of(
      m_.globals, [](auto &g) { return g->attrs.has("place") || g->attrs.has("states_place") || g->attrs.has("update_place"); });
  if (auto e = readNotes())
    return e;
  collect();
  if (away_.empty())
    return hadNotes;
  llvm::SmallVector<Function *, 4> entries;
  for (auto &f : m_.functions)
    if (f->isEntry())
      entries.push_back(f.get());
  for (Function *f : entries)
    at_[f] = positions(*f);
  for (auto &[key, globals] : away_)
    for (Function *f : entries)
      cut(*f, key.first, globals);
  for (const Function *f : entries)
    keepLast(*f);
  noteLate();
  for (auto &[key, globals] : away_)
    for (GlobalValue *g : globals)
      g->type.space = spaceOf(*g);
  for (Function *f : entries) {
    for (auto &[key, globals] : away_)
      if (llvm::is_contained(globals, key.first))
        fetch(*f, *key.first);
    if (auto e = clusterUses(*f, limits_, ctx_).takeError())
      return e;
    at_[f] = positions(*f);
    fetched_[f] = elementsFetched(*f);
  }
  for (auto &[key, globals] : away_)
    for (Function *f : entries) {
      if (llvm::is_contained(globals, key.first) && !updatesOnHost(*key.first))
        reuse(*f, *key.first);
      offload(*f, key.first, globals);
    }
  return true;
}

llvm::Expected<bool> zcc::offloadStates(Module &m, PassContext &ctx) {
  const Options &o = ctx.options;
  for (auto [place, flag] : {std::pair(o.offloadOptimizer, "--offload-optimizer"),
                             {o.offloadParam, "--offload-param"},
                             {o.offloadActivations, "--offload-activations"}}) {
    if (place == Offload::Cpu && !o.separateHost)
      ctx.remarks.push_back("host memory is the device's own on this target: " + std::string(flag) + "=cpu moves nothing");
    if (place == Offload::Auto && !o.hasBudget())
      ctx.remarks.push_back(std::string(flag) + "=auto moves nothing without --memory");
  }
  if (o.offloadUpdate == UpdatePlace::Host && !o.hasHost())
    ctx.remarks.push_back("host memory is the device's own on this target: --offload-update=cpu changes nothing");
  if (o.away(o.offloadParam) != Space::Device)
    if (auto e = checkShards(m, o))
      return e;
  return Offloader(m, ctx).run();
}
