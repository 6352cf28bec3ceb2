// Composites (softmax, norms, cross-entropy, an optimizer's formulas) become the primitive operators of their records; a
// reduction over axes of extent 1, which such bodies bring, is what it reads. A norm and its gradient give its statistics shapes:
// one that is given back is what it was taken from, and equal ones are one.
//
//   %y = softmax %x {axis = 1}     ->     %m = reduce_max %x {axes = [1]}
//                                         %d = sub %x, %m
//                                         %e = exp %d
//                                         %s = reduce_sum %e {axes = [1]}
//                                         %y = div %e, %s
#include "ir/Builder.h"
#include "ir/Control.h"
#include "ir/View.h"
#include "passes/Pass.h"
#include "passes/memory/Activations.h"
#include "llvm/ADT/SmallPtrSet.h"
#include <map>

using namespace zcc;

static bool expandComposites(Function &f) {
  bool changed = false;
  for (Node *n = f.first(); n;) {
    Node *at = n;
    n = n->next();
    if (!at->op->expand)
      continue;
    Node *before = at->prev();
    Builder b(f, at, at->loc);
    auto values = at->op->expand(b, *at);
    for (unsigned i = 0; i < at->results.size(); ++i)
      if (values[i])
        at->result(i)->replaceAllUsesWith(values[i]);
    // What was put in may hold composites itself.
    n = before ? before->next() : f.first();
    at->erase();
    changed = true;
  }
  return changed;
}

static bool dropTrivialReductions(Function &f) {
  bool changed = false;
  for (Node *n = f.first(); n;) {
    Node *at = n;
    n = n->next();
    if (!at->op->reduction)
      continue;
    const Type &from = at->operand(0)->type;
    if (!from.isPartitioned() && from.dims == at->result()->type.dims) {
      at->result()->replaceAllUsesWith(at->operand(0));
      at->erase();
      changed = true;
    }
  }
  return changed;
}

/// Of reshapes, what is given back the shape it had, and what has been given the same shape before: in the same phase, as what
/// the forward makes would else be kept for the backward; of what nothing makes, as labels, in any.
static bool dropReshapes(Function &f) {
  bool changed = false;
  std::map<std::tuple<const Value *, Phase, Dims>, Value *> made;
  llvm::SmallPtrSet<const Value *, 8> written;
  for (auto &n : f.nodes)
    if (assigns(*n))
      written.insert(behindViews(n->operand(0)));
  for (Node *n = f.first(); n; n = n->next()) {
    if (!n->is(ops::reshape))
      continue;
    Value *from = n->operand(0), *to = n->result(), *root = behindReshapes(from);
    Node *inner = from->def && from->def->is(ops::reshape) ? from->def : nullptr;
    if (written.contains(behindViews(root))) // it may have been between the two
      continue;
    const auto key = root->def ? std::tuple(from, n->phase, to->type.dims) : std::tuple(root, Phase::Forward, to->type.dims);
    Value *same = inner && inner->operand(0)->type == to->type ? inner->operand(0) : made.try_emplace(key, to).first->second;
    if (same == to || same->type != to->type)
      continue;
    to->replaceAllUsesWith(same);
    changed = true;
  }
  if (changed)
    eraseDeadNodes(f);
  return changed;
}

llvm::Expected<bool> zcc::expandComposites(Module &m, PassContext &) {
  bool changed = false;
  for (auto &f : m.functions)
    if (!f->isKernel)
      changed |= ::expandComposites(*f) | dropTrivialReductions(*f) | dropReshapes(*f);
  return changed;
}
