#include "passes/tile/TileOrder.h"

using namespace zcc;

void zcc::moveNeeded(Node &n, Node &before, llvm::DenseSet<const Node *> &done, llvm::function_ref<void(Node &)> moved) {
  if (!done.insert(&n).second)
    return;
  for (Value *v : n.operands())
    if (v && v->def)
      moveNeeded(*v->def, before, done, moved);
  n.moveBefore(&before);
  moved(n);
}

void zcc::sortByUse(Function &f) {
  llvm::DenseSet<const Node *> done;
  for (Node *n = f.first(); n; n = n->next()) {
    for (Value *v : n->operands())
      if (v && v->def)
        moveNeeded(*v->def, *n, done, [](Node &) {});
    done.insert(n);
  }
}
