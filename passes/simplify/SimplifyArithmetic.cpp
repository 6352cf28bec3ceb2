// Elementwise nodes: neutral elements, constants on the right, powers, casts, selections, sums of parts.
#include "passes/simplify/Simplify.h"
#include <cmath>

using namespace zcc;

/// add(c, x) -> add(x, c): other rules look for constants on the right only.
static bool constantToRight(Node &n, Rewriter &r) {
  if (!r.isConstant(n.operand(0)) || r.isConstant(n.operand(1)))
    return false;
  Value *c = n.operand(0), *x = n.operand(1);
  n.setOperand(0, x);
  n.setOperand(1, c);
  return true;
}

/// x + 0, x - 0, x * 1, x / 1, x ** 1, x and true, x or false -> x
static bool dropNeutral(Node &n, Rewriter &r) {
  bool isZero = n.is(ops::add) || n.is(ops::sub) || n.is(ops::or_);
  if (!r.isSplat(n.operand(1), isZero ? 0 : 1))
    return false;
  r.replaceShaped(n, n.operand(0));
  return true;
}

/// x / c -> x * (1 / c) where that is exact: c is a power of two.
static bool divideByPowerOfTwo(Node &n, Rewriter &r) {
  auto c = r.splat(n.operand(1));
  int exponent;
  if (!isFloat(n.result()->type.elem) || !c || *c == 0 || !std::isfinite(*c) || std::abs(std::frexp(*c, &exponent)) != 0.5 ||
      std::abs(exponent) > 14)
    return false;
  Builder b = r.before(n);
  Value *inverse = b.scalar(1 / *c, n.result()->type.elem);
  r.replaceShaped(n, b.make(ops::mul, {n.operand(0), inverse}));
  return true;
}

/// 1 / x -> reciprocal
static bool oneOver(Node &n, Rewriter &r) {
  if (!isFloat(n.result()->type.elem) || !r.isSplat(n.operand(0), 1))
    return false;
  r.replaceShaped(n, r.before(n).make(ops::reciprocal, {n.operand(1)}));
  return true;
}

/// 1 / sqrt(x) -> rsqrt(x)
static bool reciprocalOfRoot(Node &n, Rewriter &r) {
  Node *root = defBy(n.operand(0), ops::sqrt);
  if (!root)
    return false;
  r.replace(n.result(), r.before(n, {root}).make(ops::rsqrt, {root->operand(0)}));
  return true;
}

/// Powers with the exponents that have operators of their own; PyTorch computes squares and cubes
/// as products too.
static bool expandPower(Node &n, Rewriter &r) {
  auto e = r.splat(n.operand(1));
  if (!e || !isFloat(n.result()->type.elem))
    return false;
  Builder b = r.before(n);
  Value *x = n.operand(0), *y = nullptr;
  if (*e == 2)
    y = b.make(ops::mul, {x, x});
  else if (*e == 3)
    y = b.make(ops::mul, {b.make(ops::mul, {x, x}), x});
  else if (*e == 0.5)
    y = b.make(ops::sqrt, {x});
  else if (*e == -0.5)
    y = b.make(ops::rsqrt, {x});
  else if (*e == -1)
    y = b.make(ops::reciprocal, {x});
  else
    return false;
  r.replaceShaped(n, y);
  return true;
}

/// A broadcast operand whose broadcasting the operator does by itself.
static bool dropBroadcast(Node &n, Rewriter &r) {
  if (!n.op->isElementwise())
    return false;
  for (unsigned i = 0; i < n.numOperands(); ++i) {
    Node *wide = defBy(n.operand(i), ops::broadcast);
    if (!wide)
      continue;
    std::optional<Dims> dims = Dims();
    for (unsigned j = 0; j < n.numOperands() && dims; ++j)
      dims = broadcastDims(*dims, (j == i ? wide->operand(0) : n.operand(j))->type.dims);
    if (!dims || *dims != n.result()->type.dims)
      continue;
    n.setOperand(i, wide->operand(0));
    r.eraseDead(wide);
    return true;
  }
  return false;
}

