// Attention that exporters spell out: softmax((q * a) @ (k * b)^T * c + masks) @ v, with the guard against rows that are fully
// masked, keys and values repeated for grouped heads, and any spelling of k^T.
//
//   %s = matmul %q, %kt        %m = mul %s, 0.125        %a = add %m, %mask
//   %p = softmax %a {axis = 3} %y = matmul %p, %v
// becomes
//   %y, %lse = attention %q, %k, %v, %mask {scale = 0.125}
//
// A mask that a trained parameter moves (a relative position bias) has a gradient, which attention does not give: such graphs
// stay as they are. Masks are in AttentionMask.cpp.
#include "passes/simplify/AttentionMask.h"
#include "passes/simplify/Simplify.h"
#include <cmath>

using namespace zcc;
using llvm::ArrayRef;

namespace {
/// What the input of the softmax is made of.
struct Scores {
  Node *product = nullptr; ///< the matmul of q and k^T
  double scale = 1;
  std::vector<MaskTerm> masks;
  Dims batchHeads; ///< [B, H] where some shape of the scores has both
};
} // namespace

/// Whether a reshape keeps the last two axes.
static bool keepsRows(const Node *reshape) {
  ArrayRef<int64_t> from = reshape->operand(0)->type.dims, to = reshape->result()->type.dims;
  return from.size() >= 2 && to.size() >= 2 && from.take_back(2) == to.take_back(2);
}

/// select(isnan(p), 0, p) -> p, or nullptr.
static Value *unguarded(const Rewriter &r, Value *v) {
  Node *guard = defBy(v, ops::select);
  Node *test = guard ? defBy(guard->operand(0), ops::isnan) : nullptr;
  if (test && test->operand(0) == guard->operand(2) && r.isSplat(guard->operand(1), 0) && v->type == guard->operand(2)->type)
    return guard->operand(2);
  return nullptr;
}

/// The softmax over the last axis behind reshapes of the leading axes and the guard, if nothing
/// else reads it.
static Node *softmaxOf(const Rewriter &r, Value *v) {
  for (bool guarded = false;;) {
    Node *n = v->def;
    if (n && n->is(ops::softmax))
      return n->attrs.i("axis") == int64_t(v->type.ndim()) - 1 && r.uses(v) == 1u + guarded ? n : nullptr;
    if (n && n->is(ops::reshape) && keepsRows(n) && r.hasOneUse(v)) {
      v = n->operand(0);
    } else if (Value *p = unguarded(r, v); p && !guarded && r.hasOneUse(v)) {
      v = p;
      guarded = true;
    } else {
      return nullptr;
    }
  }
}

/// Takes the scores apart down to the product. Masks inside a scaling would be scaled too: no
/// match. `without`: sums' operands that lead to none, each of which is looked at once.
static bool collect(Rewriter &r, Value *v, Scores &s, llvm::DenseSet<Value *> &without) {
  Node *n = v->def;
  if (!n)
    return false;
  const Dims &dims = v->type.dims;
  if (dims.size() == 4)
    s.batchHeads = {dims[0], dims[1]};
  if (n->is(ops::matmul)) {
    s.product = n;
    return dims.size() <= 4;
  }
  if (n->is(ops::reshape) && keepsRows(n))
    return collect(r, n->operand(0), s, without);
  if (n->is(ops::mul) || n->is(ops::div)) {
    auto c = r.splat(n->operand(1));
    if (!c || n->operand(0)->type.dims != dims)
      return false;
    s.scale *= n->is(ops::mul) ? *c : 1 / *c;
    return collect(r, n->operand(0), s, without);
  }
  if (s.scale != 1 || (!n->is(ops::add) && !n->is(ops::select)))
    return false;
  for (unsigned i : {0u, 1u}) {
    Scores trial = s;
    unsigned first = n->is(ops::select) ? 1 : 0;
    Value *inner = n->operand(first + i), *other = n->operand(first + 1 - i);
    if (inner->type.dims != dims || without.contains(inner))
      continue;
    if (first == 0)
      trial.masks.push_back({MaskTerm::Added, other, 0, dims});
    else if (auto low = r.splat(other))
      trial.masks.push_back({i == 0 ? MaskTerm::Kept : MaskTerm::Dropped, n->operand(0), *low, dims});
    else
      continue;
    if (collect(r, inner, trial, without)) {
      s = trial;
      return true;
    }
    without.insert(inner);
  }
  return false;
}

/// Divides a product by its constant factor; `scale` takes it.
static Value *unscaled(Rewriter &r, Value *v, double &scale) {
  while (Node *n = v->def) {
    if (!n->is(ops::mul) && !n->is(ops::div))
      break;
    auto c = r.splat(n->operand(1));
    if (!c || n->operand(0)->type.dims != v->type.dims)
      break;
    scale *= n->is(ops::mul) ? *c : 1 / *c;
    v = n->operand(0);
  }
  return v;
}

/// Keys or values before they were repeated for the heads of a group:
/// [B, Hk, T, D] -> [B, Hk, 1, T, D] -> broadcast to [B, Hk, G, T, D] -> [B, Hk * G, T, D].
static Value *beforeRepeat(Builder &b, Value *v) {
  Node *merge = defBy(v, ops::reshape);
  Node *wide = merge ? defBy(merge->operand(0), ops::broadcast) : nullptr;
  if (!wide || v->type.ndim() != 4 || wide->result()->type.ndim() != 5)
    return nullptr;
  const Dims &to = wide->result()->type.dims, &from = wide->operand(0)->type.dims;
  Dims one = to;
  one[2] = 1;
  if (from != one || v->type.dims != Dims{to[0], to[1] * to[2], to[3], to[4]})
    return nullptr;
  return b.reshape(wide->operand(0), {to[0], to[1], to[3], to[4]});
}

