// The update of a parameter runs on into the next step: it moves from behind the backward to in front of the parameter's first
// use, so that what its states' home reads and writes for it goes beside the forward, too (GreedySnake, arXiv 2512.17570, section
// 4). No step computes with other parameters than before.
//
//   func @micro(%x) {                          state %w.late : f32[64] = zero {of = "w", late}
//     %y = matmul %x, %w                       state %coefficient.late : f32[] = zero {late}
//     ...                                      func @micro(%x) {
//     %c = mul %d.w, %coefficient                %is_late = ne %late, 0          the last step has left updates
//     %m = add %w.m, %c                          %c = mul %w.late, %coefficient.late
//     %w1 = sub %w, %m                ->         %m = add %w.m, %c
//     assign %w.m, %m                            %w1 = sub %w, %m
//     assign %w, %w1                             assign %w.m, (select %is_late, %m, %w.m)
//   }                                            assign %w, (select %is_late, %w1, %w)
//                                                %y = matmul %x, %w
//                                                ...
//                                                assign %w.late, %d.w
//                                                assign %coefficient.late, %coefficient
//                                              }
//                                              func @flush() { ... }           the same, before anything else reads parameters
//
// With it goes what it has for itself: the gather of a parameter that every rank holds and updates a shard of, and the norms of
// the parameter and its direction (LAMB) with their sum over the ranks. Where ranks meet, an update stands in front of the first
// use of a parameter before it, so that they meet beside the forward; a gathered parameter is assigned in front of its own.
//
// Where the step's micro-batches are calls of @micro, updates go there from @update. They read the sum of the gradients where
// @micro has added it up, before it adds up the next one; of a sum over ranks a state holds it. Only the first call has updates
// to do: what none but they need is not done in the others (lateNodes).
//
// Which: those noted `late`, by choose-plan or by hand; where nothing searches, those whose states live elsewhere by the flag and
// whose gradients wait for the norm of all, or for the last micro-batch, there anyway; not those of the parameters that are read
// first, which the forward would wait for: their states come beside the backward, and their gradients, its last, never go away.
// Only what is updated element by element.
#include "ir/Builder.h"
#include "passes/Pass.h"
#include "passes/offload/Updates.h"
#include "passes/zero/Zero.h"
#include "llvm/Support/FormatVariadic.h"

using namespace zcc;

/// So many parameters before its own first use stands an update behind which something is under way.
constexpr size_t kAhead = 2;

namespace {
/// What updates read from the step that has left them, as the states that hold it.
using Held = llvm::DenseMap<Value *, Value *>;

/// The update of one parameter.
struct Move {
  GlobalValue *param;
  llvm::SetVector<Node *> nodes; ///< in the function's order; of a collective, what has an operand of theirs
  llvm::SetVector<Node *> again; ///< what makes gradients of sums: others read it, too, and it is computed once more
  llvm::SmallVector<Value *> gradients;
  std::vector<Node *> assigns;
  Node *before; ///< the parameter's first use
  bool isAhead; ///< whether something is under way between it and that use: ranks meet, or it is written and read again
};

class Deferrer {
public:
  Deferrer(Module &m, PassContext &ctx, PlacesOfParams places)
      : m_(m), ctx_(ctx), micro_(*m.function("micro")), from_(m.function("update") ? *m.function("update") : micro_),
        at_(positions(from_)), inMicro_(positions(micro_)), places_(std::move(places)), first_(readFirst(m)) {}
  bool run();

private:
  bool isAsked(const GlobalValue &param, const Update &u) const;
  bool isOwn(const GlobalValue &param, const Value *v) const;
  bool isSplit() const { return &from_ != &micro_; }
  bool followsFromSums(Value *v, llvm::SetVector<Node *> &nodes) const;
  bool isThere(const Move &m) const;
  std::optional<llvm::SetVector<Node *>> nodesOf(const GlobalValue &param, const Update &u) const;
  Node *firstUse(const Move &m) const;
  bool mayMove(const Move &m, const Update &u) const;
  std::optional<Move> find(GlobalValue &param) const;
  void prepare(const Loc &loc);
  void defer(const Move &m, Node *place);
  GlobalValue *state(const std::string &name, const Type &t);
  Value *held(Value *scalar, const Loc &loc);
  Value *emit(Builder &b, const Move &m, Held now, Value *isLate, Node *before) const;
  void erase(const Move &m);
  bool isFetched(const GlobalValue &param, const Node &use) const;

