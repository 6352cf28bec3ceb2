// Reductions, scans and selection along axes. Reduced axes stay, as 1.
#include "ir/ops/Rules.h"
#include "ir/ops/Window.h"
#include <cmath>
#include <numeric>

using namespace zcc;
using namespace zcc::rules;
using llvm::ArrayRef;

/// One operation per element of the operand.
static double flopsPerOperand(const Node &n) { return double(n.operand(0)->type.count()); }

// ---- reduce_*

static TypesOr inferReduce(Operands t, const Attrs &a) {
  if (t[0]->elem == Elem::Bool)
    return error(llvm::Twine("expected numbers, got ") + t[0]->str());
  std::vector<int64_t> axes = a.ints("axes");
  Type r = *t[0];
  // What is left of a shard is this rank's part of the sum.
  if (r.isPartitioned() && axes.size() != r.ndim())
    return error(llvm::Twine("a shard is summed whole, over all axes of ") + t[0]->str());
  r.addends = std::max(r.addends, r.shards);
  r.shards = 1;
  for (size_t i = 0; i < axes.size(); ++i) {
    if (axes[i] < 0 || axes[i] >= int64_t(r.ndim()) || (i && axes[i] <= axes[i - 1]))
      return error(llvm::Twine("'axes' must be axes of ") + t[0]->str() + " in rising order");
    r.dims[axes[i]] = 1;
  }
  return Types{r};
}

/// Calls f(element of the operand, element of the result) for each of the operand's.
template <typename F> static void forReduced(const Type &x, const Type &y, F f) {
  if (x.count() == 0)
    return;
  Dims at(x.ndim(), 0), strides = denseStrides(y.dims);
  for (size_t i = 0; i < strides.size(); ++i)
    strides[i] *= y.dims[i] == x.dims[i]; // those of reduced axes are 0
  int64_t e = 0;
  do {
    int64_t to = 0;
    for (size_t i = 0; i < at.size(); ++i)
      to += at[i] * strides[i];
    f(e++, to);
  } while (step(at, x.dims));
}

/// As an unsigned number, so that sums and products of integers wrap.
static double wrapping(double v) { return v; }
static uint64_t wrapping(int64_t v) { return uint64_t(v); }

template <typename F> static void reduceInto(const Tensor &x, Tensor &y, double zeroF, int64_t zeroI, F f) {
  std::fill(y.f.begin(), y.f.end(), zeroF);
  std::fill(y.i.begin(), y.i.end(), zeroI);
  forReduced(x.type, y.type, [&](int64_t from, int64_t to) {
    if (x.isFloat())
      y.f[to] = f(y.f[to], x.f[from]);
    else
      y.i[to] = f(y.i[to], x.i[from]);
  });
}

static llvm::Error evalSum(Node &, ArrayRef<const Tensor *> in, ArrayRef<Tensor *> out) {
  reduceInto(*in[0], *out[0], 0, 0, [](auto a, auto b) { return wrapping(a) + wrapping(b); });
  return llvm::Error::success();
}

static llvm::Error evalProd(Node &, ArrayRef<const Tensor *> in, ArrayRef<Tensor *> out) {
  reduceInto(*in[0], *out[0], 1, 1, [](auto a, auto b) { return wrapping(a) * wrapping(b); });
  return llvm::Error::success();
}

static int64_t leastOf(Elem e) {
  bool isUnsigned = e >= Elem::U64;
  return isUnsigned ? 0 : INT64_MIN >> (64 - 8 * elemBytes(e));
}
static int64_t mostOf(Elem e) {
  int64_t bits = 8 * elemBytes(e);
  return e == Elem::U64 ? -1 : e >= Elem::U32 ? (int64_t(1) << bits) - 1 : ~leastOf(e);
}

static llvm::Error evalMax(Node &, ArrayRef<const Tensor *> in, ArrayRef<Tensor *> out) {
  Elem e = in[0]->type.elem;
  reduceInto(*in[0], *out[0], -INFINITY, leastOf(e), [&](auto a, auto b) {
    bool isMore = e == Elem::U64 ? uint64_t(a) > uint64_t(b) : a > b;
    return isMore || a != a ? a : b;
  });
  return llvm::Error::success();
}

