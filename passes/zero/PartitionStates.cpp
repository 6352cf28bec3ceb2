// Partitions optimizer state (stage 1), gradients (2) and parameters (3) over the ranks (ZeRO, arXiv 1910.02054, section 5).
//
//   %g = sum_ranks %a               : T         %g = sum_ranks %a {scatter = 1} : T/N
//   %m1 = add %w.m, %g              : T    ->   %m1 = add %w.m, %g              : T/N     (state %w.m : T/N)
//   %w1 = sub %w, %m1               : T         %w0 = shard %w                  : T/N
//   assign %w.m, %m1                            %w1 = sub %w0, %m1              : T/N
//   assign %w, %w1                              assign %w.m, %m1
//                                               %u = all_gather %w1             : T
//                                               assign %w, %u
//
// What follows from a gradient's piece is a piece, whatever the optimizer: elementwise operators and states follow by their
// types. At stage 3 the parameter is T/N as well: its update reads and writes the piece, and one all_gather at each function's
// head serves all other uses, for insert-gathers to place. Accumulated gradients are reduced once a step at stage 1; at stages 2
// and 3 each micro-batch's sum is scattered and its piece accumulated. Scalars stay whole.
#include "ir/Builder.h"
#include "ir/Verifier.h"
#include "passes/zero/Zero.h"
#include "llvm/ADT/SmallPtrSet.h"

using namespace zcc;

namespace {
class Partitioner {
public:
  Partitioner(Module &m, PassContext &ctx) : m_(m), ctx_(ctx), o_(ctx.options) {}
  bool run();

private:
  void chooseParams();
  void scatter(Node &sum);
  void reduceEachMicroBatch(Node &sum, GlobalValue *state);
  void split(GlobalValue &g);
  void follow(Value &v, const Value::Use &use);
  Value *pieceOf(Value *v, Node &user);
  void pieceOperands(Node &n);
  void retype(Node &n);
  void gatherForReaders(GlobalValue &param);

  Module &m_;
  PassContext &ctx_;
  const Options &o_;
  std::vector<GlobalValue *> params_; ///< partitioned ones
  std::vector<Value *> work_;         ///< became pieces; their uses are still to follow
};
} // namespace

/// Stage 3: all but the small ones, which would cost a collective each.
void Partitioner::chooseParams() {
  if (o_.zero < 3)
    return;
  int64_t persistence = zeroLimits(m_, o_).persistence;
  for (auto &g : m_.globals) {
    if (g->role != GlobalValue::Param || !isSplittable(*g))
      continue;
    if (g->type.count() <= persistence)
      g->attrs.set("persists", int64_t(1));
    else
      params_.push_back(g.get());
  }
}

void Partitioner::split(GlobalValue &g) {
  g.type.shards = m_.ranks;
  g.type.addends = 1;
  if (g.role == GlobalValue::State)
    work_.push_back(&g);
}

void Partitioner::retype(Node &n) {
  auto results = llvm::cantFail(expectedTypes(n, m_));
  for (unsigned i = 0; i < n.results.size(); ++i) {
    if (n.result(i)->type == results[i])
      continue;
    n.result(i)->type = results[i];
    work_.push_back(n.result(i));
  }
}

/// This rank's piece of what `user` reads whole so far.
Value *Partitioner::pieceOf(Value *v, Node &user) {
  if (v->type.isPartitioned())
    return v;
  if (v->isGlobal()) {
    auto &g = *static_cast<GlobalValue *>(v);
    bool isState = g.role == GlobalValue::State && g.attrs.has("of");
    if (isState || llvm::is_contained(params_, &g)) {
      split(g);
      return v;
    }
  }
  // Accumulated addends are all of pieces from now on.
  bool follows = v->uses.size() == 1 || v->type.isAddend();
  if (v->def && v->def->op->isElementwise() && follows) {
    pieceOperands(*v->def);
    return v;
  }
  return Builder(*user.parent(), &user, user.loc).make(ops::shard, {v}, {}, v->name + ".piece");
}

void Partitioner::pieceOperands(Node &n) {
  for (unsigned i = 0; i < n.numOperands(); ++i)
    if (n.operand(i) && !n.operand(i)->type.isScalar())
      n.setOperand(i, pieceOf(n.operand(i), n));
  retype(n);
}

/// `v` has become a piece: so does what its user makes of it, or it is gathered for it.
void Partitioner::follow(Value &v, const Value::Use &use) {
  Node &n = *use.node;
  if (n.op->structural == Structural::Shard) {
    n.result()->replaceAllUsesWith(&v);
    n.erase();
    work_.push_back(&v);
  } else if (n.op->isElementwise()) {
    pieceOperands(n);
  } else if (assigns(n) && use.index == 0) {
    n.setOperand(1, pieceOf(n.operand(1), n));
  } else if (assigns(n)) {
    auto &to = *static_cast<GlobalValue *>(n.operand(0));
    bool isSplit = to.role == GlobalValue::State || llvm::is_contained(params_, &to);
    if (isSplit && !to.type.isPartitioned())
      split(to);
    if (!isSplit)
      n.setOperand(1, Builder(*n.parent(), &n, n.loc).make(ops::all_gather, {&v}, {}, v.name + ".whole"));
  } else if (n.op->collective != Collective::Gather && !(n.op->sumsShard && n.result()->type.isAddend())) {
    ctx_.remarks.push_back("'" + std::string(n.op->name) + "' needs '%" + v.name + "' whole, so it is gathered for it");
    n.setOperand(use.index, Builder(*n.parent(), &n, n.loc).make(ops::all_gather, {&v}, {}, v.name + ".whole"));
  }
}

