// Activations that exporters spell out: SiLU, GELU in its erf and its tanh form. Rectifiers in front of a pooling.
#include "ir/ops/Window.h"
#include "passes/simplify/Simplify.h"
#include <cmath>

using namespace zcc;

/// Removes one factor equal to `v`; whether there was one.
static bool take(Product &p, const Value *v) {
  auto i = llvm::find(p.factors, v);
  if (i == p.factors.end())
    return false;
  p.factors.erase(i);
  return true;
}

static bool near(double a, double b) { return std::abs(a - b) <= 2e-6 * std::abs(b); }

/// x * sigmoid(x)
static bool recogniseSilu(Node &n, Rewriter &r) {
  for (unsigned i : {0u, 1u}) {
    Node *s = defBy(n.operand(i), ops::sigmoid);
    if (!s || s->operand(0) != n.operand(1 - i) || n.operand(0)->type != n.operand(1)->type)
      continue;
    r.replace(n.result(), r.before(n, {s}).make(ops::silu, {s->operand(0)}));
    return true;
  }
  return false;
}

/// If `v` is erf(x / sqrt(2)) or tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)): the operator of the
/// whole, for this x.
static const OpDef *geluOf(const Rewriter &r, Value *v, Value *x) {
  if (Node *erf = defBy(v, ops::erf)) {
    Product p = productOf(r, erf->operand(0));
    return near(p.scale, M_SQRT1_2) && take(p, x) && p.factors.empty() ? &ops::gelu : nullptr;
  }
  Node *tanh = defBy(v, ops::tanh);
  if (!tanh)
    return nullptr;
  Product p = productOf(r, tanh->operand(0));
  if (!near(p.scale, std::sqrt(2 / M_PI)))
    return nullptr;
  bool factored = take(p, x); // x * (1 + 0.044715 * x * x)
  Node *sum = p.factors.size() == 1 ? defBy(p.factors[0], ops::add) : nullptr;
  for (unsigned i : {0u, 1u}) {
    Value *linear = sum ? sum->operand(i) : nullptr;
    if (!sum || (factored ? !r.isSplat(linear, 1) : linear != x))
      continue;
    Product cube = productOf(r, sum->operand(1 - i));
    bool square = take(cube, x) && take(cube, x);
    if (near(cube.scale, 0.044715) && square && (factored || take(cube, x)) && cube.factors.empty())
      return &ops::gelu_tanh;
  }
  return nullptr;
}

/// 0.5 * x * (1 + f(x)), in any order of the factors
static bool recogniseGelu(Node &n, Rewriter &r) {
  Product p = productOf(r, n.result());
  if (!near(p.scale, 0.5) || p.factors.size() != 2)
    return false;
  for (unsigned i : {0u, 1u}) {
    Node *sum = defBy(p.factors[i], ops::add);
    Value *x = p.factors[1 - i];
    if (!sum || !r.isSplat(sum->operand(1), 1))
      continue;
    const OpDef *op = geluOf(r, sum->operand(0), x);
    if (!op)
      continue;
    r.replaceShaped(n, r.before(n, {sum, sum->operand(0)->def}).make(*op, {x}));
    return true;
  }
  return false;
}

/// Whether none of a pooling's windows lies wholly in the padding.
static bool allWindowsMeet(const Node &pool) {
  auto w = llvm::cantFail(rules::Window::from(pool.attrs, pool.attrs.ints("kernel")));
  auto in = llvm::ArrayRef(pool.operand(0)->type.dims).drop_front(2),
       out = llvm::ArrayRef(pool.result()->type.dims).drop_front(2);
  for (unsigned a = 0; a < w.rank(); ++a)
    if (w.dilations[a] != 1 || w.at(a, 0, w.kernel[a] - 1) < 0 || w.at(a, out[a] - 1, 0) >= in[a])
      return false;
  return true;
}

/// max_pool(relu(x)) -> relu(max_pool(x)), of fewer elements. Both have the same bits, and so have their gradients: where all of
/// a window is negative, which of its zeros was taken does not matter. Nothing of x's size is kept for the backward.
static bool poolBeforeRelu(Node &n, Rewriter &r) {
  Node *relu = defBy(n.operand(0), ops::relu);
  if (!relu || !r.hasOneUse(relu->result()) || r.uses(n.result(1)) || n.result()->type.count() >= relu->result()->type.count() ||
      !n.result()->type.count() || !allWindowsMeet(n))
    return false;
  Builder b = r.before(n, {relu});
  r.replace(n.result(), b.make(ops::relu, {b.make(ops::max_pool, {relu->operand(0)}, n.attrs)}));
  return true;
}

llvm::ArrayRef<Rule> zcc::activationRules() {
  static const Rule rules[] = {{&ops::mul, recogniseSilu}, {&ops::mul, recogniseGelu}, {&ops::max_pool, poolBeforeRelu}};
  return rules;
}