  Module &m_;
  PassContext &ctx_;
  Function &micro_, &from_; ///< where updates go, and where they stand
  const Positions at_;      ///< in `from_`
  const Positions inMicro_;
  const PlacesOfParams places_;
  const llvm::DenseSet<const GlobalValue *> first_;                        ///< parameters that the forward reads before others
  llvm::DenseMap<const GlobalValue *, std::vector<GlobalValue *>> states_; ///< by parameter
  llvm::SmallPtrSet<const Value *, 16> sums_;                              ///< of gradients, over the calls of @micro
  Held scalars_;
  Value *isLate_ = nullptr;
  Function *flush_ = nullptr;
};
} // namespace

/// Whether it is the same in each step.
static bool isFixed(const Value &v) {
  return isConstant(&v) || (v.isGlobal() && static_cast<const GlobalValue &>(v).role == GlobalValue::Const);
}

/// Where nothing is searched for: what would wait anyway, beside states that live elsewhere.
bool Deferrer::isAsked(const GlobalValue &param, const Update &u) const {
  if (param.attrs.has("late"))
    return param.attrs.i("late");
  bool isAway = places_.lookup(&param).states != Space::Device;
  return !ctx_.options.seeksPlan() && isAway && (isSplit() || (!first_.contains(&param) && !waitingGradients(u, at_).empty()));
}

bool Deferrer::isOwn(const GlobalValue &param, const Value *v) const {
  return v == &param || llvm::is_contained(states_.at(&param), v);
}

static bool meetsRanks(const Node &n) { return n.op->collective != Collective::None; }
static bool isGather(const Value &v) { return v.def && v.def->op->collective == Collective::Gather; }
/// What is assigned, or gathered to be.
static Value *updated(const Node &assign) {
  Value *v = assign.operand(1);
  return isGather(*v) ? v->def->operand(v->index) : v;
}

/// The nodes of an update with its shards, its norms, and what follows from these on the way to the update; nothing, if that
/// leads elsewhere.
std::optional<llvm::SetVector<Node *>> Deferrer::nodesOf(const GlobalValue &param, const Update &u) const {
  llvm::SetVector<Node *> nodes;
  llvm::SmallVector<Value *> work;
  bool isOwnAlone = true;
  auto add = [&](Node *n, unsigned operand) {
    isOwnAlone &= !meetsRanks(*n) || !nodes.contains(n); // of a collective, one operand is the parameter's
    if (nodes.insert(n))
      work.push_back(n->result(meetsRanks(*n) ? operand : 0));
  };
  nodes.insert(u.nodes.begin(), u.nodes.end());
  for (Node *n : u.norms)
    add(n, 0);
  for (auto &use : u.whole)
    if (use.node->op->structural == Structural::Shard)
      add(use.node, 0);
  for (auto &use : param.uses)
    if (use.node->parent() == &from_ && use.node->op->structural == Structural::Shard)
      add(use.node, 0);
  while (!work.empty() && isOwnAlone)
    for (auto &use : work.pop_back_val()->uses) {
      if (llvm::is_contained(u.nodes, use.node))
        continue;
      if (use.node->phase != Phase::Update || use.node->parent() != &from_ || use.node->op->writes)
        return std::nullopt;
      add(use.node, use.index);
    }
  if (!isOwnAlone)
    return std::nullopt;
  auto sorted = nodes.takeVector();
  llvm::sort(sorted, [&](Node *a, Node *b) { return at_.lookup(a) < at_.lookup(b); });
  return llvm::SetVector<Node *>(sorted.begin(), sorted.end());
}

/// Adds the nodes that make a gradient of sums, element by element. False: there is more to it.
bool Deferrer::followsFromSums(Value *v, llvm::SetVector<Node *> &nodes) const {
  if (sums_.contains(v) || isFixed(*v) || v->type.isScalar())
    return true;
  bool isMade = v->def && v->def->parent() == &from_ && v->def->op->isElementwise() &&
                llvm::all_of(v->def->operands(), [&](Value *o) { return followsFromSums(o, nodes); });
  if (isMade)
    nodes.insert(v->def);
  return isMade;
}

/// The first node but for the update that reads the parameter; nullptr: none, or it reads what is updated.
Node *Deferrer::firstUse(const Move &m) const {
  auto reads = [&](const Value::Use &use) {
    return llvm::is_contained({&micro_, &from_}, use.node->parent()) && !isWrite(use) && !m.nodes.contains(use.node);
  };
  if (llvm::any_of(m.param->uses, [&](auto &use) { return reads(use) && use.node->phase == Phase::Update; }))
    return nullptr;
  return firstUser(*m.param, inMicro_, reads);
}

