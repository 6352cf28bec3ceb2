// Finds what belongs to an update by its types, and repeats it for each run of elements.
#include "passes/offload/Updates.h"
#include "ir/Builder.h"
#include "ir/Steps.h"
#include "passes/EvenPart.h"
#include "passes/Refusal.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SmallPtrSet.h"
#include <climits>
#include <cmath>
#include <map>

using namespace zcc;

// ---- places

llvm::Expected<PlacesOfParams> zcc::placesOf(const Module &m, const Options &o) {
  constexpr int64_t kParts = 1 << 10;
  const int64_t small = zeroLimits(m, o).persistence;
  EvenPart evenly(std::llround(o.offloadRatio * kParts), kParts);
  PlacesOfParams places;
  for (auto &g : m.globals) {
    if (g->role != GlobalValue::Param)
      continue;
    Places &p = places[g.get()];
    if (g->type.count() > small)
      p.own = o.away(o.offloadParam);
    if (g->trained && evenly.takes(g->type.count()))
      p.states = o.away(o.offloadOptimizer);
    for (auto [name, place] : {std::pair("place", &p.own), {"states_place", &p.states}}) {
      if (!g->attrs.has(name))
        continue;
      auto space = spaceFromName(g->attrs.s(name));
      if (!space)
        return refuse("param '%" + g->name + "': " + name + " must be device, host or nvme, not '" + g->attrs.s(name) + "'");
      *place = o.away(*space);
    }
    if (g->attrs.has("persists"))
      p.own = Space::Device;
  }
  return places;
}

// ---- the first

llvm::DenseSet<const GlobalValue *> zcc::readFirst(const Module &m) {
  llvm::DenseSet<const GlobalValue *> first;
  int64_t largest = 0, sum = 0;
  for (auto &g : m.globals)
    if (g->role == GlobalValue::Param && g->trained)
      largest = std::max(largest, g->type.count());
  for (auto &n : m.function("micro")->nodes)
    for (Value *v : n->operands()) {
      if (!v || !v->isGlobal() || n->phase != Phase::Forward)
        continue;
      auto *g = static_cast<const GlobalValue *>(v);
      if (g->role != GlobalValue::Param || !g->trained || first.contains(g))
        continue;
      if ((sum += g->type.count()) > largest)
        return first;
      first.insert(g);
    }
  return first;
}

// ---- finding it

namespace {
class Finder {
public:
  Finder(Update &u, const Positions &at) : u_(u), at_(at) {}
  void find(GlobalValue *param, llvm::ArrayRef<GlobalValue *> states);

private:
  bool isLike(const Value &v) const { return v.type.dims == u_.type.dims && v.type.shards == u_.type.shards; }
  bool isMember(const Value &v) const;
  void visit(Value *v);
  void collect(llvm::ArrayRef<GlobalValue *> globals);
  bool checkUses();

  Update &u_;
  const Positions &at_;
  llvm::SmallPtrSet<Node *, 16> members_;
  llvm::SmallPtrSet<const Node *, 4> others_; ///< what something else reads, such as a norm: the update reads it too
};
} // namespace

bool Finder::isMember(const Value &v) const {
  return isLike(v) && v.def && !others_.contains(v.def) && v.def->op->isElementwise() && v.def->phase == Phase::Update &&
         llvm::all_of(v.def->operands(), [&](Value *o) { return o->type.isScalar() || isLike(*o); });
}

void Finder::visit(Value *v) {
  if (!isMember(*v)) {
    if (isLike(*v) && !isConstant(v))
      u_.leaves.insert(v);
    return;
  }
  if (!members_.insert(v->def).second)
    return;
  for (Value *o : v->def->operands())
    visit(o);
}

/// Of its shards, where each rank holds the whole.
static bool isForNorm(const Node &n) {
  return n.op->structural == Structural::Shard &&
         llvm::all_of(n.result()->uses, [](auto &u) { return u.node->op == &ops::sum_squares; });
}

