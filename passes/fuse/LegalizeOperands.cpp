// What a library kernel reads, it reads dense or with strides that the target allows, a counter has no memory, and what a
// function returns lies in memory of its own: a `copy` is put in otherwise.
//
//   %s = slice %x {starts = [0, 1], ...}           %s = slice %x {starts = [0, 1], ...}
//   %y = sort %s                             ->    %c = copy %s
//                                                  %y = sort %c
#include "ir/Control.h"
#include "ir/Op.h"
#include "ir/View.h"
#include "passes/Pass.h"
#include "passes/Target.h"
#include "passes/fuse/KernelShape.h"
#include "passes/fuse/Operands.h"
#include "passes/memory/Liveness.h"

using namespace zcc;

/// A counter has no memory: what is no generated loop over it reads a copy.
static bool copyCounters(Function &f) {
  bool changed = false;
  for (Node *n = f.first(); n; n = n->next()) {
    if (n->op->leaf != Leaf::Counter)
      continue;
    Value *copy = nullptr;
    auto copied = [&] {
      changed = true;
      return copy ? copy : copy = copyOf(f, n->next(), n->result());
    };
    Value::Uses uses = n->result()->uses;
    for (auto &u : uses)
      if (!isGenerated(*u.node) || u.node->op->view)
        u.node->setOperand(u.index, copied());
    for (Value *&r : f.results)
      if (r == n->result())
        r = copied();
  }
  return changed;
}

/// Whether a node takes operand `i` with these strides. Sums of squares read runs of a parameter where they lie, on the host,
/// too, where nothing copies: they begin at pieces.
static bool acceptsView(const Node &n, unsigned i, const View &v, const Target *target) {
  const bool takesRuns = callsBodies(*n.op) || performed(n)->moves || n.is(ops::sum_squares);
  if (v.isDense() || (takesRuns && v.strides == denseStrides(v.dims)))
    return true;
  return target ? target->reads(n, i, v) : isCommonLayout(n, i, v);
}

/// A body that a body names is told where its operands lie once: they must not be slices.
static bool movesInto(const Node &n, Value *v) {
  if (!callsBodies(*n.op) || !n.parent()->isBody)
    return false;
  auto s = storageOf(v);
  return s && s->base->kind == Value::Argument &&
         llvm::any_of(callersOf(*n.parent()), [&](Node *c) { return c->op->isScan() && ScanForm(*c).isSlice(s->base->index); });
}

/// What a body returns it has made, or it is what it carries unchanged: arguments may be overwritten before results are
/// left. They are copied first, so that new values of what is carried can be made in place.
static bool copyReturnedArgs(Function &f) {
  bool changed = false;
  const std::vector<Node *> callers = callersOf(f);
  bool carries = llvm::all_of(callers, [](Node *c) { return c->op->isScan(); });
  for (unsigned i = 0; i < f.results.size(); ++i) {
    Value *v = f.results[i];
    auto s = storageOf(v);
    bool isOwn = carries && i < f.args.size() && v == f.args[i].get() &&
                 llvm::all_of(callers, [&](Node *c) { return i < ScanForm(*c).carried; });
    if (!s || s->base->kind != Value::Argument || isOwn)
      continue;
    f.results[i] = copyOf(f, v->def ? v->def->next() : f.first(), v);
    changed = true;
  }
  return changed;
}

/// Copies the operands of a node that it cannot take as the views they are.
static bool copyViews(Function &f, Node &n, const Target *target) {
  bool changed = false;
  auto copy = [&](unsigned i) {
    n.setOperand(i, copyOf(f, &n, n.operand(i)));
    changed = true;
  };
  if (n.op->view && !viewOf(n.result())) {
    Value *whole = n.operand(0);
    copy(0);
    // The runs of a tensor that is updated in parts follow each other: they are of one copy.
    const Value::Uses uses = n.is(ops::run) ? whole->uses : Value::Uses();
    for (auto &u : uses)
      if (u.node->is(ops::run) && u.node->parent() == &f)
        u.node->setOperand(u.index, n.operand(0));
  }
  if (n.op->view || isGenerated(n))
    return changed;
  for (unsigned i = 0; i < n.numOperands(); ++i) {
    Value *v = n.operand(i);
    if (!v || !(v->def ? v->def->op->view || v->def->op->forwards : f.isBody))
      continue;
    if (!acceptsView(n, i, *viewOf(v), target) || movesInto(n, v))
      copy(i);
  }
  return changed;
}

static bool legalizeOperands(Function &f, const Target *target) {
  bool changed = copyCounters(f);
  if (f.isBody && !callersOf(f).empty())
    changed |= copyReturnedArgs(f);
  for (Node *n = f.first(); n; n = n->next())
    changed |= copyViews(f, *n, target);
  for (Value *&r : f.results)
    if ((r->isGlobal() && r->type.count() > 0) || (r->def && r->def->op->view && !viewOf(r)->isDense())) {
      r = copyOf(f, nullptr, r);
      changed = true;
    }
  return changed;
}

llvm::Expected<bool> zcc::legalizeOperands(Module &m, PassContext &ctx) {
  bool changed = false;
  for (auto &f : m.functions)
    if (!f->isKernel)
      changed |= ::legalizeOperands(*f, ctx.target);
  return changed;
}