void Partitioner::scatter(Node &sum) {
  sum.attrs.set("scatter", int64_t(1));
  retype(sum);
}

/// The state in which @micro accumulates what @update sums, or nullptr.
static GlobalValue *accumulated(const Node &sum) {
  Value *v = sum.operand(0);
  while (v->def && v->type.isAddend() && v->def->op->structural != Structural::Addend)
    v = v->def->operand(0);
  return v->isGlobal() ? static_cast<GlobalValue *>(v) : nullptr;
}

/// The sum over ranks moves from @update to where @micro adds to the accumulated gradient.
void Partitioner::reduceEachMicroBatch(Node &sum, GlobalValue *state) {
  Function *micro = m_.function("micro");
  for (auto &u : Value::Uses(state->uses)) {
    if (u.node->parent() != micro || !assigns(*u.node) || u.index != 0)
      continue;
    // Back to the addend of this micro-batch.
    llvm::SmallVector<Value *> back{u.node->operand(1)};
    llvm::SmallPtrSet<Node *, 8> seen;
    while (!back.empty()) {
      Value *v = back.pop_back_val();
      if (!v || !v->def || !v->type.isAddend() || !seen.insert(v->def).second)
        continue;
      if (v->def->op->structural != Structural::Addend) {
        back.append(v->def->operands().begin(), v->def->operands().end());
        continue;
      }
      Value::Uses uses = v->uses;
      Value *piece = Builder(*micro, v->def->next(), v->def->loc).make(ops::sum_ranks, {v}, sum.attrs, v->name + ".sum");
      for (auto &use : uses)
        use.node->setOperand(use.index, piece);
      scatter(*piece->def);
    }
  }
  sum.result()->replaceAllUsesWith(sum.operand(0));
  sum.erase();
  split(*state);
}

/// One gather at the head of each function serves all uses that the update does not have.
void Partitioner::gatherForReaders(GlobalValue &param) {
  for (auto &f : m_.functions) {
    if (f->isKernel)
      continue;
    std::vector<Value::Use> uses;
    for (auto &u : param.uses) {
      bool isUpdate = assigns(*u.node) || (u.node->op->isElementwise() && u.node->result()->type.isPartitioned()) ||
                      (u.node->op->sumsShard && u.node->result()->type.isAddend());
      if (u.node->parent() == f.get() && !isUpdate)
        uses.push_back(u);
    }
    bool isResult = llvm::is_contained(f->results, &param);
    if (uses.empty() && !isResult)
      continue;
    Value *whole = Builder(*f, f->first(), uses.empty() ? param.loc : uses[0].node->loc)
                       .make(ops::all_gather, {&param}, {}, param.name + ".whole");
    if (!uses.empty())
      whole->def->phase = uses[0].node->phase;
    for (auto &u : uses)
      u.node->setOperand(u.index, whole);
    for (Value *&r : f->results)
      r = r == &param ? whole : r;
  }
}

bool Partitioner::run() {
  if (m_.ranks == 1 || o_.zero == 0)
    return false;
  chooseParams();
  std::vector<Node *> sums;
  for (auto &f : m_.functions)
    for (auto &n : f->nodes)
      if (n->op->structural == Structural::SumRanks && n->attrs.has("of") && !n->result()->type.isScalar())
        sums.push_back(n.get());
  for (Node *sum : sums) {
    if (GlobalValue *state = accumulated(*sum); state && o_.zero >= 2)
      reduceEachMicroBatch(*sum, state);
    else
      scatter(*sum);
  }
  while (!work_.empty()) {
    Value *v = work_.back();
    work_.pop_back();
    // What is not followed yet reads it as a whole tensor; a use may disappear while another is followed.
    for (bool again = true; again;) {
      again = false;
      for (const Value::Use &u : Value::Uses(v->uses)) {
        bool isErased = u.node->op->structural == Structural::Shard;
        follow(*v, u);
        if (isErased) {
          again = true;
          break;
        }
      }
    }
  }
  for (GlobalValue *p : params_) {
    p->type.shards = m_.ranks;
    for (const Value::Use &u : Value::Uses(p->uses))
      if (u.node->op->structural == Structural::Shard) {
        u.node->result()->replaceAllUsesWith(p);
        u.node->erase();
      }
  }
  for (GlobalValue *p : params_)
    gatherForReaders(*p);
  return true;
}

llvm::Expected<bool> zcc::partitionStates(Module &m, PassContext &ctx) { return Partitioner(m, ctx).run(); }