/// Notes where collectives, norms and the forward read results. Whether nothing else does.
bool Finder::checkUses() {
  bool areOwn = true;
  for (Node *n : u_.nodes)
    for (auto &use : n->result()->uses) {
      if (members_.contains(use.node) || llvm::is_contained(u_.assigns, use.node))
        continue;
      if (use.node->op->collective == Collective::Gather || use.node->phase != Phase::Update || isForNorm(*use.node)) {
        u_.whole.push_back(use);
        continue;
      }
      if (use.node->op == &ops::sum_squares) {
        u_.norms.push_back(use.node);
        continue;
      }
      others_.insert(n);
      areOwn = false;
    }
  return areOwn;
}

static Value *behindGather(Value *v) {
  return v->def && v->def->op->collective == Collective::Gather ? v->def->operand(v->index) : v;
}

void Finder::collect(llvm::ArrayRef<GlobalValue *> globals) {
  for (GlobalValue *g : globals)
    for (auto &use : g->uses)
      if (use.node->parent() == u_.f && assigns(*use.node) && use.index == 0) {
        u_.assigns.push_back(use.node);
        visit(behindGather(use.node->operand(1)));
      }
  u_.nodes.assign(members_.begin(), members_.end());
  llvm::sort(u_.nodes, [&](Node *a, Node *b) { return at_.lookup(a) < at_.lookup(b); });
}

void Finder::find(GlobalValue *param, llvm::ArrayRef<GlobalValue *> states) {
  llvm::SmallVector<GlobalValue *, 4> globals(states.begin(), states.end());
  if (param && !llvm::is_contained(states, param))
    globals.push_back(param);
  Function *f = u_.f;
  do {
    u_ = Update();
    u_.f = f;
    u_.type = states[0]->type;
    members_.clear();
    collect(globals);
  } while (!checkUses());
  for (Value *v : u_.leaves)
    for (auto &use : v->uses)
      if (v->isGlobal() && use.node->parent() == u_.f && use.node->op == &ops::sum_squares)
        u_.norms.push_back(use.node);
  for (Node *a : u_.assigns) {
    Value *v = a->operand(1);
    u_.isElementwise &= behindGather(v) != v || (v->def && members_.contains(v->def));
  }
}

Update zcc::findUpdate(Function &f, const Positions &at, GlobalValue *param, llvm::ArrayRef<GlobalValue *> states) {
  Update u;
  u.f = &f;
  Finder(u, at).find(param, states);
  return u;
}

// ---- gradients that wait

/// The reductions to one number that follow from `v` and from nothing else but numbers, and all that they need, in order.
static std::vector<Node *> summaries(Value &v, const Positions &at) {
  std::vector<Node *> chain, out;
  llvm::SmallPtrSet<Node *, 8> needed;
  llvm::SmallPtrSet<const Value *, 8> known = {&v};
  std::map<int, Node *> next; // readers of what is known, by position
  auto follow = [&](Value &known) {
    for (auto &u : known.uses)
      if (u.node->parent() == v.def->parent())
        next[at.lookup(u.node)] = u.node;
  };
  for (follow(v); !next.empty();) { // what follows from v alone
    Node *n = next.extract(next.begin()).mapped();
    bool isOwn = n->op->isPure() && n->phase == Phase::Update && n->results.size() == 1 &&
                 llvm::all_of(n->operands(), [&](Value *o) { return o && (known.contains(o) || isConstant(o)); });
    if (!isOwn)
      continue;
    known.insert(n->result());
    chain.push_back(n);
    follow(*n->result());
  }
  for (Node *n : llvm::reverse(chain)) { // what reductions need, and the views of their results
    bool isNumber = n->result()->type.count() == 1;
    bool isUsed = llvm::any_of(n->result()->uses, [&](auto &u) { return needed.contains(u.node); });
    if (isUsed || (isNumber && (n->op->reduction || n->op->view)))
      needed.insert(n);
  }
  for (Node *n : chain)
    if (needed.contains(n))
      out.push_back(n);
  return out;
}

