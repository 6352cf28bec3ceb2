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
// Which: those noted `late`, by choose-plan or by hand; where nothing searches, those whose states live elsewhere by the flag and
// whose gradients wait for the norm of all there anyway. Only what a step updates in its one call of @micro, element by element,
// with no collective between the update and the parameter.
#include "ir/Builder.h"
#include "passes/Pass.h"
#include "passes/offload/Updates.h"
#include "llvm/Support/FormatVariadic.h"

using namespace zcc;

namespace {
/// What its update reads from the step that has left it, as the states that hold it.
using Held = llvm::DenseMap<Value *, Value *>;

class Deferrer {
public:
  Deferrer(Module &m, PassContext &ctx, PlacesOfParams places)
      : m_(m), ctx_(ctx), micro_(*m.function("micro")), at_(positions(micro_)), places_(std::move(places)) {}
  bool run();

private:
  bool isAsked(const GlobalValue &param, const Update &u) const;
  Node *firstUse(const GlobalValue &param, const Update &u) const;
  bool mayMove(const GlobalValue &param, const Update &u) const;
  void defer(GlobalValue &param, const Update &u, Node *before);
  GlobalValue *state(const std::string &name, const Type &t);
  Value *held(Value *scalar, const Loc &loc);
  Value *emit(Builder &b, const Update &u, const Held &held, Value *isLate, const GlobalValue &param) const;
  bool isFetched(const GlobalValue &param, const Node &use) const;

  Module &m_;
  PassContext &ctx_;
  Function &micro_;
  const Positions at_;
  const PlacesOfParams places_;
  llvm::DenseMap<const GlobalValue *, std::vector<GlobalValue *>> states_; ///< by parameter
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
  return !ctx_.options.seeksPlan() && places_.lookup(&param).states != Space::Device && !waitingGradients(u, at_).empty();
}

/// The first node but for the update that reads the parameter; nullptr: none, or it reads what is updated.
Node *Deferrer::firstUse(const GlobalValue &param, const Update &u) const {
  Node *first = nullptr;
  for (auto &use : param.uses) {
    if (use.node->parent() != &micro_ || isWrite(use) || llvm::is_contained(u.nodes, use.node))
      continue;
    if (use.node->phase == Phase::Update)
      return nullptr;
    if (!first || at_.lookup(use.node) < at_.lookup(first))
      first = use.node;
  }
  return first;
}

/// Whether all that it reads but gradients and numbers is its own, and nothing else reads that.
bool Deferrer::mayMove(const GlobalValue &param, const Update &u) const {
  if (u.assigns.empty() || u.nodes.empty() || !u.isElementwise || !u.whole.empty() || param.type.isScalar() ||
      llvm::is_contained(micro_.results, static_cast<const Value *>(&param)))
    return false;
  const auto &states = states_.at(&param);
  auto isOwn = [&](Value *v) { return v == &param || llvm::is_contained(states, v); };
  for (Value *v : u.leaves)
    if (v->kind == Value::Argument || (v->isGlobal() && !isOwn(v) && !isFixed(*v)))
      return false;
  for (GlobalValue *g : states)
    for (auto &use : g->uses)
      if (use.node->parent() != &micro_ || (!isWrite(use) && !llvm::is_contained(u.nodes, use.node)))
        return false;
  return llvm::all_of(u.assigns, [&](Node *a) {
    Value *v = a->operand(1);
    return isOwn(a->operand(0)) && a->operand(0)->type.dims == v->type.dims && a->operand(0)->type.shards == v->type.shards &&
           (!v->def || llvm::is_contained(u.nodes, v->def) || u.leaves.contains(v));
  });
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
    Builder(micro_, nullptr, loc).node(ops::assign, {g, scalar})->phase = Phase::Update; // behind all that reads the last step's
    kept = g;
  }
  return kept;
}

