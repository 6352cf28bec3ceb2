// Kernels with reductions go along the innermost axis. Where several of them read a value whose elements lie far apart along it,
// as that of a transposed image, or one whose rows a near cache does not hold, so that neighbours of an element are gone when the
// next row wants them, a copy serves them; what lies transposed is read in tiles by the copy alone.
//
//   %t = transpose %x {perm = [0, 2, 3, 1]}        %t = transpose %x {perm = [0, 2, 3, 1]}
//   %m = fused @mean %t                       ->   %c = fused @copy %t
//   %d = fused @grad %t, %dy                       %m = fused @mean %c
//                                                  %d = fused @grad %c, %dy
#include "ir/Op.h"
#include "ir/View.h"
#include "passes/fuse/FuseGroups.h"
#include "passes/fuse/Operands.h"
#include "llvm/ADT/MapVector.h"

using namespace zcc;

/// Whether `v` is all of what a node makes, with elements of the innermost axis a cache line apart or more: each is read for
/// itself. Small ones stay in the cache.
static bool liesAcross(Value *v) {
  constexpr int64_t kLine = 16, kLeastCount = 1 << 14, kLeastExtent = 8;
  auto view = viewOf(v);
  if (!view || view->isDense() || !view->base->def || view->base->def->op->collective != Collective::None)
    return false;
  return v->type.localCount() >= kLeastCount && v->type.localCount() == view->base->type.localCount() &&
         llvm::is_contained(view->strides, 1) && view->dims.back() >= kLeastExtent && view->strides.back() >= kLine;
}

/// Whether the kernel's sums stay the same if a copy takes the place of `v`: their order follows which axes step as one.
static bool addsAlike(const FuseGroup &g, Value *v) {
  const KernelShape &s = *g.shape;
  if (s.form != KernelShape::Row)
    return s.form == KernelShape::Column;
  const View view = *viewOf(v);
  auto stepsAlike = [&](Node *n) {
    auto st = domainStrides(s, *n, view.dims, view.strides);
    for (size_t i = 1; st && i < s.dims.size(); ++i)
      if (s.reduced[i - 1] && s.reduced[i] && (*st)[i - 1] != (*st)[i] * s.dims[i])
        return false;
    return st.has_value();
  };
  return llvm::all_of(g.nodes, [&](Node *n) { return !llvm::is_contained(n->operands(), v) || stepsAlike(n); });
}

/// Whether the lines in which a row's elements lie fill the nearest cache.
static bool hasLongRows(const FuseGroup &g) {
  constexpr int64_t kLineBytes = 64, kCacheBytes = 32 << 10;
  return g.shape->form == KernelShape::Row && g.shape->rowCount() * kLineBytes > kCacheBytes;
}

/// Whether the value under a view is kept for the backward in any case: by other readers than these.
static bool isKeptBeside(Value *v, const llvm::DenseSet<const Node *> &readers) {
  return llvm::any_of(v->uses, [&](auto &u) {
    if (u.node->op->view)
      return isKeptBeside(u.node->result(), readers);
    return u.node->phase != Phase::Forward && !readers.contains(u.node);
  });
}

void FuseGroups::copyForReductions(std::vector<FuseGroup *> &order) {
  llvm::MapVector<Value *, std::vector<FuseGroup *>> readers;
  for (FuseGroup *g : order)
    if (g->isKernel)
      for (Value *v : g->inputs())
        if (liesAcross(v) && addsAlike(*g, v))
          readers[v].push_back(g);
  llvm::DenseMap<const FuseGroup *, std::vector<FuseGroup *>> before;
  for (auto &[v, all] : readers) {
    llvm::DenseSet<const Node *> nodes;
    for (FuseGroup *g : all)
      nodes.insert(g->nodes.begin(), g->nodes.end());
    // The copy is kept for the backward in place of the value, not beside it.
    const bool staysBeside = isKeptBeside(viewOf(v)->base, nodes);
    if (staysBeside && llvm::any_of(all, [](FuseGroup *g) { return g->nodes.front()->phase != Phase::Forward; }))
      llvm::erase_if(all, [](FuseGroup *g) { return g->nodes.front()->phase == Phase::Forward; });
    if (all.empty() || (all.size() == 1 && !hasLongRows(*all.front())))
      continue;
    Node *first = all.front()->nodes.front();
    Value *copy = copyOf(f, first, v);
    copy->def->phase = first->phase;
    for (FuseGroup *g : all)
      for (Node *n : g->nodes)
        for (unsigned i = 0; i < n->numOperands(); ++i)
          if (n->operand(i) == v)
            n->setOperand(i, copy);
    before[all.front()].push_back(single(copy->def));
  }
  std::vector<FuseGroup *> with;
  for (FuseGroup *g : order) {
    auto copies = before.find(g);
    if (copies != before.end())
      with.insert(with.end(), copies->second.begin(), copies->second.end());
    with.push_back(g);
  }
  order = std::move(with);
}