static llvm::Error evalMin(Node &, ArrayRef<const Tensor *> in, ArrayRef<Tensor *> out) {
  Elem e = in[0]->type.elem;
  reduceInto(*in[0], *out[0], INFINITY, mostOf(e), [&](auto a, auto b) {
    bool isLess = e == Elem::U64 ? uint64_t(a) < uint64_t(b) : a < b;
    return isLess || a != a ? a : b;
  });
  return llvm::Error::success();
}

static Values gradSum(Builder &b, Node &n, ArrayRef<Value *> dy) { return {b.expand(dy[0], n.operand(0)->type.dims)}; }

/// Equal extremes share the gradient alike.
static Values gradExtreme(Builder &b, Node &n, ArrayRef<Value *> dy) {
  Value *x = n.operand(0);
  Value *hit = b.make(ops::eq, {x, n.result()});
  Value *count = b.reduceSum(b.cast(hit, x->type.elem), n.attrs.ints("axes"));
  Value *share = b.make(ops::div, {dy[0], count});
  return {b.make(ops::select, {hit, share, b.scalar(0, x->type.elem)})};
}

/// dy times the product of the others: without zeros y / x, with one zero the product of the rest
/// there, else 0.
static Values gradProd(Builder &b, Node &n, ArrayRef<Value *> dy) {
  Value *x = n.operand(0);
  Attrs axes = {{"axes", n.attrs.ints("axes")}};
  Value *zero = b.scalar(0, x->type.elem), *one = b.scalar(1, x->type.elem);
  Value *isZero = b.make(ops::eq, {x, zero});
  Value *zeros = b.make(ops::reduce_sum, {b.cast(isZero, x->type.elem)}, axes);
  Value *nonZero = b.make(ops::select, {isZero, one, x});
  Value *product = b.make(ops::reduce_prod, {nonZero}, axes);
  Value *g = b.make(ops::mul, {dy[0], product});
  return {b.expr("isZero ? (zeros == 1 ? g : 0) : (zeros == 0 ? g / x : 0)",
                 {{"x", nonZero}, {"isZero", isZero}, {"zeros", zeros}, {"g", g}})};
}

static consteval OpDef reduction(const char *name, const char *summary, Reduction::Kind kind, EvalFn eval, GradFn grad,
                                 Precision precision) {
  OpDef d;
  d.name = name;
  d.summary = summary;
  d.operands = {{{"x"}}};
  d.attrs = {{{"axes", AttrKind::Ints, nullptr}}};
  d.infer = inferReduce;
  d.reduction = kind;
  d.gradFn = grad;
  d.eval = eval;
  d.precision = precision;
  d.flops = flopsPerOperand;
  return defineOp(d);
}

constexpr OpDef ops::reduce_sum = [] {
  OpDef d = reduction("reduce_sum", "sum over axes", Reduction::Sum, evalSum, gradSum, Precision::F32);
  d.linear = kAllOperands;
  return d;
}();
constexpr OpDef ops::reduce_max =
    reduction("reduce_max", "maximum over axes; NaN if there is one", Reduction::Max, evalMax, gradExtreme, Precision::Follow);
constexpr OpDef ops::reduce_min =
    reduction("reduce_min", "minimum over axes; NaN if there is one", Reduction::Min, evalMin, gradExtreme, Precision::Follow);
constexpr OpDef ops::reduce_prod =
    reduction("reduce_prod", "product over axes", Reduction::Product, evalProd, gradProd, Precision::F32);

// ---- order along one axis

/// Whether x[a] comes before x[b]: by value, then by position; NaN before all others, or behind them.
static bool comesFirst(const Tensor &x, int64_t a, int64_t b, bool largest, bool isNanFirst = true) {
  auto before = [&](auto va, auto vb) {
    if (va != va || vb != vb)
      return (va != va) == (vb != vb) ? a < b : (va != va) == isNanFirst;
    return va == vb ? a < b : (va > vb) == largest;
  };
  if (x.isFloat())
    return before(x.f[a], x.f[b]);
  return x.type.elem == Elem::U64 ? before(uint64_t(x.i[a]), uint64_t(x.i[b])) : before(x.i[a], x.i[b]);
}

static TypesOr inferArg(Operands t, const Attrs &a) {
  auto axis = axisOf(*t[0], a);
  if (!axis)
    return axis.takeError();
  if (t[0]->elem == Elem::Bool || t[0]->dims[*axis] == 0)
    return error(llvm::Twine("there is no largest or smallest element in ") + t[0]->str());
  Type r = t[0]->withElem(Elem::I64);
  r.dims[*axis] = 1;
  return Types{r};
}