Node *zcc::summarizeFirst(Value &v, const Positions &at) {
  Node *last = v.def;
  for (Node *n : summaries(v, at)) {
    for (Value *o : n->operands())
      if (isConstant(o))
        o->def->moveBefore(v.def);
    if (n != last->next())
      n->moveBefore(last->next());
    last = n;
  }
  return last;
}

/// Whether `v` is computed from a result of one of the nodes.
static bool followsFrom(const Value &v, llvm::ArrayRef<Node *> nodes, const Positions &at) {
  llvm::SmallVector<const Value *> work = {&v};
  llvm::SmallPtrSet<const Value *, 16> seen;
  int first = INT_MAX;
  for (const Node *n : nodes)
    first = std::min(first, at.lookup(n));
  while (!work.empty()) {
    const Value *from = work.pop_back_val();
    if (!from || !from->def || from->def->phase != Phase::Update || !seen.insert(from).second)
      continue;
    if (llvm::is_contained(nodes, from->def))
      return true;
    ++steps;
    // What stands before all of them follows from none: the norm of all gradients would be gone through for each.
    if (auto known = at.find(from->def); known == at.end() || known->second >= first)
      work.append(from->def->operands().begin(), from->def->operands().end());
  }
  return false;
}

/// Whether `v` is computed from parameters and states: no gradient.
static bool readsStates(const Value &v) {
  llvm::SmallVector<const Value *> work = {&v};
  llvm::SmallPtrSet<const Value *, 16> seen;
  while (!work.empty()) {
    const Value *at = work.pop_back_val();
    if (!at || at->type.isScalar() || !seen.insert(at).second)
      continue;
    if (at->isGlobal())
      return true;
    if (at->def && at->def->op->isElementwise() && at->def->phase == Phase::Update)
      work.append(at->def->operands().begin(), at->def->operands().end());
  }
  return false;
}

std::vector<Value *> zcc::waitingGradients(const Update &u, const Positions &at) {
  int lastNumber = -1;
  for (Node *n : u.nodes)
    for (Value *v : n->operands())
      if (v->type.isScalar() && v->def && !isConstant(v) && !followsFrom(*v, u.nodes, at))
        lastNumber = std::max(lastNumber, at.lookup(v->def));
  std::vector<Value *> out;
  for (Value *v : u.leaves)
    if (v->kind == Value::Result && at.lookup(v->def) < lastNumber && !readsStates(*v))
      out.push_back(v);
  return out;
}

// ---- repeating it

void zcc::repeatNodes(Builder &b, const Update &u, llvm::DenseMap<Value *, Value *> &now) {
  for (Node *n : u.nodes) {
    llvm::SmallVector<Value *, 4> operands;
    for (Value *v : n->operands())
      operands.push_back(now.count(v) ? now[v] : v);
    b.loc = n->loc;
    now[n->result()] = b.make(*n->op, operands, n->attrs);
  }
}

// ---- splitting it

namespace {
class Splitter {
public:
  Splitter(const Update &u, const Positions &at) : u_(u), at_(at), count_(u.type.localCount()) {}
  /// Whether it can be cut there.
  bool part(int64_t length);
  void split(int64_t length, llvm::SmallPtrSetImpl<const Node *> &again);

private:
  bool isLate(const Node &n) const;
  bool store();
  bool need(Value *v, llvm::SmallPtrSetImpl<Node *> &needed);
  void own(Update &pass, llvm::function_ref<bool(const Node &)> isOwn) const;
  llvm::SmallVector<Node *, 8> emit(Builder &b, const Update &pass, int64_t begin, int64_t count);
  void readSumsBehind(const Update &pass, Node *end);

  const Update &u_;
  const Positions &at_;
  int64_t count_;
  Update first_, second_;                    ///< nodes, leaves, assigns, whole and norms of the passes
  llvm::SmallPtrSet<const Node *, 8> late_;  ///< nodes that need a norm
  llvm::MapVector<Value *, Value *> stored_; ///< what the first pass has written, by where it is
  std::vector<Value *> joined_, sums_;       ///< of Update::whole and Update::norms, so far
};
} // namespace

