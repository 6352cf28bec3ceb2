// Groups elementwise operators, broadcasts and reductions into kernels.
//
//   %m = reduce_max %x {axes = [1]}           kernel @k3(%a : f32[8x512]) -> (f32[8x512]) {
//   %d = sub %x, %m                             %m = reduce_max %a {axes = [1]} ...
//   %e = exp %d                       ->        ...
//   %s = reduce_sum %e {axes = [1]}             return %y
//   %y = div %e, %s                           }
//                                             %y = fused %x {kernel = "k3"}
//
// A group is what kernelShape() finds loops for; it grows from each operator towards its producers, then over siblings that read
// the same tensor, and over sums over the rows that another kernel goes along. Values that are cheap to compute again from what
// is kept anyway are computed again instead of stored, for a single reader in the backward a function's, too; then kernels of the
// backward that read two tensors in common are one. Equal bodies become one kernel.
#include "ir/Control.h"
#include "ir/Op.h"
#include "passes/Pass.h"
#include "passes/Refusal.h"
#include "passes/Target.h"
#include "passes/fuse/KernelBuilder.h"
#include "passes/fuse/Operands.h"
#include "passes/memory/Activations.h"

using namespace zcc;

static std::vector<const Node *> nodeListOf(const Function &f) {
  std::vector<const Node *> all;
  for (auto &n : f.nodes)
    all.push_back(n.get());
  return all;
}

/// Whether a node fetches a global, or is a view of what is fetched.
static bool isFetched(const Node &n) {
  const Node *root = n.op->view ? behindViews(n.result())->def : &n;
  return root && isTransfer(*root) && root->numOperands() == 1 && root->operand(0)->isGlobal();
}

/// What moved behind others when kernels were brought together has left its parameters where they were, from where on they would
/// be kept: they go to their first readers, but not past what writes them.
static void fetchLate(Function &f) {
  constexpr int64_t kApart = 1 << 20; // places that are free before each node
  llvm::DenseMap<const Node *, int64_t> place;
  for (auto &n : f.nodes)
    place[n.get()] = int64_t(place.size() + 1) * kApart;
  llvm::DenseMap<const Node *, Node *> moved; // to in front of a node: the first of them
  for (Node *n = f.last(), *next; n; n = next) {
    next = n->prev();
    if (!isFetched(*n))
      continue;
    Node *first = nullptr;
    for (auto &r : n->results)
      for (auto &use : r->uses)
        if (!first || place.lookup(use.node) < place.lookup(first))
          first = use.node;
    auto isWritten = [&](const Value::Use &use) {
      return assigns(*use.node) && use.index == 0 && place.lookup(use.node) > place.lookup(n) &&
             place.lookup(use.node) < place.lookup(first);
    };
    if (!first || first == n->next() || (isTransfer(*n) && llvm::any_of(n->operand(0)->uses, isWritten)))
      continue;
    Node *&others = moved.try_emplace(first, first).first->second; // which keep their order
    n->moveBefore(others);
    place[n] = place.lookup(others) - 1;
    others = n;
  }
}

static bool fuseFunction(Module &m, Function &f, KnownKernels &known, const Target *target) {
  std::vector<const Node *> before = nodeListOf(f);
  FuseGroups groups(f);
  if (target && target->passesOverStrips())
    groups.allowStrips();
  groups.grow();
  groups.joinSiblings();
  if (target)
    groups.joinColumns(target->leastRowsToSum());
  groups.recomputeCheap(target && target->computesWhatItCouldRead());
  groups.joinReaders();
  KernelBuilder kernels(m, f, known);
  std::vector<FuseGroup *> order = groups.order();
  groups.copyForReductions(order);
  for (FuseGroup *g : order) // places single nodes too
    if (g->isKernel)
      kernels.build(*g, g->nodes.back());
  eraseDeadNodes(f); // members, and the views between them, which may stand in any order
  fetchLate(f);
  return before != nodeListOf(f);
}

llvm::Expected<bool> zcc::fuse(Module &m, PassContext &ctx) {
  KnownKernels known;
  std::vector<Function *> functions;
  for (auto &f : m.functions) {
    for (auto &n : f->nodes)
      if (n->op->expand)
        return refuse("'" + std::string(n->op->name) + "' is not primitive; run 'expand-composites' first");
    if (!f->isKernel)
      functions.push_back(f.get());
  }
  bool changed = false;
  for (Function *f : functions)
    changed |= fuseFunction(m, *f, known, ctx.target);
  m.add(Property::Fused);
  return changed;
}
