// Views, concat, pad, reductions and matrix products: no-ops dropped, chains merged, products with a matrix made 2-D.
#include "ir/View.h"
#include "passes/memory/Activations.h"
#include "passes/simplify/Simplify.h"

using namespace zcc;
using llvm::ArrayRef;

static bool sameDims(const Value *a, const Value *b) { return a->type.dims == b->type.dims; }

static bool isIdentity(ArrayRef<int64_t> perm) {
  for (size_t i = 0; i < perm.size(); ++i)
    if (perm[i] != int64_t(i))
      return false;
  return true;
}

/// Whether a permutation only exchanges the last two axes.
static bool swapsLast(ArrayRef<int64_t> perm) {
  size_t n = perm.size();
  return n >= 2 && perm[n - 1] == int64_t(n) - 2 && perm[n - 2] == int64_t(n) - 1 && isIdentity(perm.drop_back(2));
}

/// Whether a value is, or looks into, what may be assigned: a copy holds what it was before.
static bool mayChange(Value *v) {
  Value *base = behindViews(v);
  auto *g = base->isGlobal() ? static_cast<GlobalValue *>(base) : nullptr;
  return g && (g->role == GlobalValue::State || g->trained);
}

/// A view or copy that changes nothing.
static bool dropNoop(Node &n, Rewriter &r) {
  Value *x = n.operand(0);
  if (!sameDims(x, n.result()) || (n.is(ops::copy) && mayChange(x)))
    return false;
  std::vector<int64_t> perm = n.attrs.ints("perm"), steps = n.attrs.ints("steps");
  if (n.is(ops::transpose) && !isIdentity(perm))
    return false;
  if (n.is(ops::slice) && llvm::any_of(steps, [](int64_t s) { return s < 0; }))
    return false;
  for (const char *side : {"lo", "hi"})
    if (n.is(ops::pad) && llvm::any_of(n.attrs.ints(side), [](int64_t p) { return p != 0; }))
      return false;
  r.replace(n.result(), x);
  return true;
}

/// A view of one value everywhere is that value in the other shape.
static bool reshapeSplat(Node &n, Rewriter &r) {
  Node *c = defBy(n.operand(0), ops::constant);
  auto value = r.splat(n.operand(0));
  if (!c || !value)
    return false;
  Attrs a = c->attrs;
  const Dims &d = n.result()->type.dims;
  a.set("dims", std::vector<int64_t>(d.begin(), d.end()));
  r.replace(n.result(), r.before(n).make(ops::constant, {}, a));
  return true;
}

static bool mergeReshapes(Node &n, Rewriter &r) {
  Node *inner = defBy(n.operand(0), ops::reshape);
  if (!inner)
    return false;
  Builder b = r.before(n, {inner});
  r.replace(n.result(), b.reshape(inner->operand(0), n.result()->type.dims));
  return true;
}

/// reshape(x + row), where x is a reshape of what has these dims -> x + row in them: a product with its bias lies as the product
/// does.
static bool sumOfReshaped(Node &n, Rewriter &r) {
  Node *sum = defBy(n.operand(0), ops::add);
  if (!sum || !r.hasOneUse(sum->result()))
    return false;
  for (unsigned i : {0u, 1u}) {
    Node *inner = defBy(sum->operand(i), ops::reshape);
    Value *row = sum->operand(1 - i);
    if (!inner || !sameDims(inner->operand(0), n.result()) || !sameDims(inner->result(), sum->result()) ||
        !isRowOf(*row, *sum->result()) || !isRowOf(*row, *n.result()))
      continue;
    llvm::SmallVector<Value *, 2> operands(sum->operands());
    operands[i] = inner->operand(0);
    r.replace(n.result(), r.before(n, {sum, inner}).make(ops::add, operands));
    return true;
  }
  return false;
}

/// reshape(swap of the last axes) that keeps these -> swap(reshape), so that swaps meet and cancel.
static bool swapAfterReshape(Node &n, Rewriter &r) {
  Node *swap = defBy(n.operand(0), ops::transpose);
  if (!swap || !swapsLast(swap->attrs.ints("perm")))
    return false;
  ArrayRef<int64_t> from = swap->result()->type.dims, to = n.result()->type.dims;
  if (to.size() < 2 || from.take_back(2) != to.take_back(2))
    return false;
  Builder b = r.before(n, {swap});
  Dims dims(to.begin(), to.end());
  std::swap(dims[dims.size() - 1], dims[dims.size() - 2]);
  r.replace(n.result(), b.swapLast(b.reshape(swap->operand(0), dims)));
  return true;
}

