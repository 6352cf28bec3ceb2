// Finds what belongs to an update by its types, and repeats it for each run of elements.
#include "passes/offload/Updates.h"
#include "ir/Builder.h"
#include "passes/EvenPart.h"
#include "passes/Refusal.h"
#include "llvm/ADT/SmallPtrSet.h"
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

/// Notes where collectives and the forward read results. Whether nothing else does.
bool Finder::checkUses() {
  bool areOwn = true;
  for (Node *n : u_.nodes)
    for (auto &use : n->result()->uses) {
      if (members_.contains(use.node) || llvm::is_contained(u_.assigns, use.node))
        continue;
      if (use.node->op->collective == Collective::Gather || use.node->phase != Phase::Update) {
        u_.whole.push_back(use);
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
static bool followsFrom(const Value &v, llvm::ArrayRef<Node *> nodes) {
  llvm::SmallVector<const Value *> work = {&v};
  llvm::SmallPtrSet<const Value *, 16> seen;
  while (!work.empty()) {
    const Value *at = work.pop_back_val();
    if (!at || !at->def || at->def->phase != Phase::Update || !seen.insert(at).second)
      continue;
    if (llvm::is_contained(nodes, at->def))
      return true;
    work.append(at->def->operands().begin(), at->def->operands().end());
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
      if (v->type.isScalar() && v->def && !isConstant(v) && !followsFrom(*v, u.nodes))
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
  Splitter(const Update &u) : u_(u), count_(u.type.localCount()) {}
  void split(int64_t length);

private:
  void emit(Builder &b, int64_t begin, int64_t count);

  const Update &u_;
  int64_t count_;
  std::vector<Value *> joined_; ///< of each of Update::whole, so far
};
} // namespace

void Splitter::emit(Builder &b, int64_t begin, int64_t count) {
  llvm::DenseMap<Value *, Value *> now;
  for (Value *v : u_.leaves)
    now[v] = b.make(ops::run, {v}, {{"begin", begin}, {"count", count}});
  repeatNodes(b, u_, now);
  for (Node *a : u_.assigns)
    if (Value *v = now.lookup(a->operand(1)))
      b.node(ops::assign, {a->operand(0), v}, {{"begin", begin}});
  for (size_t i = 0; i < u_.whole.size(); ++i) {
    Value *part = now[u_.whole[i].node->operand(u_.whole[i].index)];
    std::vector<int64_t> dims(u_.type.dims.begin(), u_.type.dims.end());
    joined_[i] = b.make(ops::insert, {joined_[i], part}, {{"begin", begin}, {"dims", dims}});
  }
}

void Splitter::split(int64_t length) {
  Builder b(*u_.f, u_.nodes.back()->next(), u_.nodes.back()->loc);
  joined_.resize(u_.whole.size());
  for (int64_t begin = 0; begin < count_; begin += length)
    emit(b, begin, std::min(length, count_ - begin));
  for (size_t i = 0; i < u_.whole.size(); ++i)
    u_.whole[i].node->setOperand(u_.whole[i].index, joined_[i]);
  for (Node *a : u_.assigns)
    if (Value *v = a->operand(1); v->def && llvm::is_contained(u_.nodes, v->def))
      a->erase();
  for (Node *n : llvm::reverse(u_.nodes))
    n->erase();
}

void zcc::splitUpdate(const Update &u, int64_t length) { Splitter(u).split(length); }
