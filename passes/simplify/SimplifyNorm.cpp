// layer_norm and rms_norm that a model spells out, then their scale and bias.
//
//   %s = mul %x, %x       %m = mean of %s over the last axes      %v = add %m, eps
//   %r = rsqrt %v         %y = mul %x, %r
// becomes
//   %y, %rstd = rms_norm %x {axis, eps}
#include "passes/simplify/Simplify.h"

using namespace zcc;

/// Whether axes are the last ones; then the first of them.
static std::optional<int64_t> trailingAxis(const Mean &m) {
  for (size_t i = 0; i < m.axes.size(); ++i)
    if (m.axes[i] != int64_t(m.of->type.ndim() - m.axes.size() + i))
      return std::nullopt;
  return m.axes.empty() ? std::nullopt : std::optional(m.axes[0]);
}

namespace {
/// x / sqrt(mean(square of x) + eps)
struct Normalised {
  Value *x;
  int64_t axis;
  double eps;
  Node *root;
};
} // namespace

/// Matches x * rsqrt(mean + eps) and x / sqrt(mean + eps).
static std::optional<Normalised> normalised(const Rewriter &r, Node &n) {
  for (unsigned i : {1u, 0u}) {
    bool divides = n.is(ops::div);
    if (divides && i == 0)
      break;
    Node *root = defBy(n.operand(i), divides ? ops::sqrt : ops::rsqrt);
    Node *sum = root ? defBy(root->operand(0), ops::add) : nullptr;
    auto eps = sum ? r.splat(sum->operand(1)) : std::nullopt;
    auto mean = eps ? meanOf(r, sum->operand(0)) : std::nullopt;
    auto axis = mean ? trailingAxis(*mean) : std::nullopt;
    Node *square = mean ? defBy(mean->of, ops::mul) : nullptr;
    Value *x = n.operand(1 - i);
    if (axis && square && square->operand(0) == x && square->operand(1) == x && x->type == n.result()->type)
      return Normalised{x, *axis, *eps, root};
  }
  return std::nullopt;
}

/// Of a centred value when it is x - mean(x) over the same axes: layer_norm; else rms_norm.
static bool recogniseNorm(Node &n, Rewriter &r) {
  auto m = normalised(r, n);
  if (!m)
    return false;
  Attrs a = {{"axis", m->axis}, {"eps", m->eps}};
  Builder b = r.before(n, {m->root});
  Node *centred = defBy(m->x, ops::sub);
  auto mean = centred ? meanOf(r, centred->operand(1)) : std::nullopt;
  if (mean && mean->of == centred->operand(0) && trailingAxis(*mean) == m->axis && centred->operand(0)->type == m->x->type)
    r.replace(n.result(), b.node(ops::layer_norm, {centred->operand(0)}, a)->result());
  else
    r.replace(n.result(), b.node(ops::rms_norm, {m->x}, a)->result());
  return true;
}

/// `w` with exactly the dims that a norm from `axis` on scales, or nullptr if it has others.
static Value *asScale(Builder &b, Value *w, const Type &t, int64_t axis) {
  llvm::ArrayRef<int64_t> want = llvm::ArrayRef<int64_t>(t.dims).drop_front(axis);
  llvm::ArrayRef<int64_t> have = w->type.dims;
  while (have.size() > want.size() && have.front() == 1)
    have = have.drop_front();
  return have == want && w->type.elem == t.elem ? b.reshape(w, want) : nullptr;
}

/// Adds operand `slot` (1 scale, 2 bias) to the norm that makes an operand of `n`.
static bool absorb(Node &n, Rewriter &r, const OpDef &op, unsigned slot) {
  for (unsigned i : {0u, 1u}) {
    Node *norm = defBy(n.operand(i), op);
    if (!norm || n.operand(i) != norm->result() || !r.hasOneUse(norm->result()) || norm->operand(slot) ||
        (slot == 2 && !norm->operand(1)) ||
        llvm::any_of(llvm::drop_begin(norm->results), [&](auto &v) { return r.uses(v.get()); }))
      continue;
    Builder b = r.before(n, {norm});
    Value *w = asScale(b, n.operand(1 - i), n.result()->type, norm->attrs.i("axis"));
    if (!w || n.result()->type != norm->result()->type)
      continue;
    llvm::SmallVector<Value *> operands(norm->operands().begin(), norm->operands().end());
    operands.resize(slot);
    operands.push_back(w);
    r.replace(n.result(), b.node(op, operands, norm->attrs)->result());
    return true;
  }
  return false;
}

static bool absorbScale(Node &n, Rewriter &r) { return absorb(n, r, ops::layer_norm, 1) || absorb(n, r, ops::rms_norm, 1); }

static bool absorbBias(Node &n, Rewriter &r) { return absorb(n, r, ops::layer_norm, 2); }

llvm::ArrayRef<Rule> zcc::normRules() {
  static const Rule rules[] = {
      {&ops::mul, recogniseNorm}, {&ops::div, recogniseNorm}, {&ops::mul, absorbScale}, {&ops::add, absorbBias}};
  return rules;
}
