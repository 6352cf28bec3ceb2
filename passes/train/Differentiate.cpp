// The backward of @micro, appended to it: one reverse sweep over the nodes between trained parameters and the loss.
//
//   func @micro(%x : f32[8x4]) -> (f32[]) {
//     %y = matmul %x, %w                    : f32[8x2]
//     ...
// gains
//     %d.y = ...                            : f32[8x2]
//     %xt  = transpose %x {perm = [1, 0]}   : f32[4x8]
//     %d.w = matmul %xt, %d.y               : f32[4x2]
//     assign %w.grad, %d.w
//
// and the module gains `state %w.grad : f32[4x2] = zero {of = "w"}`. Nodes are appended as the sweep meets them, each assign as
// soon as its gradient is complete, so later passes use and free gradients in this order.
#include "ir/Control.h"
#include "passes/Pass.h"
#include "passes/Refusal.h"
#include "passes/memory/Activations.h"
#include "passes/train/Sweep.h"

using namespace zcc;

namespace {
class Differentiation {
public:
  Differentiation(Module &m, Function &f, PassContext &c) : module(m), fn(f), ctx(c), sweep(f) {}
  llvm::Error run();

private:
  void findActive();
  bool carriesGradient(const Node &n) const;
  void keepOverwritten();
  void copyReturned();
  llvm::Error checkLoss();
  bool dependsWithoutGradient(const Value *loss) const;
  void store(GlobalValue *param);
  Value *seedOf(Builder &b, const Value &loss);

  Module &module;
  Function &fn;
  PassContext &ctx;
  Sweep sweep;
  llvm::SmallVector<GlobalValue *, 16> trained;
  llvm::DenseMap<Node *, llvm::SmallVector<GlobalValue *, 1>> firstUses; ///< but for views
  llvm::DenseSet<GlobalValue *> stored;
};
} // namespace

/// Finds what depends on a trained parameter, and the first use of each, seen through views.
void Differentiation::findActive() {
  for (auto &g : module.globals)
    if (g->role == GlobalValue::Param && g->trained && isFloat(g->type.elem)) {
      if (g->type.count() == 0) { // there is nothing to train
        g->trained = false;
        continue;
      }
      trained.push_back(g.get());
      sweep.active.insert(g.get());
      sweep.viewed[g.get()] = g.get();
    }
  sweep.spread();
  llvm::DenseSet<GlobalValue *> seen;
  for (auto &n : fn.nodes)
    for (Value *v : n->operands()) {
      GlobalValue *param = sweep.viewed.lookup(v);
      if (param && n->op->view)
        sweep.viewed[n->result()] = param;
      else if (param && seen.insert(param).second)
        firstUses[n.get()].push_back(param);
    }
}

/// Whether a gradient goes through a node, or through what reads a view of what it reads.
bool Differentiation::carriesGradient(const Node &n) const {
  if (llvm::any_of(n.results, [&](auto &r) { return sweep.active.count(r.get()); }))
    return true;
  return n.op->view && llvm::any_of(n.result()->uses, [&](auto &u) { return carriesGradient(*u.node); });
}

/// What @micro assigns has another value by the time of the backward: what carries a gradient reads a copy from before, as the
/// backward does.
void Differentiation::keepOverwritten() {
  llvm::DenseMap<const Node *, size_t> order;
  for (auto &n : fn.nodes)
    order.insert({n.get(), order.size()});
  for (Node *assign : nodesOf(fn)) {
    if (!assigns(*assign))
      continue;
    Value *state = assign->operand(0);
    llvm::SmallVector<Node *> readers;
    for (auto &u : state->uses)
      if (u.node->parent() == &fn && order.lookup(u.node) < order.lookup(assign) && !assigns(*u.node) && carriesGradient(*u.node))
        readers.push_back(u.node);
    if (readers.empty())
      continue;
    Node *first = *llvm::min_element(readers, [&](Node *a, Node *b) { return order.lookup(a) < order.lookup(b); });
    Value *before = Builder(fn, first, assign->loc).make(ops::copy, {state}, {}, state->name + ".before");
    for (Node *n : readers)
      for (unsigned i = 0; i < n->numOperands(); ++i)
        if (n->operand(i) == state)
          n->setOperand(i, before);
  }
}

/// A result that is a trained parameter, or a view of one, is the one from before the update, which append-optimizer puts behind
/// all that reads it.
void Differentiation::copyReturned() {
  for (Value *&r : fn.results) {
    Value *base = behindViews(r);
    auto *param = base->isGlobal() ? static_cast<GlobalValue *>(base) : nullptr;
    if (llvm::is_contained(trained, param))
      r = Builder(fn, nullptr, locOf(r->def ? r : fn.results[0])).make(ops::copy, {r}, {}, r->name);
  }
}