bool Splitter::isLate(const Node &n) const {
  return llvm::any_of(n.operands(), [&](Value *v) {
    return v->type.isScalar() ? followsFrom(*v, u_.nodes, at_) : v->def && late_.contains(v->def);
  });
}

static bool isChosen(const Value &v) { return v.def && v.def->op == &ops::select; }

/// What decides whether a value is taken in the place of an old one: whether the step counts, and whether there was one.
static llvm::SmallVector<Value *, 2> takenBy(Value *v) {
  llvm::SmallVector<Value *, 2> conditions;
  while (v->def && (v->def->op->converts() || isChosen(*v))) {
    if (isChosen(*v))
      conditions.push_back(v->def->operand(0));
    v = v->def->operand(isChosen(*v) ? 1 : 0);
  }
  return conditions;
}

/// Notes what the second pass finds where the first one has written it: where a step is left out, that is the old value, and
/// nothing is taken of what follows from it.
bool Splitter::store() {
  for (Node *a : u_.assigns) {
    Value *v = behindGather(a->operand(1)), *old = a->operand(0);
    if (takenBy(v) != takenBy(behindGather(u_.assigns[0]->operand(1))))
      return false;
    if (late_.contains(v->def))
      continue;
    stored_[v] = old;
    for (; isChosen(*v) && v->def->operand(2) == old; v = v->def->operand(1))
      stored_[v->def->operand(1)] = old;
  }
  return true;
}

/// What the second pass computes a value of; false: it would need what the first one has overwritten.
bool Splitter::need(Value *v, llvm::SmallPtrSetImpl<Node *> &needed) {
  if (stored_.count(v) || v->type.isScalar())
    return true;
  if (!u_.leaves.contains(v))
    return !v->def || !llvm::is_contained(u_.nodes, v->def) || !needed.insert(v->def).second ||
           llvm::all_of(v->def->operands(), [&](Value *o) { return need(o, needed); });
  second_.leaves.insert(v);
  return llvm::none_of(stored_, [&](auto &s) { return s.second == v; });
}

/// What a pass assigns, joins and adds up.
void Splitter::own(Update &pass, llvm::function_ref<bool(const Node &)> isOwn) const {
  auto isMade = [&](Value *v) { return v->def && llvm::is_contained(u_.nodes, v->def) && isOwn(*v->def); };
  llvm::copy_if(u_.assigns, std::back_inserter(pass.assigns), [&](Node *a) { return isMade(a->operand(1)); });
  llvm::copy_if(u_.whole, std::back_inserter(pass.whole), [&](auto &w) { return isMade(w.node->operand(w.index)); });
}

bool Splitter::part(int64_t length) {
  for (Node *n : u_.nodes)
    if (isLate(*n))
      late_.insert(n);
    else
      first_.nodes.push_back(n);
  first_.norms = u_.norms;
  for (Value *v : u_.leaves)
    if (llvm::any_of(v->uses,
                     [&](auto &u) { return llvm::is_contained(first_.nodes, u.node) || llvm::is_contained(u_.norms, u.node); }))
      first_.leaves.insert(v);
  own(first_, [&](const Node &n) { return !late_.contains(&n); });
  if (late_.empty())
    return true;
  llvm::SmallPtrSet<Node *, 16> needed;
  bool isWhole = !store() || first_.nodes.empty();
  for (Node *n : u_.nodes)
    if (late_.contains(n))
      isWhole |= !need(n->result(), needed);
  llvm::copy_if(u_.nodes, std::back_inserter(second_.nodes), [&](Node *n) { return needed.contains(n); });
  own(second_, [&](const Node &n) { return late_.contains(&n); });
  return !isWhole && llvm::all_of(u_.norms, [&](Node *n) {
    return !n->operand(1) && length % n->attrs.i("piece") == 0 && !late_.contains(n->operand(0)->def);
  });
}

