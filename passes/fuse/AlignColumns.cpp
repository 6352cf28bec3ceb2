// Of a product whose rows do not begin where vectors of memory do, GPUs' libraries have kernels many times slower than of one a
// few columns wider: of GPT-2's 50257 logits in 16 bits three products of 20 ms on an H100, of 50264 of 4 ms. So logits that a
// cross-entropy reads get the missing columns, forward and, through differentiation, backward:
//
//   %t = transpose %w                    : bf16[768x50257]      %p = pad %w {hi = [7, 0]}                : bf16[50264x768]
//   %y = matmul %x, %t                   : bf16[32x50257]   ->  %y = matmul %x, (transpose %p)           : bf16[32x50264]
//   %l, .. = cross_entropy %y, %labels   : f32[32]              %l, .. = cross_entropy %y, %labels {classes = 50257} : f32[32]
//
// What is no class has the exponential 0, and so is its gradient: no sum has another value for it. Who else reads the product
// reads a slice of it. This goes before differentiation, so that all of the backward is aligned.
#include "ir/Builder.h"
#include "ir/View.h"
#include "passes/Pass.h"
#include "passes/Target.h"

using namespace zcc;

namespace {

class Aligner {
public:
  Aligner(Function &f, const Target &target) : f_(f), target_(target) {}
  bool run();

private:
  /// Columns up to the next multiple.
  int64_t lacking(const Type &t) const {
    const int64_t best = target_.columnMultiple(t.elem);
    return (best - t.dims.back() % best) % best;
  }
  Node *productOf(Value *logits) const;
  static unsigned through(const Node &n);
  Value *padLast(Builder &b, Value *v);
  Value *padded(Value *v);

  Function &f_;
  const Target &target_;
  int64_t columns_ = 0, more_ = 0; ///< of the product looked at; those it lacks
};

} // namespace

static int64_t lastDim(const Value &v) { return v.type.ndim() ? v.type.dims.back() : 1; }

/// Which operand of a node between logits and their product leads to it: of a sum the one that is no row. Exporters write a bias
/// first or last.
unsigned Aligner::through(const Node &n) {
  return n.is(ops::add) && isRowOf(*n.operand(0), *n.result()) && n.operand(1)->type == n.result()->type ? 1 : 0;
}

/// The product that logits are, but for what takes no column to another place; nullptr: none, or one that is well as it is.
Node *Aligner::productOf(Value *v) const {
  const int64_t columns = lastDim(*v);
  while (v->def && v->def->parent() == &f_ && lastDim(*v) == columns) {
    Node *n = v->def;
    if (n->is(ops::matmul)) {
      const int64_t more = lacking(n->result()->type);
      // Few more columns than there are.
      return more && more * 64 <= columns && n->operand(1)->type.ndim() == 2 ? n : nullptr;
    }
    if (!n->is(ops::cast) && !n->is(ops::reshape) && !(n->is(ops::add) && isRowOf(*n->operand(1 - through(*n)), *n->result())))
      return nullptr;
    v = n->operand(through(*n));
  }
  return nullptr;
}

/// Zeros behind the last axis.
Value *Aligner::padLast(Builder &b, Value *v) {
  std::vector<int64_t> lo(v->type.ndim()), hi = lo;
  if (Node *t = v->def; t && t->is(ops::transpose) && v->type.ndim() == 2) {
    hi[0] = more_; // rows of memory
    return b.swapLast(b.make(ops::pad, {t->operand(0)}, {{"lo", lo}, {"hi", hi}}));
  }
  hi.back() = more_;
  return b.make(ops::pad, {v}, {{"lo", lo}, {"hi", hi}});
}

/// What productOf() found, with all of its columns.
Value *Aligner::padded(Value *v) {
  Node *n = v->def;
  Builder b(f_, n, n->loc);
  if (n->is(ops::matmul)) {
    Value *wide = b.make(ops::matmul, {n->operand(0), padLast(b, n->operand(1))}, n->attrs);
    Value *like = b.slice(wide, int(wide->type.ndim()) - 1, 0, columns_);
    v->replaceAllUsesWith(like);
    std::replace(f_.results.begin(), f_.results.end(), v, like);
    return wide;
  }
  const unsigned at = through(*n);
  Value *wide = padded(n->operand(at));
  if (n->is(ops::cast))
    return b.cast(wide, v->type.elem);
  if (n->is(ops::add)) {
    Value *row = padLast(b, n->operand(1 - at));
    return b.make(ops::add, {at ? row : wide, at ? wide : row});
  }
  Dims dims = v->type.dims;
  dims.back() += more_;
  return b.reshape(wide, dims);
}

bool Aligner::run() {
  std::vector<Node *> losses;
  for (auto &n : f_.nodes)
    if (n->is(ops::cross_entropy) && !n->operand(2) && !n->attrs.i("classes", 0))
      losses.push_back(n.get());
  bool changed = false;
  for (Node *loss : losses) {
    Value *logits = loss->operand(0);
    Node *product = productOf(logits);
    if (!product)
      continue;
    columns_ = lastDim(*logits);
    more_ = lacking(product->result()->type);
    loss->setOperand(0, padded(logits));
    loss->attrs.set("classes", columns_);
    changed = true;
  }
  return changed;
}

llvm::Expected<bool> zcc::alignColumns(Module &m, PassContext &ctx) {
  bool changed = false;
  for (auto &f : m.functions)
    if (ctx.target && !f->isKernel)
      changed |= Aligner(*f, *ctx.target).run();
  return changed;
}
