// A GPU's library adds a bias to a product before it rounds and stores it; behind it, it would take another pass over the
// product.
//
//   %p = matmul %x, %w : bf16[64x256]          %r = broadcast %b {dims = [64, 256]} : bf16[64x256]
//   %y = add %p, %b    : bf16[64x256]    ->    %y = add_matmul %r, %x, %w           : bf16[64x256]
//
// The sum is rounded once, and that is what the operator means: wherever the product is computed again, and whatever stands
// beside it, it has the same bits. So this goes before differentiation, and what libraries may refuse stays as it is: rows of
// products or factors that do not begin at multiples of 16 bytes.
#include "ir/Builder.h"
#include "ir/View.h"
#include "passes/Pass.h"
#include "passes/Target.h"

using namespace zcc;

/// Whether rows of so many elements keep each other aligned.
static bool areAligned(int64_t elements, Elem e) { return elements > 0 && elements * elemBytes(e) % 16 == 0; }

static bool takesBias(const Node &product) {
  const Type &y = product.result()->type, &w = product.operand(1)->type;
  const bool isFloatOfIts = y.elem == Elem::F32 || y.elem == Elem::F16 || y.elem == Elem::BF16;
  return isFloatOfIts && w.elem == y.elem && areAligned(y.dims.back(), y.elem) && areAligned(w.dims[w.ndim() - 2], w.elem);
}

namespace {
/// A sum of a product, in other dims perhaps, that nobody else reads, and a row.
struct Biased {
  Value *row;
  llvm::SmallVector<Node *, 4> chain; ///< the sum, what it reads the product through, the product
};
} // namespace

/// Puts down to the product what a value is made by; false: it is none.
static bool reachesProduct(const Value *v, llvm::SmallVectorImpl<Node *> &chain) {
  const int64_t columns = v->type.dims.back();
  while (v->def && v->def->parent() == chain.front()->parent() && v->uses.size() == 1 && !v->isReturned() && v->type.ndim() &&
         v->type.dims.back() == columns) {
    chain.push_back(v->def);
    if (v->def->is(ops::matmul))
      return takesBias(*v->def);
    if (!v->def->is(ops::reshape))
      return false;
    v = v->def->operand(0);
  }
  return false;
}

static std::optional<Biased> biasedProduct(Node &n) {
  if (!n.is(ops::add))
    return std::nullopt;
  for (unsigned i : {0u, 1u}) {
    Biased b{n.operand(1 - i), {&n}};
    if (n.operand(i)->type == n.result()->type && isRowOf(*b.row, *n.result()) && reachesProduct(n.operand(i), b.chain))
      return b;
  }
  return std::nullopt;
}

static bool addBiases(Function &f) {
  bool changed = false;
  for (Node *n = f.first(); n;) {
    Node *add = n;
    n = n->next();
    std::optional<Biased> biased = biasedProduct(*add);
    if (!biased)
      continue;
    Node *product = biased->chain.back();
    Builder b(f, add, mergeLocs(product->loc, add->loc));
    const Dims &dims = product->result()->type.dims;
    Value *bias = b.expand(b.reshape(biased->row, {dims.back()}), dims);
    Value *sum = b.make(ops::add_matmul, {bias, product->operand(0), product->operand(1)}, product->attrs);
    Value *like = b.reshape(sum, add->result()->type.dims);
    add->result()->replaceAllUsesWith(like);
    std::replace(f.results.begin(), f.results.end(), add->result(), like);
    for (Node *old : biased->chain)
      old->erase();
    changed = true;
  }
  return changed;
}

llvm::Expected<bool> zcc::addBiases(Module &m, PassContext &ctx) {
  bool changed = false;
  for (auto &f : m.functions)
    if (ctx.target && ctx.target->addsBiases() && !f->isKernel)
      changed |= ::addBiases(*f);
  return changed;
}
