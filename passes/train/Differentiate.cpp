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
#include "passes/train/Sweep.h"

using namespace zcc;

namespace {
class Differentiation {
public:
  Differentiation(Module &m, Function &f, PassContext &c) : module(m), fn(f), ctx(c), sweep(f) {}
  llvm::Error run();

private:
  void findActive();
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
