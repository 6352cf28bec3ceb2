// Attention's results lie as their readers want them. What follows it, and what its gradients go on to, joins the heads of a row:
// that is a view of [batch, length, heads, width], and a copy of [batch, heads, length, width], which would be kept for the
// backward beside what it was copied from.
//
//   %y, %l = attention %q, %k, %v : f32[2x4x16x8], ..     %y, %l = attention %q, %k, %v {rows_first = 1} : f32[2x16x4x8], ..
//   %t = transpose %y {perm = [0, 2, 1, 3]}           ->  %r = reshape %y {dims = [32, 32]}
//   %r = reshape %t {dims = [32, 32]}                     %t = transpose %y {perm = [0, 2, 1, 3]}
//   .. = attention_grad %dy, %q, %k, %v, _, %y, %l        .. = attention_grad %dy, %q, %k, %v, _, %t, %l
//
// Kernels write a result at any strides, and each of its elements has the same bits.
#include "ir/Builder.h"
#include "ir/View.h"
#include "passes/Pass.h"
#include <algorithm>

using namespace zcc;

/// Whether it puts the length in front of the heads.
static bool exchanges(const Node &n) { return n.is(ops::transpose) && n.attrs.ints("perm") == std::vector<int64_t>{0, 2, 1, 3}; }

/// Lets a result lie so if what joins heads reads it, and all others take it at strides.
static bool layRowsFirst(Function &f, Node &n, unsigned i) {
  Value *v = n.result(i);
  const Value::Uses uses = v->uses;
  auto joins = [](const Value::Use &u) { return exchanges(*u.node); };
  auto takesViews = [&](const Value::Use &u) { return joins(u) || u.node->is(ops::attention_grad); };
  if (v->isReturned() || llvm::none_of(uses, joins) || !llvm::all_of(uses, takesViews))
    return false;
  std::swap(v->type.dims[1], v->type.dims[2]);
  n.attrs.set(kRowsFirst, n.attrs.i(kRowsFirst) | int64_t(1) << i);
  for (auto &u : uses) {
    if (!joins(u)) {
      u.node->setOperand(u.index, Builder(f, u.node, n.loc).transpose(v, {0, 2, 1, 3}));
      continue;
    }
    Value *exchanged = u.node->result();
    exchanged->replaceAllUsesWith(v);
    std::replace(f.results.begin(), f.results.end(), exchanged, v);
    u.node->erase();
  }
  return true;
}

static bool layHeads(Function &f) {
  bool changed = false;
  for (Node *n = f.first(); n; n = n->next()) {
    const unsigned heads = n->is(ops::attention) ? 1 : n->is(ops::attention_grad) ? 3 : 0; // the log-sums have none
    for (unsigned i = 0; i < heads; ++i)
      if (!hasRowsFirst(n->attrs, i))
        changed |= layRowsFirst(f, *n, i);
  }
  return changed;
}

llvm::Expected<bool> zcc::layHeads(Module &m, PassContext &) {
  bool changed = false;
  for (auto &f : m.functions)
    if (!f->isKernel)
      changed |= ::layHeads(*f);
  return changed;
}