/// Returns the runs and the assignments.
llvm::SmallVector<Node *, 8> Splitter::emit(Builder &b, const Update &pass, int64_t begin, int64_t count) {
  llvm::SmallVector<Node *, 8> out;
  llvm::DenseMap<Value *, Value *> now;
  auto run = [&](Value *v) {
    if (!now[v]) {
      now[v] = b.make(ops::run, {v}, {{"begin", begin}, {"count", count}});
      out.push_back(now[v]->def);
    }
    return now[v];
  };
  for (Value *v : pass.leaves)
    run(v);
  if (&pass == &second_)
    for (auto &[v, state] : stored_)
      now[v] = run(state);
  repeatNodes(b, pass, now);
  for (Node *a : pass.assigns)
    out.push_back(b.node(ops::assign, {a->operand(0), now.lookup(a->operand(1))}, {{"begin", begin}}));
  for (size_t i = 0; i < pass.norms.size(); ++i) {
    Value *x = now.lookup(pass.norms[i]->operand(0));
    llvm::SmallVector<Value *, 2> operands = {x};
    if (sums_[i])
      operands.push_back(sums_[i]);
    sums_[i] = b.make(ops::sum_squares, operands, pass.norms[i]->attrs);
  }
  for (size_t i = 0; i < pass.whole.size(); ++i) {
    Value *part = now[pass.whole[i].node->operand(pass.whole[i].index)];
    std::vector<int64_t> dims(u_.type.dims.begin(), u_.type.dims.end());
    joined_[i] = b.make(ops::insert, {joined_[i], part}, {{"begin", begin}, {"dims", dims}});
  }
  return out;
}

/// What follows from the norms in front of the runs that now add them up goes behind these, which end in front of `end`.
void Splitter::readSumsBehind(const Update &pass, Node *end) {
  auto isEarlier = [&](const Node *a, const Node *b) { return at_.lookup(a) < at_.lookup(b); };
  llvm::SmallPtrSet<const Value *, 16> late(sums_.begin(), sums_.end());
  const Node *last = pass.nodes.back();
  auto first = std::min_element(pass.norms.begin(), pass.norms.end(), isEarlier);
  if (first == pass.norms.end() || !isEarlier(*first, last))
    return;
  for (Node *n = *first, *next; n != last; n = next) {
    next = n->next();
    if (llvm::none_of(n->operands(), [&](Value *v) { return late.contains(v); }))
      continue;
    for (auto &r : n->results)
      late.insert(r.get());
    n->moveBefore(end);
  }
}

void Splitter::split(int64_t length, llvm::SmallPtrSetImpl<const Node *> &again) {
  for (const Update *pass : {&first_, &second_}) {
    if (pass->nodes.empty())
      continue;
    Node *end = pass->nodes.back()->next();
    Builder b(*u_.f, end, pass->nodes.back()->loc);
    joined_.assign(pass->whole.size(), nullptr);
    sums_.assign(pass->norms.size(), nullptr);
    for (int64_t begin = 0; begin < count_; begin += length)
      for (Node *n : emit(b, *pass, begin, std::min(length, count_ - begin)))
        if (pass == &second_)
          again.insert(n);
    for (size_t i = 0; i < pass->whole.size(); ++i)
      pass->whole[i].node->setOperand(pass->whole[i].index, joined_[i]);
    for (size_t i = 0; i < pass->norms.size(); ++i)
      pass->norms[i]->result()->replaceAllUsesWith(sums_[i]);
    readSumsBehind(*pass, end);
    for (Node *norm : pass->norms)
      norm->erase();
  }
  for (const Update *pass : {&first_, &second_})
    for (Node *a : pass->assigns)
      a->erase();
  for (Node *n : llvm::reverse(u_.nodes))
    n->erase();
}

bool zcc::splitUpdate(const Update &u, int64_t length, const Positions &at, llvm::SmallPtrSetImpl<const Node *> &again) {
  Splitter s(u, at);
  if (!s.part(length))
    return false;
  s.split(length, again);
  return true;
}