/// The update, of what is held; where `isLate` is given and false, everything stays as it is. Returns what the parameter becomes.
Value *Deferrer::emit(Builder &b, const Update &u, const Held &held, Value *isLate, const GlobalValue &param) const {
  Value *becomes = nullptr;
  Held now = held;
  b.phase = Phase::Update;
  for (Node *n : u.nodes)
    for (Value *v : n->operands())
      if (isConstant(v) && !now.count(v))
        now[v] = b.make(*v->def->op, {}, v->def->attrs);
  repeatNodes(b, u, now);
  for (Node *a : u.assigns) {
    Value *v = now.lookup(a->operand(1)), *old = a->operand(0);
    v = v ? v : a->operand(1);
    b.loc = a->loc;
    v = isLate ? b.make(ops::select, {isLate, v, old}) : v;
    b.node(ops::assign, {old, v});
    becomes = old == &param ? v : becomes;
  }
  return becomes;
}

/// Whether a node of the forward would bring the parameter from where the update has just taken it.
bool Deferrer::isFetched(const GlobalValue &param, const Node &use) const {
  bool isAway = places_.lookup(&param).own != Space::Device;
  return isAway && use.phase == Phase::Forward && !use.op->view && use.op->collective == Collective::None;
}

void Deferrer::defer(GlobalValue &param, const Update &u, Node *before) {
  const Loc loc = u.nodes.front()->loc;
  if (!isLate_) {
    Builder b(micro_, micro_.first(), loc);
    b.phase = Phase::Update;
    GlobalValue *late = state("late", Type(Elem::I64, {}));
    isLate_ = b.make(ops::ne, {late, b.scalar(0, Elem::I64)}, {}, "is_late");
    flush_ = m_.addFunction("flush");
  }
  Held now;
  for (Value *v : u.leaves) {
    if (v->isGlobal())
      continue;
    GlobalValue *g = state(param.name + ".late", v->type);
    g->attrs.set("of", param.name);
    Node *last = summarizeFirst(*v, at_);
    Builder(micro_, last->next(), v->def->loc).node(ops::assign, {g, v})->phase = Phase::Update;
    now[v] = g;
  }
  for (Node *n : u.nodes)
    for (Value *v : n->operands())
      if (v->type.isScalar() && !isFixed(*v))
        now[v] = held(v, n->loc);
  Builder inMicro(micro_, before, loc), inFlush(*flush_, nullptr, loc);
  Value *updated = emit(inMicro, u, now, isLate_, param);
  emit(inFlush, u, now, nullptr, param);
  for (unsigned i = 0; i < before->numOperands() && updated && isFetched(param, *before); ++i)
    if (before->operand(i) == &param)
      before->setOperand(i, updated);
  for (Node *a : u.assigns)
    a->erase();
  for (Node *n : llvm::reverse(u.nodes))
    n->erase();
}

bool Deferrer::run() {
  std::vector<GlobalValue *> params;
  for (auto &g : m_.globals) {
    if (g->role == GlobalValue::Param && g->trained)
      params.push_back(g.get());
    else if (g->role == GlobalValue::State && g->attrs.has("of") && !g->type.isScalar())
      states_[m_.global(g->attrs.s("of"))].push_back(g.get());
  }
  int64_t bytes = 0, count = 0;
  bool hadNotes = false;
  for (GlobalValue *p : params) {
    hadNotes |= p->attrs.has("late");
    auto &states = states_[p];
    bool areAlike =
        llvm::all_of(states, [&](GlobalValue *s) { return s->type.dims == p->type.dims && s->type.shards == p->type.shards; });
    if (!states.empty() && areAlike) {
      Update u = findUpdate(micro_, at_, p, states);
      Node *before = mayMove(*p, u) && isAsked(*p, u) ? firstUse(*p, u) : nullptr;
      if (before) {
        defer(*p, u, before);
        bytes += p->type.localBytes();
        ++count;
      }
    }
    p->attrs.erase("late");
  }
  if (count)
    ctx_.remarks.push_back(llvm::formatv("the updates of {0} of {1} parameters ({2:f2} MiB) run on into the next step's forward",
                                         count, params.size(), double(bytes) / (1 << 20))
                               .str());
  return count || hadNotes;
}

llvm::Expected<bool> zcc::deferUpdates(Module &m, PassContext &ctx) {
  if (!m.function("micro") || m.function("update") || m.function("flush"))
    return false;
  auto places = placesOf(m, ctx.options);
  if (!places)
    return places.takeError();
  return Deferrer(m, ctx, std::move(*places)).run();
}
