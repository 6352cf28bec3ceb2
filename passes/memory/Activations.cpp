// What recomputation asks of nodes.
#include "passes/memory/Activations.h"
#include "ir/Op.h"

using namespace zcc;

Value *zcc::behindViews(Value *v) {
  while (v && v->def && v->def->op->view)
    v = v->def->operand(0);
  return v;
}

bool zcc::holdsActivation(const Node &n) {
  return !n.op->view && !n.op->forwards && n.op->leaf == Leaf::None && !n.results.empty();
}

int64_t zcc::resultBytes(const Node &n) {
  int64_t bytes = 0;
  for (auto &r : n.results)
    bytes += r->type.localBytes();
  return bytes;
}

bool zcc::widens(const Node &n) {
  return n.op->converts() && elemBytes(n.result()->type.elem) == 4 && elemBytes(n.operand(0)->type.elem) == 2;
}

const Value *zcc::originOf(Value *v) {
  v = behindViews(v);
  while (v && v->def && widens(*v->def))
    v = behindViews(v->def->operand(0));
  return v;
}

bool zcc::isReadBack(const Value &v) {
  return llvm::any_of(v.uses, [](const Value::Use &u) {
    bool passes = u.node->op->view || (u.node->phase == Phase::Forward && widens(*u.node));
    return passes ? isReadBack(*u.node->result()) : u.node->phase != Phase::Forward;
  });
}

llvm::DenseSet<const Node *> zcc::fixedNodes(const Function &f, const llvm::DenseSet<const Value *> &but) {
  llvm::DenseSet<const Node *> fixed;
  for (auto &n : f.nodes)
    if (!n->op->random && n->op->isPure() && llvm::all_of(n->operands(), [&](Value *v) {
          return !v || (v->isGlobal() ? !but.contains(v) : v->def && fixed.contains(v->def));
        }))
      fixed.insert(n.get());
  return fixed;
}

Recomputable::Recomputable(const Function &f) : fixed_(fixedNodes(f)) {
  bool isBackward = false;
  for (auto &n : f.nodes) {
    for (unsigned i = 0; i < n->numOperands(); ++i)
      if (n->op->updates(i))
        written_.insert(n->operand(i));
    isBackward |= n->phase == Phase::Backward;
    if (isBackward && n->phase == Phase::Forward)
      late_.insert(n.get());
  }
}

const char *Recomputable::whyNot(const Node &n) const {
  if (n.phase != Phase::Forward)
    return "it is not of the forward";
  if (!n.op->isPure() || !holdsActivation(n))
    return "it makes no value of its own";
  if (late_.contains(&n))
    return "it is computed where the backward reads it";
  if (isFixed(&n))
    return "it depends on parameters and constants only";
  for (Value *v : n.operands())
    if (written_.contains(behindViews(v)))
      return "it reads what a step writes";
  return nullptr;
}