/// The last two axes exchanged, looking through a transpose.
static Value *turned(Builder &b, Value *v) {
  Node *inner = defBy(v, ops::transpose);
  if (!inner)
    return b.swapLast(v);
  std::vector<int64_t> perm = inner->attrs.ints("perm");
  std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
  return llvm::is_sorted(perm) ? inner->operand(0) : b.transpose(inner->operand(0), perm);
}

/// `v` as [B or 1, H.., rows, width], from up to four axes.
static Value *fourAxes(Builder &b, Value *v, const Dims &batchHeads) {
  ArrayRef<int64_t> d = v->type.dims;
  if (d.size() == 4)
    return v;
  Dims to = {1, 1, d[d.size() - 2], d.back()};
  if (d.size() == 3 && d[0] == batchHeads[0] * batchHeads[1])
    to[0] = batchHeads[0], to[1] = batchHeads[1];
  else if (d.size() == 3 && d[0] != 1)
    return nullptr;
  return b.reshape(v, to);
}

static bool recogniseAttention(Node &n, Rewriter &r) {
  Node *softmax = softmaxOf(r, n.operand(0));
  Scores s;
  llvm::DenseSet<Value *> without;
  if (!softmax || !collect(r, softmax->operand(0), s, without))
    return false;
  for (const MaskTerm &m : s.masks)
    if (dependsOnTrained(m.value))
      return false;
  if (s.batchHeads.empty()) {
    const Dims &d = s.product->result()->type.dims;
    s.batchHeads = {1, d.size() == 3 ? d[0] : 1};
  }
  Value *q = unscaled(r, s.product->operand(0), s.scale);
  Value *kt = unscaled(r, s.product->operand(1), s.scale), *v = n.operand(1);
  if (q->type.ndim() > 4 || kt->type.ndim() > 4 || v->type.ndim() > 4)
    return false;
  Builder b = r.before(n, {softmax, s.product});
  q = fourAxes(b, q, s.batchHeads);
  Value *k = fourAxes(b, turned(b, kt), s.batchHeads);
  v = fourAxes(b, v, s.batchHeads);
  if (!q || !k || !v)
    return false;
  Value *k0 = beforeRepeat(b, k), *v0 = beforeRepeat(b, v);
  if (k0 && v0 && k0->type.dims[1] == v0->type.dims[1])
    k = k0, v = v0;
  const Dims &qd = q->type.dims, &kd = k->type.dims, &vd = v->type.dims;
  if (qd[0] != s.batchHeads[0] || qd[1] != s.batchHeads[1] || kd[0] != qd[0] || vd[0] != qd[0] || kd[1] != vd[1] || kd[1] < 1 ||
      qd[1] % kd[1])
    return false;
  auto mask = combineMasks(r, b, s.masks, {qd[0], qd[1], qd[2], kd[2]}, q->type.elem);
  if (!mask)
    return false;
  double usual = 1 / std::sqrt(double(qd[3])); // two rounded roots of it multiply to nearly it
  bool isUsual = std::abs(s.scale - usual) <= 1e-6 * usual;
  Attrs a = {{"scale", isUsual ? usual : s.scale}};
  if (mask->causal)
    a.set("causal", int64_t(1));
  llvm::SmallVector<Value *, 4> operands{q, k, v};
  if (mask->value)
    operands.push_back(mask->value);
  Value *y = b.node(ops::attention, operands, a, n.result()->name)->result();
  r.replace(n.result(), b.reshape(y, n.result()->type.dims));
  return true;
}

/// Whether a mask may be infinite: by a constant, by data, or by an operator that makes infinities of other numbers.
static bool mayBeInfinite(Rewriter &r, Value *v) {
  return anyBehind(v, [&](Value *x) {
    if (const Tensor *t = r.isConstant(x) ? r.constants.value(x) : nullptr)
      return llvm::any_of(t->f, [](double e) { return std::isinf(e); });
    if (x->isGlobal())
      return !static_cast<GlobalValue *>(x)->trained;
    const Node *n = x->def;
    return !n ||
           !(n->op->view || n->op->reshapes ||
             llvm::is_contained(
                 {&ops::add, &ops::sub, &ops::mul, &ops::neg, &ops::select, &ops::cast, &ops::gather, &ops::concat}, n->op));
  });
}

/// The guard of a softmax that no mask can fill with infinities: its rows always have a sum.
static bool dropGuard(Node &n, Rewriter &r) {
  Value *p = unguarded(r, n.result());
  Node *softmax = p ? defBy(p, ops::softmax) : nullptr;
  Scores s;
  llvm::DenseSet<Value *> without;
  if (!softmax || !collect(r, softmax->operand(0), s, without))
    return false;
  for (const MaskTerm &m : s.masks)
    if (m.kind == MaskTerm::Added ? mayBeInfinite(r, m.value) : std::isinf(m.low))
      return false;
  r.replace(n.result(), p);
  return true;
}

llvm::ArrayRef<Rule> zcc::attentionRules() {
  static const Rule rules[] = {{&ops::matmul, recogniseAttention}, {&ops::select, dropGuard}};
  return rules;
}
