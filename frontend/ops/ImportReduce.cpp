// Reductions. Axes are an input (the upgrade table makes them one); none means all, unless the node says otherwise.
#include "frontend/Importer.h"
#include "ir/View.h"

using namespace zcc;

namespace {
namespace reduce_ops {

struct Reduction {
  Dims axes;
  Emitter::Keep keep;
  bool nothing; ///< the operand itself
};

Reduction reductionOf(NodeImport &n) {
  auto axes = n.intsOf(1, "axes").value_or(std::vector<int64_t>());
  bool noop = n.i("noop_with_empty_axes", 0) != 0;
  Reduction r;
  r.keep = n.i("keepdims", 1) ? Emitter::Keep::Axes : Emitter::Keep::Nothing;
  r.nothing = axes.empty() && noop;
  if (!r.nothing)
    r.axes = axes.empty() ? allAxes(0, n.in(0).rank()) : normalAxes(axes, n.in(0).rank());
  return r;
}

template <const OpDef &Op> void reduce(NodeImport &n) {
  Reduction r = reductionOf(n);
  Val x = n.in(0);
  if (x.elem() != Elem::Bool)
    return n.out(n.e.reduce(Op, x, r.axes, r.keep));
  // Any and all; of nothing, the least and the largest integer.
  Val y = n.e.reduce(Op, n.e.cast(x, Elem::I32), r.axes, r.keep);
  n.out(n.e(ops::gt, y, n.e.like(0, y)));
}

void mean(NodeImport &n) {
  Reduction r = reductionOf(n);
  n.out(n.e.mean(n.in(0), r.axes, r.keep));
}

void l1(NodeImport &n) {
  Reduction r = reductionOf(n);
  n.out(n.e.sum(n.e(ops::abs, n.in(0)), r.axes, r.keep));
}

void sumSquare(NodeImport &n) {
  Reduction r = reductionOf(n);
  n.out(n.e.sum(n.e.mul(n.in(0), n.in(0)), r.axes, r.keep));
}

Val rootOf(Emitter &e, const Val &s) {
  return rootOf(e, s, [&](const Val &x) { return e(ops::sqrt, x); });
}

void l2(NodeImport &n) {
  Reduction r = reductionOf(n);
  n.out(rootOf(n.e, n.e.sum(n.e.mul(n.in(0), n.in(0)), r.axes, r.keep)));
}

/// What a value is a constant multiple of, in whichever element type.
const Node *behindFactors(Value *v) {
  auto isFixed = [](const Value *f) {
    return isConstant(f) || (f->isGlobal() && static_cast<const GlobalValue *>(f)->role == GlobalValue::Const);
  };
  const Node *n = v ? behindReshapes(v)->def : nullptr;
  while (n) {
    Value *of = nullptr;
    if (n->is(ops::cast) || ((n->is(ops::div) || n->is(ops::mul)) && isFixed(n->operand(1))))
      of = n->operand(0);
    else if (n->is(ops::mul) && isFixed(n->operand(0)))
      of = n->operand(1);
    if (!of)
      break;
    n = behindReshapes(of)->def;
  }
  return n;
}

/// Whether a value is the sum of x * x, as the older exporter begins a norm, or the mean, as both begin a standard deviation.
bool isSumOfSquares(Value *v) {
  const Node *sum = behindFactors(v);
  const Node *square = sum && sum->op->reduction == zcc::Reduction::Sum ? sum->operand(0)->def : nullptr;
  return square && square->op->bilinear && square->operand(0) == square->operand(1);
}

void squareRoot(NodeImport &n) {
  Val x = n.in(0);
  n.out(n.graph.training() && !x.known && isSumOfSquares(x.value) ? rootOf(n.e, x) : n.e(ops::sqrt, x));
}

/// Whether a value is the sum of powers, as exporters begin a norm of another order.
bool isSumOfPowers(Value *v) {
  const Node *sum = behindFactors(v);
  const Node *power = sum && sum->op->reduction == zcc::Reduction::Sum ? sum->operand(0)->def : nullptr;
  return power && power->is(ops::pow);
}

void power(NodeImport &n) {
  Emitter &e = n.e;
  Val x = n.in(0), y = n.in(1);
  if (!x.isFloat() && y.isFloat()) // computed in floating point, then rounded toward zero
    return n.out(e.cast(e(ops::pow, e.cast(x, y.elem()), y), x.elem()));
  y = e.cast(y, x.elem());
  auto root = [&](const Val &base) { return e(ops::pow, base, y); };
  const bool isNorm = n.graph.training() && !x.known && y.count() == 1 && Emitter::tensorOf(y) && isSumOfPowers(x.value);
  const double order = isNorm ? Emitter::asFloats(y, "exponents")[0] : 0;
  n.out(order > 0 && order < 1 ? rootOf(e, x, root) : root(x));
}

void logSum(NodeImport &n) {
  Reduction r = reductionOf(n);
  n.out(n.e(ops::log, n.e.sum(n.in(0), r.axes, r.keep)));
}

void logSumExp(NodeImport &n) {
  Emitter &e = n.e;
  Reduction r = reductionOf(n);
  Val x = n.in(0);
  if (r.nothing)
    return n.out(x);
  Val top = e.reduce(ops::reduce_max, x, r.axes, Emitter::Keep::Axes);
  top = e(ops::stop_gradient, e.select(e(ops::isinf, top), e.like(0, top), top)); // both its gradients are 0 together
  Val y = e.add(e(ops::log, e.sum(e(ops::exp, e.sub(x, top)), r.axes)), top);
  n.out(r.keep == Emitter::Keep::Axes ? y : e.squeeze(y, r.axes));
}

/// x divided by its norm along an axis.
void lpNormalization(NodeImport &n) {
  Emitter &e = n.e;
  Val x = n.in(0);
  int64_t axis = normalAxis(n.i("axis", -1), x.rank()), p = n.i("p", 2);
  if (p != 1 && p != 2)
    invalid("attribute 'p' is " + llvm::Twine(p) + "; it may be 1 or 2");
  // The magnitude's derivative at 0 is the one from the right.
  Val size = p == 1 ? e.select(e(ops::lt, x, e.like(0, x)), e(ops::neg, x), x) : Val();
  Val norm = p == 1 ? e.sum(size, {axis}) : rootOf(e, e.sum(e.mul(x, x), {axis}));
  Val none = e(ops::eq, norm, e.like(0, norm)); // 0 stays 0
  n.out(e.div(x, e.select(none, e.like(1, norm), norm)));
}

const OnnxOp kOps[] = {
    {"ReduceSum", reduce<ops::reduce_sum>},
    {"ReduceMax", reduce<ops::reduce_max>},
    {"ReduceMin", reduce<ops::reduce_min>},
    {"ReduceProd", reduce<ops::reduce_prod>},
    {"ReduceMean", mean},
    {"ReduceL1", l1},
    {"ReduceL2", l2},
    {"Pow", power},
    {"Sqrt", squareRoot},
    {"ReduceSumSquare", sumSquare},
    {"ReduceLogSum", logSum},
    {"ReduceLogSumExp", logSumExp},
    {"LpNormalization", alongAxis<lpNormalization>},
};

} // namespace reduce_ops
} // namespace

llvm::ArrayRef<OnnxOp> zcc::reduceOps() { return reduce_ops::kOps; }

Val zcc::rootOf(Emitter &e, const Val &s, llvm::function_ref<Val(const Val &)> root) {
  Val none = e(ops::eq, s, e.like(0, s));
  return e.select(none, e.like(0, s), root(e.select(none, e.like(1, s), s)));
}
