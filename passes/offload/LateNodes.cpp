// From what @flush assigns, back to what only that needs.
#include "passes/offload/LateNodes.h"
#include "ir/Op.h"

using namespace zcc;

llvm::DenseSet<const Node *> zcc::lateNodes(const Module &m) {
  const Function *micro = m.function("micro"), *flush = m.function("flush");
  llvm::DenseSet<const Node *> late;
  if (!micro || !flush)
    return late;
  llvm::DenseSet<const Value *> updated;
  for (auto &n : flush->nodes)
    if (assigns(*n))
      updated.insert(n->operand(0));
  auto isLate = [&](const Node &n) {
    if (assigns(n))
      return updated.contains(n.operand(0));
    auto isForLate = [&](auto &r) {
      return !llvm::is_contained(micro->results, r.get()) &&
             llvm::all_of(r->uses, [&](auto &u) { return late.contains(u.node); });
    };
    return !n.op->writes && llvm::any_of(n.results, [](auto &r) { return r->hasUses(); }) && llvm::all_of(n.results, isForLate);
  };
  for (auto &n : llvm::reverse(micro->nodes))
    if (isLate(*n))
      late.insert(n.get());
  return late;
}

llvm::DenseSet<const Node *> zcc::nodesOfFirstCall(const Module &m) {
  llvm::DenseSet<const Node *> first = lateNodes(m);
  if (const Function *micro = m.function("micro"))
    for (auto &n : micro->nodes)
      if (n->attrs.has("once"))
        first.insert(n.get());
  return first;
}