/// f(broadcast(x)) -> broadcast(f(x)) for operators of one operand.
static bool broadcastLast(Node &n, Rewriter &r) {
  Node *wide = n.op->isElementwise() && n.numOperands() == 1 ? defBy(n.operand(0), ops::broadcast) : nullptr;
  if (!wide)
    return false;
  r.replaceShaped(n, r.before(n).make(*n.op, {wide->operand(0)}, n.attrs));
  return true;
}

static bool dropCast(Node &n, Rewriter &r) {
  Value *x = n.operand(0);
  Elem to = n.result()->type.elem;
  if (x->type.elem == to) {
    r.replace(n.result(), x);
    return true;
  }
  Node *inner = defBy(x, ops::cast);
  if (!inner)
    return false;
  Elem from = inner->operand(0)->type.elem;
  // There and back where nothing was lost: bool -> number -> bool, bf16 -> f32 -> bf16.
  bool isWider = isFloat16(from) && x->type.elem == Elem::F32;
  if (to != from || !(to == Elem::Bool || isWider))
    return false;
  r.replace(n.result(), inner->operand(0));
  return true;
}

/// not(not(x)), neg(neg(x))
static bool dropDouble(Node &n, Rewriter &r) {
  Node *inner = defBy(n.operand(0), *n.op);
  if (!inner)
    return false;
  r.replace(n.result(), inner->operand(0));
  return true;
}

/// A condition that is constant or negated, or equal choices.
static bool simplifySelect(Node &n, Rewriter &r) {
  Value *c = n.operand(0), *a = n.operand(1), *b = n.operand(2);
  if (auto known = r.splat(c)) {
    r.replaceShaped(n, *known != 0 ? a : b);
    return true;
  }
  if (a == b && a->type == n.result()->type) {
    r.replace(n.result(), a);
    return true;
  }
  if (Node *negated = defBy(c, ops::not_)) {
    n.setOperand(0, negated->operand(0));
    n.setOperand(1, b);
    n.setOperand(2, a);
    r.eraseDead(negated);
    return true;
  }
  return false;
}

/// x + scatter_add(zeros, idx, upd) -> scatter_add(x, idx, upd)
static bool addScatter(Node &n, Rewriter &r) {
  for (unsigned i : {0u, 1u}) {
    Node *s = defBy(n.operand(i), ops::scatter_add);
    Value *x = n.operand(1 - i);
    if (!s || !r.isSplat(s->operand(0), 0) || !r.hasOneUse(s->result()) || x->type != s->result()->type)
      continue;
    Builder b = r.before(n, {s});
    r.replace(n.result(), b.make(ops::scatter_add, {x, s->operand(1), s->operand(2)}, s->attrs));
    return true;
  }
  return false;
}

namespace {
/// A value that is zero outside [lo, lo + extent) of one axis.
struct Part {
  Value *value;
  int axis = -1;
  int64_t lo = 0, extent = 0;
};
} // namespace

static std::optional<Part> partOf(const Rewriter &r, Value *v) {
  Node *pad = defBy(v, ops::pad);
  if (!pad || !r.hasOneUse(v) || pad->attrs.f("value") != 0 || pad->attrs.s("mode", "constant") != "constant")
    return std::nullopt;
  Part p{pad->operand(0)};
  std::vector<int64_t> lo = pad->attrs.ints("lo"), hi = pad->attrs.ints("hi");
  for (size_t a = 0; a < lo.size(); ++a) {
    if (lo[a] == 0 && hi[a] == 0)
      continue;
    if (p.axis >= 0 || lo[a] < 0 || hi[a] < 0)
      return std::nullopt;
    p.axis = a;
    p.lo = lo[a];
    p.extent = p.value->type.dims[a];
  }
  return p.axis < 0 ? std::nullopt : std::optional(p);
}