/// `largest`: argmax.
static void evalArg(Node &n, const Tensor &x, Tensor &y, bool largest) {
  AroundAxis s(x.type.dims, n.attrs.i("axis"));
  bool last = n.attrs.i("last");
  auto equal = [&](int64_t a, int64_t b) {
    return x.isFloat() ? x.f[a] == x.f[b] || (x.f[a] != x.f[a] && x.f[b] != x.f[b]) : x.i[a] == x.i[b];
  };
  for (int64_t o = 0; o < s.outer; ++o)
    for (int64_t i = 0; i < s.inner; ++i) {
      auto at = [&](int64_t e) { return (o * s.extent + e) * s.inner + i; };
      int64_t best = 0;
      for (int64_t e = 1; e < s.extent; ++e)
        if (equal(at(e), at(best)) ? last : comesFirst(x, at(e), at(best), largest))
          best = e;
      y.i[o * s.inner + i] = best;
    }
}

static llvm::Error evalArgmax(Node &n, ArrayRef<const Tensor *> in, ArrayRef<Tensor *> out) {
  evalArg(n, *in[0], *out[0], /*largest=*/true);
  return llvm::Error::success();
}

static llvm::Error evalArgmin(Node &n, ArrayRef<const Tensor *> in, ArrayRef<Tensor *> out) {
  evalArg(n, *in[0], *out[0], /*largest=*/false);
  return llvm::Error::success();
}

static consteval OpDef indexOf(const char *name, const char *summary, EvalFn eval) {
  OpDef d;
  d.name = name;
  d.summary = summary;
  d.operands = {{{"x"}}};
  d.attrs = {{{"axis", AttrKind::Int, nullptr}, {"last", AttrKind::Int, "0"}}};
  d.infer = inferArg;
  d.kernel = name;
  d.noGrad = "an index has no gradient";
  d.eval = eval;
  d.rows = Rows::Others;
  d.flops = flopsPerOperand;
  return defineOp(d);
}

constexpr OpDef ops::argmax = indexOf("argmax", "index of the maximum along an axis, the first one unless `last`", evalArgmax);
constexpr OpDef ops::argmin = indexOf("argmin", "index of the minimum along an axis, the first one unless `last`", evalArgmin);

static TypesOr inferTopk(Operands t, const Attrs &a) {
  auto axis = axisOf(*t[0], a);
  if (!axis)
    return axis.takeError();
  int64_t k = a.i("k");
  if (k < 0 || k > t[0]->dims[*axis])
    return error("'k' is " + llvm::Twine(k) + ", axis " + llvm::Twine(*axis) + " of " + t[0]->str() + " is shorter");
  Type values = *t[0];
  values.dims[*axis] = k;
  return Types{values, values.withElem(Elem::I64)};
}

static llvm::Error evalTopk(Node &n, ArrayRef<const Tensor *> in, ArrayRef<Tensor *> out) {
  AroundAxis s(in[0]->type.dims, n.attrs.i("axis"));
  int64_t k = n.attrs.i("k");
  bool largest = n.attrs.i("largest", 1);
  std::vector<int64_t> order(s.extent);
  for (int64_t o = 0; o < s.outer; ++o)
    for (int64_t i = 0; i < s.inner; ++i) {
      auto at = [&](int64_t e) { return (o * s.extent + e) * s.inner + i; };
      std::iota(order.begin(), order.end(), 0);
      llvm::sort(order, [&](int64_t a, int64_t b) {
        return a != b && comesFirst(*in[0], at(a), at(b), largest, /*isNanFirst=*/largest);
      });
      for (int64_t e = 0; e < k; ++e) {
        int64_t to = (o * k + e) * s.inner + i;
        copyElement(*out[0], to, *in[0], at(order[e]));
        out[1]->i[to] = order[e];
      }
    }
  return llvm::Error::success();
}

static Values gradTopk(Builder &b, Node &n, ArrayRef<Value *> dy) {
  Value *zero = b.splat(0, n.operand(0)->type);
  return {b.make(ops::scatter_elements, {zero, n.result(1), dy[0]}, {{"axis", n.attrs.i("axis")}, {"reduce", "add"}})};
}