static bool mergeTransposes(Node &n, Rewriter &r) {
  Node *inner = defBy(n.operand(0), ops::transpose);
  if (!inner)
    return false;
  std::vector<int64_t> outer = n.attrs.ints("perm"), perm = inner->attrs.ints("perm");
  for (int64_t &a : outer)
    a = perm[a];
  r.replace(n.result(), r.before(n, {inner}).transpose(inner->operand(0), outer));
  return true;
}

/// A transpose that moves only axes of 1 -> reshape.
static bool transposeOfOnes(Node &n, Rewriter &r) {
  int64_t last = -1;
  for (int64_t a : n.attrs.ints("perm")) {
    if (n.operand(0)->type.dims[a] == 1)
      continue;
    if (a < last)
      return false;
    last = a;
  }
  r.replace(n.result(), r.before(n).reshape(n.operand(0), n.result()->type.dims));
  return true;
}

static bool mergeSlices(Node &n, Rewriter &r) {
  Node *inner = defBy(n.operand(0), ops::slice);
  if (!inner)
    return false;
  std::vector<int64_t> s0 = inner->attrs.ints("starts"), k0 = inner->attrs.ints("steps"), s1 = n.attrs.ints("starts"),
                       k1 = n.attrs.ints("steps"), starts, ends, steps;
  for (size_t a = 0; a < s0.size(); ++a) {
    int64_t step = k0[a] * k1[a], start = s0[a] + s1[a] * k0[a];
    int64_t last = start + (n.result()->type.dims[a] - 1) * step;
    starts.push_back(start);
    steps.push_back(step);
    ends.push_back(last + (step > 0 ? 1 : -1));
  }
  if (n.result()->type.count() == 0)
    return false;
  Builder b = r.before(n, {inner});
  r.replace(n.result(), b.make(ops::slice, {inner->operand(0)}, {{"starts", starts}, {"ends", ends}, {"steps", steps}}));
  return true;
}

/// A slice that is exactly one operand of a concat.
static bool sliceOfConcat(Node &n, Rewriter &r) {
  Node *cat = defBy(n.operand(0), ops::concat);
  if (!cat)
    return false;
  int64_t axis = cat->attrs.i("axis"), at = 0;
  std::vector<int64_t> starts = n.attrs.ints("starts"), steps = n.attrs.ints("steps");
  for (Value *part : cat->operands()) {
    if (at == starts[axis] && sameDims(part, n.result()) && llvm::all_of(steps, [](int64_t s) { return s == 1; })) {
      r.replace(n.result(), part);
      return true;
    }
    at += part->type.dims[axis];
  }
  return false;
}

static bool mergeBroadcasts(Node &n, Rewriter &r) {
  Node *inner = defBy(n.operand(0), ops::broadcast);
  if (!inner)
    return false;
  r.replace(n.result(), r.before(n, {inner}).expand(inner->operand(0), n.result()->type.dims));
  return true;
}

/// A broadcast that only puts axes of 1 in front -> reshape.
static bool broadcastOfOnes(Node &n, Rewriter &r) {
  if (n.operand(0)->type.count() != n.result()->type.count())
    return false;
  r.replace(n.result(), r.before(n).reshape(n.operand(0), n.result()->type.dims));
  return true;
}

/// concat of one operand; concat of concats along the same axis.
static bool mergeConcats(Node &n, Rewriter &r) {
  if (n.numOperands() == 1) {
    r.replace(n.result(), n.operand(0));
    return true;
  }
  llvm::SmallVector<Value *> parts;
  for (Value *v : n.operands()) {
    Node *inner = defBy(v, ops::concat);
    if (inner && inner->attrs.i("axis") == n.attrs.i("axis") && r.hasOneUse(v))
      parts.append(inner->operands().begin(), inner->operands().end());
    else
      parts.push_back(v);
  }
  if (parts.size() == n.numOperands())
    return false;
  r.replace(n.result(), r.before(n).make(ops::concat, parts, n.attrs));
  return true;
}