static void collectAddends(const Rewriter &r, Value *v, bool isRoot, llvm::SmallVectorImpl<Value *> &out) {
  Node *n = defBy(v, ops::add);
  if (n && (isRoot || r.hasOneUse(v)) && n->operand(0)->type == n->operand(1)->type) {
    collectAddends(r, n->operand(0), false, out);
    collectAddends(r, n->operand(1), false, out);
    return;
  }
  out.push_back(v);
}

/// The sum of parts that fill an axis between them -> their concat (the gradient of a split).
static bool joinParts(Node &n, Rewriter &r) {
  Value *sum = n.result();
  if (r.hasOneUse(sum) && sum->uses.size() == 1 && sum->uses.front().node->is(ops::add))
    return false; // its user sees more of the sum
  llvm::SmallVector<Value *> addends, rest, parts;
  collectAddends(r, sum, true, addends);
  std::vector<Part> joined;
  int axis = -1;
  for (Value *a : addends) {
    auto p = partOf(r, a);
    if (p && (axis < 0 || p->axis == axis)) {
      axis = p->axis;
      joined.push_back(*p);
    } else {
      rest.push_back(a);
    }
  }
  if (joined.size() < 2)
    return false;
  llvm::stable_sort(joined, [](const Part &a, const Part &b) { return a.lo < b.lo; });
  int64_t at = 0;
  for (const Part &p : joined) {
    if (p.lo != at)
      return false;
    at += p.extent;
    parts.push_back(p.value);
  }
  if (at != sum->type.dims[axis])
    return false;
  Builder b = r.before(n);
  Value *v = b.make(ops::concat, parts, {{"axis", int64_t(axis)}});
  for (Value *a : rest)
    v = b.make(ops::add, {a, v});
  r.replace(sum, v);
  return true;
}

/// max(log(x), c) -> x == 0 ? c : max(log(x == 0 ? 1 : x), c). The same numbers, and a gradient of 0 instead of 0 / 0
/// where x is 0: PyTorch's exporter writes binary_cross_entropy with this maximum, and a sigmoid is 0 or 1 exactly
/// where training goes well.
static bool guardLogarithm(Node &n, Rewriter &r) {
  Node *log = defBy(n.operand(0), ops::log);
  auto least = r.splat(n.operand(1));
  if (!log || !least || !std::isfinite(*least))
    return false;
  Value *x = log->operand(0);
  Node *before = defBy(x, ops::select);
  if (x->type != n.result()->type || (before && r.isSplat(before->operand(1), 1)))
    return false;
  Builder b = r.before(n, {log});
  Elem elem = x->type.elem;
  Value *isZero = b.make(ops::eq, {x, b.scalar(0, elem)});
  Value *positive = b.make(ops::select, {isZero, b.scalar(1, elem), x});
  Value *bounded = b.make(ops::max, {b.make(ops::log, {positive}), n.operand(1)});
  r.replace(n.result(), b.make(ops::select, {isZero, n.operand(1), bounded}));
  return true;
}

llvm::ArrayRef<Rule> zcc::arithmeticRules() {
  static const Rule rules[] = {
      {&ops::add, constantToRight},   {&ops::mul, constantToRight},
      {&ops::max, constantToRight},   {&ops::min, constantToRight},
      {&ops::and_, constantToRight},  {&ops::or_, constantToRight},
      {&ops::add, dropNeutral},       {&ops::sub, dropNeutral},
      {&ops::mul, dropNeutral},       {&ops::div, dropNeutral},
      {&ops::pow, dropNeutral},       {&ops::and_, dropNeutral},
      {&ops::or_, dropNeutral},       {&ops::div, divideByPowerOfTwo},
      {&ops::div, oneOver},           {&ops::reciprocal, reciprocalOfRoot},
      {&ops::pow, expandPower},       {nullptr, dropBroadcast},
      {nullptr, broadcastLast},       {&ops::cast, dropCast},
      {&ops::not_, dropDouble},       {&ops::neg, dropDouble},
      {&ops::select, simplifySelect}, {&ops::add, addScatter},
      {&ops::add, joinParts},         {&ops::max, guardLogarithm},
  };
  return rules;
}