/// Whether what it reads of the last step is still there at `before`: gradients, and what adds up the next ones, come behind it.
bool Deferrer::isThere(const Move &m) const {
  auto isBehind = [&](const Node &n) { return n.parent() != &micro_ || inMicro_.lookup(&n) >= inMicro_.lookup(m.before); };
  auto keepsSums = [&](Node *n) {
    return llvm::all_of(n->operands(), [&](Value *v) {
      return !sums_.contains(v) || llvm::all_of(v->uses, [&](auto &use) { return isBehind(*use.node); });
    });
  };
  return llvm::all_of(m.gradients, [&](Value *v) { return v->kind == Value::Result && isBehind(*v->def); }) &&
         llvm::all_of(m.again, keepsSums) && llvm::all_of(m.nodes, keepsSums);
}

/// Whether all that it reads but gradients and numbers is its own, and nothing else reads that.
bool Deferrer::mayMove(const Move &m, const Update &u) const {
  auto isMoved = [&](const Value *v) { return v->def && (m.nodes.contains(v->def) || m.again.contains(v->def)); };
  for (Node *n : m.nodes)
    for (Value *v : n->operands()) {
      bool isOthers = meetsRanks(*n) && !isMoved(v);
      bool isGradient = llvm::is_contained(m.gradients, v) || sums_.contains(v);
      if (!isOthers && !isMoved(v) && !isGradient && !v->type.isScalar() && !isOwn(*m.param, v) && !isFixed(*v))
        return false;
    }
  for (GlobalValue *g : states_.at(m.param))
    for (auto &use : g->uses)
      if (use.node->parent() != &from_ || (!isWrite(use) && !m.nodes.contains(use.node)))
        return false;
  for (auto &use : u.whole)
    if (Node *n = use.node; !m.nodes.contains(n))
      if (n->op->collective != Collective::Gather || n->result(use.index)->uses.size() != 1 ||
          !llvm::is_contained(m.assigns, n->result(use.index)->uses.front().node))
        return false;
  return llvm::all_of(m.assigns, [&](Node *a) {
    Value *v = a->operand(1);
    return isOwn(*m.param, a->operand(0)) && a->operand(0)->type.dims == v->type.dims &&
           a->operand(0)->type.shards == v->type.shards &&
           (!updated(*a)->def || isMoved(updated(*a)) || u.leaves.contains(updated(*a)));
  });
}

/// The update of a parameter, if it is asked to move and may.
std::optional<Move> Deferrer::find(GlobalValue &param) const {
  auto &states = states_.at(&param);
  bool areAlike = llvm::all_of(
      states, [&](GlobalValue *s) { return s->type.dims == param.type.dims && s->type.shards == states[0]->type.shards; });
  if (states.empty() || !areAlike || param.type.isScalar() ||
      llvm::is_contained(micro_.results, static_cast<const Value *>(&param)))
    return std::nullopt;
  Update u = findUpdate(from_, at_, &param, states);
  if (u.assigns.empty() || u.nodes.empty() || !u.isElementwise || !isAsked(param, u))
    return std::nullopt;
  auto nodes = nodesOf(param, u);
  if (!nodes)
    return std::nullopt;
  Move m{&param, std::move(*nodes), {}, {}, u.assigns, nullptr, false};
  llvm::sort(m.assigns, [&](Node *a, Node *b) { return at_.lookup(a) < at_.lookup(b); });
  for (Value *v : u.leaves) {
    if (isOwn(param, v) || isFixed(*v) || (v->def && m.nodes.contains(v->def)))
      continue;
    if (llvm::SetVector<Node *> again; isSplit() && followsFromSums(v, again))
      m.again.insert(again.begin(), again.end());
    else
      m.gradients.push_back(v);
  }
  m.before = firstUse(m);
  if (!m.before || !mayMove(m, u) || !isThere(m))
    return std::nullopt;
  m.isAhead = (isSplit() && places_.lookup(&param).own != Space::Device) || meetsRanks(*m.before) ||
              llvm::any_of(m.nodes, [](Node *n) { return meetsRanks(*n); }) ||
              llvm::any_of(m.assigns, [](Node *a) { return isGather(*a->operand(1)); });
  return m;
}

GlobalValue *Deferrer::state(const std::string &name, const Type &t) {
  GlobalValue *g = m_.addGlobal(GlobalValue::State, name, t, Init());
  g->attrs.set("late", int64_t(1));
  return g;
}