/// concat of transposed values whose axis and the one behind it a reshape has made one, as attention's gradients of heads beside
/// each other -> a reshape of their concat, which takes them as they lie.
static bool concatBeforeReshape(Node &n, Rewriter &r) {
  const size_t axis = size_t(n.attrs.i("axis"));
  llvm::SmallVector<Value *> parts;
  for (Value *v : n.operands()) {
    Node *reshape = defBy(v, ops::reshape);
    Value *from = reshape && r.hasOneUse(v) ? reshape->operand(0) : nullptr;
    if (!defBy(from, ops::transpose) || from->type.ndim() != v->type.ndim() + 1)
      return false;
    Dims joined = from->type.dims;
    const int64_t inner = joined[axis + 1];
    joined[axis] *= inner;
    joined.erase(joined.begin() + axis + 1);
    if (joined != v->type.dims || (!parts.empty() && parts.front()->type.dims[axis + 1] != inner))
      return false;
    parts.push_back(from);
  }
  Builder b = r.before(n);
  r.replace(n.result(), b.reshape(b.make(ops::concat, parts, n.attrs), n.result()->type.dims));
  return true;
}

/// Reduced axes of 1 need no reduction.
static bool dropReducedOnes(Node &n, Rewriter &r) {
  std::vector<int64_t> axes = n.attrs.ints("axes"), kept;
  for (int64_t a : axes)
    if (n.operand(0)->type.dims[a] != 1)
      kept.push_back(a);
  if (kept.size() == axes.size() && !axes.empty())
    return false;
  Builder b = r.before(n);
  r.replace(n.result(), kept.empty() ? n.operand(0) : b.make(*n.op, {n.operand(0)}, {{"axes", kept}}));
  return true;
}

/// A matrix product over batch dims with one matrix -> one 2-D product.
static bool productWithMatrix(Node &n, Rewriter &r) {
  Value *a = n.operand(0), *w = n.operand(1);
  ArrayRef<int64_t> ad = a->type.dims, wd = w->type.dims;
  int64_t matrices = elementCount(wd.drop_back(2));
  if (matrices != 1 || (ad.size() == 2 && wd.size() == 2))
    return false;
  Builder b = r.before(n);
  Value *x = b.reshape(a, {elementCount(ad.drop_back(1)), ad.back()});
  Value *y = b.make(ops::matmul, {x, b.reshape(w, wd.take_back(2))});
  r.replace(n.result(), b.reshape(y, n.result()->type.dims));
  return true;
}

/// matmul broadcasts batch dims by itself.
static bool dropBatchBroadcast(Node &n, Rewriter &r) {
  for (unsigned i : {0u, 1u}) {
    Node *wide = defBy(n.operand(i), ops::broadcast);
    if (!wide || wide->operand(0)->type.ndim() < 2)
      continue;
    ArrayRef<int64_t> from = wide->operand(0)->type.dims, to = wide->result()->type.dims;
    ArrayRef<int64_t> other = n.operand(1 - i)->type.dims;
    auto batch = broadcastDims(from.drop_back(2), other.drop_back(2));
    if (from.take_back(2) != to.take_back(2) || !batch ||
        ArrayRef<int64_t>(*batch) != ArrayRef<int64_t>(n.result()->type.dims).drop_back(2))
      continue;
    n.setOperand(i, wide->operand(0));
    r.eraseDead(wide);
    return true;
  }
  return false;
}

llvm::ArrayRef<Rule> zcc::shapeRules() {
  static const Rule rules[] = {
      {&ops::reshape, dropNoop},
      {&ops::transpose, dropNoop},
      {&ops::slice, dropNoop},
      {&ops::broadcast, dropNoop},
      {&ops::pad, dropNoop},
      {&ops::copy, dropNoop},
      {&ops::reshape, reshapeSplat},
      {&ops::transpose, reshapeSplat},
      {&ops::slice, reshapeSplat},
      {&ops::broadcast, reshapeSplat},
      {&ops::reshape, mergeReshapes},
      {&ops::reshape, sumOfReshaped},
      {&ops::reshape, swapAfterReshape},
      {&ops::transpose, mergeTransposes},
      {&ops::transpose, transposeOfOnes},
      {&ops::slice, mergeSlices},
      {&ops::slice, sliceOfConcat},
      {&ops::broadcast, mergeBroadcasts},
      {&ops::broadcast, broadcastOfOnes},
      {&ops::concat, mergeConcats},
      {&ops::concat, concatBeforeReshape},
      {&ops::reduce_sum, dropReducedOnes},
      {&ops::reduce_max, dropReducedOnes},
      {&ops::reduce_min, dropReducedOnes},
      {&ops::reduce_prod, dropReducedOnes},
      {&ops::matmul, dropBatchBroadcast},
      {&ops::matmul, productWithMatrix},
  };
  return rules;
}