/// Whether the loss follows from a trained parameter at all: through integers or comparisons, which carry no gradient.
bool Differentiation::dependsWithoutGradient(const Value *loss) const {
  llvm::DenseSet<const Value *> depends(trained.begin(), trained.end());
  for (auto &n : fn.nodes)
    if (llvm::any_of(n->operands(), [&](Value *v) { return v && depends.count(v); }))
      for (auto &r : n->results)
        depends.insert(r.get());
  return depends.count(loss);
}

llvm::Error Differentiation::checkLoss() {
  if (fn.results.empty())
    return refuse("'@micro' must return the loss");
  const Value *loss = fn.results[0];
  if (!loss->type.isScalar() || !isFloat(loss->type.elem))
    return refuseAt(locOf(loss), "the loss '" + loss->name + "' must be a floating-point scalar, it is " + loss->type.str());
  if (trained.empty())
    return refuse("no parameter is trained");
  if (!sweep.active.count(loss) && !dependsWithoutGradient(loss))
    return refuseAt(locOf(loss), "the loss '" + loss->name + "' depends on no trained parameter");
  return llvm::Error::success();
}

/// Ends the gradient of a parameter all of whose uses have been met.
void Differentiation::store(GlobalValue *param) {
  Value *g = sweep.whole(param);
  if (!g || !stored.insert(param).second)
    return;
  GlobalValue *state = module.addGlobal(GlobalValue::State, param->name + ".grad", param->type, Init());
  state->attrs.set("of", param->name);
  state->loc = param->loc;
  Builder b(fn, /*before=*/nullptr, mergeLocs(locOf(g), param->loc));
  b.node(ops::assign, {state, g});
}

/// The loss' own gradient. With a loss scale all are multiplied by it, and divided by the number of micro-batches, as DeepSpeed
/// does (runtime/engine.py, DeepSpeedEngine.backward): their sum overflows no sooner than one batch's gradient.
Value *Differentiation::seedOf(Builder &b, const Value &loss) {
  Value *scale = module.global("loss_scale");
  if (!scale)
    return b.scalar(1, loss.type.elem);
  const int64_t batches = ctx.options.gradAccum;
  if (batches > 1)
    scale = b.make(ops::div, {scale, b.scalar(double(batches), Elem::F32)}, {}, "loss_scale.each");
  return b.cast(scale, loss.type.elem);
}

llvm::Error Differentiation::run() {
  findActive();
  if (auto e = checkLoss())
    return e;
  keepOverwritten();
  llvm::SmallVector<Node *, 0> forward = nodesOf(fn);
  Value *loss = fn.results[0];
  Builder b(fn, /*before=*/nullptr, locOf(loss));
  if (sweep.active.count(loss))
    sweep.seed(loss, seedOf(b, *loss));
  auto storeFirstUsed = [&](Node &n) {
    for (GlobalValue *p : firstUses.lookup(&n))
      store(p);
  };
  if (auto e = sweep.run(forward, storeFirstUsed))
    return e;
  for (GlobalValue *p : trained) {
    store(p); // a loss that is but a view of it has no other use
    if (stored.count(p))
      continue;
    p->trained = false;
    ctx.remarks.push_back("parameter '" + p->name + "' does not influence the loss; it stays untouched");
  }
  for (Node *n = forward.empty() ? fn.first() : forward.back()->next(); n; n = n->next())
    n->phase = assigns(*n) ? Phase::Update : Phase::Backward; // gradients are stored for the update
  copyReturned();
  // What only gradients of passive operands needed.
  eraseDeadNodes(fn, forward.empty() ? nullptr : forward.back());
  return llvm::Error::success();
}

/// Where gradients stop says nothing any more.
static void dropStops(Module &m) {
  for (auto &f : m.functions)
    for (Node *n : nodesOf(*f))
      if (n->op->stopsGradient) {
        n->result()->replaceAllUsesWith(n->operand(0));
        n->erase();
      }
}

llvm::Expected<bool> zcc::differentiate(Module &m, PassContext &ctx) {
  Function *micro = m.function("micro");
  if (!micro)
    return refuse("there is no function '@micro' to differentiate");
  if (auto e = Differentiation(m, *micro, ctx).run())
    return e;
  dropStops(m);
  return true;
}