/// The state that keeps a number of this step for the next one.
Value *Deferrer::held(Value *scalar, const Loc &loc) {
  Value *&kept = scalars_[scalar];
  if (!kept) {
    GlobalValue *g = state(scalar->name + ".late", scalar->type);
    Builder(from_, nullptr, loc).node(ops::assign, {g, scalar})->phase = Phase::Update; // behind all that reads the last step's
    kept = g;
  }
  return kept;
}

/// This rank's shard of what is whole: one serves all that an update reads of it.
static Value *shardOf(Builder &b, Value *whole, const Held &now) {
  for (auto &use : whole->uses)
    if (use.node->op->structural == Structural::Shard && now.count(use.node->result()))
      return now.lookup(use.node->result());
  return b.make(ops::shard, {whole});
}

/// A node once more, of what `now` has instead of what it reads; it gets the result.
static void repeat(Builder &b, Node &n, Held &now) {
  const bool meets = meetsRanks(n);
  unsigned result = 0;
  llvm::SmallVector<Value *, 4> operands;
  for (unsigned i = 0; i < n.numOperands(); ++i) {
    Value *v = n.operand(i);
    if (meets && !now.count(v))
      continue; // another parameter's
    if (isConstant(v) && !now.count(v))
      now[v] = b.make(*v->def->op, {}, v->def->attrs);
    operands.push_back(now.count(v) ? now[v] : v);
    result = meets ? i : 0;
  }
  b.loc = n.loc;
  const bool isShard = n.op->structural == Structural::Shard && operands[0]->isGlobal();
  now[n.result(result)] = isShard ? shardOf(b, operands[0], now) : b.make(*n.op, operands, n.attrs);
}

/// What is assigned is: where `isLate` is given and false, the old value. That of a parameter follows from its master weights,
/// `chosen` before: it is not read. A parameter that is gathered is assigned in front of `before`. Returns what is assigned.
static Value *assignAgain(Builder &b, Node &assign, Held &now, Held &chosen, Value *isLate, Node *before) {
  Value *source = updated(assign), *old = assign.operand(0);
  const Node *gather = isGather(*assign.operand(1)) ? assign.operand(1)->def : nullptr;
  b.loc = assign.loc;
  Value *v = now.count(source) ? now[source] : source;
  if (isLate) {
    const bool isCast =
        now.count(source) && source->def->op == &ops::cast && source->uses.size() == 1 && chosen.count(source->def->operand(0));
    if (isCast) {
      v->def->setOperand(0, chosen[source->def->operand(0)]);
      v->def->moveBefore(b.before);
    } else {
      v = b.make(ops::select, {isLate, v, gather ? shardOf(b, old, now) : old});
    }
    if (auto *g = static_cast<GlobalValue *>(old); g->role == GlobalValue::State)
      chosen[source] = v;
  }
  if (gather)
    v = b.make(*gather->op, {v}, gather->attrs);
  Builder(b.fn, gather ? before : b.before, assign.loc).node(ops::assign, {old, v})->phase = Phase::Update;
  return v;
}

/// The update, of what is held. Returns what the parameter becomes.
Value *Deferrer::emit(Builder &b, const Move &m, Held now, Value *isLate, Node *before) const {
  Value *becomes = nullptr;
  Held chosen;
  auto assign = m.assigns.begin();
  auto assignUpTo = [&](int position) {
    for (; assign != m.assigns.end() && at_.lookup(*assign) < position; ++assign) {
      Value *v = assignAgain(b, **assign, now, chosen, isLate, before);
      becomes = (*assign)->operand(0) == m.param ? v : becomes;
    }
  };
  b.phase = Phase::Update;
  for (Node *n : m.again)
    repeat(b, *n, now);
  for (Node *n : m.nodes) {
    assignUpTo(at_.lookup(n));
    repeat(b, *n, now);
  }
  assignUpTo(INT_MAX);
  return becomes;
}

/// Of a collective, what is the update's.
void Deferrer::erase(const Move &m) {
  auto drop = [](Node *n, unsigned i) {
    n->eraseOperand(i);
    n->eraseResult(i);
    if (n->results.empty())
      n->erase();
  };
  for (Node *a : m.assigns) {
    Value *v = a->operand(1);
    a->erase();
    if (isGather(*v))
      drop(v->def, v->index);
  }
  for (Node *n : llvm::reverse(m.nodes)) {
    if (!meetsRanks(*n)) {
      n->erase();
      continue;
    }
    unsigned own = 0;
    while (!n->operand(own)->def || !m.nodes.contains(n->operand(own)->def))
      ++own;
    drop(n, own);
  }
}