constexpr OpDef ops::topk = defineOp({
    .name = "topk",
    .summary = "the k largest or smallest elements along an axis in order, and their indices",
    .operands = {{{"x"}}},
    .attrs = {{{"axis", AttrKind::Int, nullptr}, {"k", AttrKind::Int, nullptr}, {"largest", AttrKind::Int, "1"}}},
    .results = 2,
    .infer = inferTopk,
    .kernel = "topk",
    .gradFn = gradTopk,
    .eval = evalTopk,
    .rows = Rows::Others,
    .flops = flopsPerOperand,
});

// ---- cumsum

static TypesOr inferCumsum(Operands t, const Attrs &a) {
  if (t[0]->elem == Elem::Bool)
    return error(llvm::Twine("expected numbers, got ") + t[0]->str());
  if (auto axis = axisOf(*t[0], a); !axis)
    return axis.takeError();
  return Types{*t[0]};
}

static llvm::Error evalCumsum(Node &n, ArrayRef<const Tensor *> in, ArrayRef<Tensor *> out) {
  AroundAxis s(in[0]->type.dims, n.attrs.i("axis"));
  bool exclusive = n.attrs.i("exclusive"), reverse = n.attrs.i("reverse");
  auto scan = [&](const auto &x, auto &y) {
    for (int64_t o = 0; o < s.outer; ++o)
      for (int64_t i = 0; i < s.inner; ++i) {
        decltype(wrapping(x[0])) sum = 0;
        for (int64_t e = 0; e < s.extent; ++e) {
          int64_t at = (o * s.extent + (reverse ? s.extent - 1 - e : e)) * s.inner + i;
          y[at] = exclusive ? sum : sum + x[at];
          sum += x[at];
        }
      }
  };
  if (in[0]->isFloat())
    scan(in[0]->f, out[0]->f);
  else
    scan(in[0]->i, out[0]->i);
  return llvm::Error::success();
}

static Values gradCumsum(Builder &b, Node &n, ArrayRef<Value *> dy) {
  Attrs a = n.attrs;
  a.set("reverse", int64_t(!a.i("reverse")));
  return {b.make(ops::cumsum, {dy[0]}, a)};
}

constexpr OpDef ops::cumsum = defineOp({
    .name = "cumsum",
    .summary = "sum of the elements up to each one along an axis, or from it if `reverse`",
    .operands = {{{"x"}}},
    .attrs = {{{"axis", AttrKind::Int, nullptr}, {"exclusive", AttrKind::Int, "0"}, {"reverse", AttrKind::Int, "0"}}},
    .infer = inferCumsum,
    .kernel = "cumsum",
    .gradFn = gradCumsum,
    .eval = evalCumsum,
    .precision = Precision::F32,
    .rows = Rows::Others,
});

// ---- sum_squares

static TypesOr inferSumSquares(Operands t, const Attrs &a) {
  if (t[0]->elem != Elem::F32 || t[0]->isAddend())
    return error(llvm::Twine("expected floats of 32 bits, got ") + t[0]->str());
  if (a.i("piece") < 1)
    return error("a piece has at least one element");
  Type r = t[0]->withElem(Elem::F64).withDims({1});
  r.addends = r.shards;
  r.shards = 1;
  if (t.size() > 1 && t[1] && *t[1] != r)
    return error(t[1]->str() + " is not " + r.str());
  return Types{r};
}

static llvm::Error evalSumSquares(Node &, ArrayRef<const Tensor *> in, ArrayRef<Tensor *> out) {
  double sum = in.size() > 1 && in[1] ? in[1]->f[0] : 0;
  for (double x : in[0]->f)
    sum += x * x;
  out[0]->f[0] = sum;
  return llvm::Error::success();
}

// What comes before is added to, so that a tensor that is cut between its pieces has the sum of the whole, bit by bit.
constexpr OpDef ops::sum_squares = defineOp({
    .name = "sum_squares",
    .summary = "`before`, if it is there, and the sums of the squares of each `piece` elements, added up in order",
    .operands = {{{"x"}, {"before", OperandDef::Flags(OperandDef::Optional | OperandDef::AnyElem)}}},
    .attrs = {{{"piece", AttrKind::Int, nullptr}}},
    .infer = inferSumSquares,
    .kernel = "sum_squares",
    .noGrad = "it is inserted after differentiation",
    .eval = evalSumSquares,
    .linear = 0b10,
    .precision = Precision::F32,
    .sumsShard = true,
    .flops = flopsPerOperand,
});