/// `use`, or of a view the node that alone reads it, if nothing but views stands between them.
static const Node *onlyReader(const Node &use) {
  if (!use.op->view)
    return &use;
  const auto readers = readersOf(*use.result());
  const Node *n = &use;
  while (n && n->op->view)
    n = n->next();
  return readers.size() == 1 && readers.front() == n ? n : nullptr;
}

/// Whether a node of the forward would bring the parameter from where the update has just taken it.
bool Deferrer::isFetched(const GlobalValue &param, const Node &use) const {
  const bool isAway = places_.lookup(&param).own != Space::Device;
  const Node *reader = isAway && !isSplit() ? onlyReader(use) : nullptr;
  return reader && reader->phase == Phase::Forward && reader->op->collective == Collective::None;
}

void Deferrer::prepare(const Loc &loc) {
  Builder b(micro_, micro_.first(), loc);
  b.phase = Phase::Update;
  GlobalValue *late = state("late", Type(Elem::I64, {}));
  isLate_ = b.make(ops::ne, {late, b.scalar(0, Elem::I64)}, {}, "is_late");
  flush_ = m_.addFunction("flush");
}

/// To `place`, which is not behind its parameter's first use.
void Deferrer::defer(const Move &m, Node *place) {
  GlobalValue &param = *m.param;
  const Loc loc = m.nodes.front()->loc;
  if (!isLate_)
    prepare(loc);
  Held now;
  for (Value *v : m.gradients) {
    GlobalValue *g = state(param.name + ".late", v->type);
    g->attrs.set("of", param.name);
    Node *last = summarizeFirst(*v, at_);
    Builder(from_, last->next(), v->def->loc).node(ops::assign, {g, v})->phase = Phase::Update;
    now[v] = g;
  }
  for (auto *nodes : {&m.again, &m.nodes})
    for (Node *n : *nodes)
      for (Value *v : n->operands())
        if (v->type.isScalar() && !isFixed(*v) && !(v->def && m.nodes.contains(v->def)))
          now[v] = held(v, n->loc);
  Builder inMicro(micro_, place, loc), inFlush(*flush_, nullptr, loc);
  Value *becomes = emit(inMicro, m, now, isLate_, m.before);
  emit(inFlush, m, now, nullptr, nullptr);
  for (unsigned i = 0; i < m.before->numOperands() && becomes && isFetched(param, *m.before); ++i)
    if (m.before->operand(i) == &param)
      m.before->setOperand(i, becomes);
  erase(m);
}

bool Deferrer::run() {
  std::vector<GlobalValue *> params;
  auto isSum = [&](const GlobalValue &g) {
    return isSplit() && llvm::any_of(g.uses, [&](auto &use) { return use.node->parent() == &micro_ && isWrite(use); });
  };
  for (auto &g : m_.globals) {
    if (g->role == GlobalValue::Param && g->trained)
      params.push_back(g.get());
    else if (g->role == GlobalValue::State && isSum(*g))
      sums_.insert(g.get());
    else if (g->role == GlobalValue::State && g->attrs.has("of") && !g->type.isScalar())
      states_[m_.global(g->attrs.s("of"))].push_back(g.get());
  }
  std::vector<Move> moves;
  int64_t bytes = 0;
  bool hadNotes = false;
  for (GlobalValue *p : params) {
    hadNotes |= p->attrs.has("late");
    states_.try_emplace(p);
    if (auto m = find(*p)) {
      bytes += p->type.localBytes();
      moves.push_back(std::move(*m));
    }
    p->attrs.erase("late");
  }
  llvm::stable_sort(moves, [&](auto &a, auto &b) { return inMicro_.lookup(a.before) < inMicro_.lookup(b.before); });
  for (size_t i = 0; i < moves.size(); ++i)
    defer(moves[i], moves[moves[i].isAhead ? i - std::min(i, kAhead) : i].before);
  if (!moves.empty())
    ctx_.remarks.push_back(llvm::formatv("the updates of {0} of {1} parameters ({2:f2} MiB) run on into the next step's forward",
                                         moves.size(), params.size(), double(bytes) / (1 << 20))
                               .str());
  return !moves.empty() || hadNotes;
}

llvm::Expected<bool> zcc::deferUpdates(Module &m, PassContext &ctx) {
  if (!m.function("micro") || m.function("flush"))
    return false;
  auto places = placesOf(m, ctx.options);
  if (!places)
    return places.takeError();
  return Deferrer(m, ctx, std::move(*places)).run();
}
