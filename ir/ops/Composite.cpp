// Operators over rows that are spelled out in primitives when kernels are made: softmax and cross-entropy. Kept whole until then
// because the gradients from their results are shorter than those of the spelled-out forms.
#include "ir/ops/Rules.h"
#include <cmath>
#include <limits>

using namespace zcc;
using namespace zcc::rules;
using llvm::ArrayRef;
using Expansion = llvm::SmallVector<Value *, 2>;

static std::vector<int64_t> vec(ArrayRef<int64_t> a) { return a.vec(); }

// ---- softmax, log_softmax

static TypesOr inferSoftmax(Operands t, const Attrs &a) {
  if (auto e = sameFloats(t))
    return e;
  auto axis = axisOf(*t[0], a);
  if (!axis)
    return axis.takeError();
  return Types{*t[0]};
}

/// Calls f(row's values, row's results) for each row along `axis`, copying in and out.
template <typename F> static void forRows(const Tensor &x, Tensor &y, int64_t axis, F f) {
  AroundAxis s(x.type.dims, axis);
  std::vector<double> in(s.extent), out(s.extent);
  for (int64_t o = 0; o < s.outer; ++o)
    for (int64_t i = 0; i < s.inner; ++i) {
      for (int64_t e = 0; e < s.extent; ++e)
        in[e] = x.f[(o * s.extent + e) * s.inner + i];
      f(in, out);
      for (int64_t e = 0; e < s.extent; ++e)
        y.f[(o * s.extent + e) * s.inner + i] = out[e];
    }
}

namespace {
/// The sum of exp(v - max), and the largest, which is subtracted first as in PyTorch: not a number where it is infinite. They
/// stay apart: beside a large number the logarithm of the sum would be lost.
struct SumOfExp {
  explicit SumOfExp(ArrayRef<double> v) {
    for (double x : v)
      max = std::isnan(x) || x > max ? x : max;
    for (double x : v)
      sum += std::exp(x - max);
  }
  double max = -INFINITY, sum = 0;
};
} // namespace

static llvm::Error evalSoftmax(Node &n, ArrayRef<const Tensor *> in, ArrayRef<Tensor *> out) {
  forRows(*in[0], *out[0], n.attrs.i("axis"), [](auto &x, auto &y) {
    const SumOfExp s(x);
    for (size_t e = 0; e < x.size(); ++e)
      y[e] = std::exp(x[e] - s.max) / s.sum;
  });
  return llvm::Error::success();
}

static llvm::Error evalLogSoftmax(Node &n, ArrayRef<const Tensor *> in, ArrayRef<Tensor *> out) {
  forRows(*in[0], *out[0], n.attrs.i("axis"), [](auto &x, auto &y) {
    const SumOfExp s(x);
    for (size_t e = 0; e < x.size(); ++e)
      y[e] = (x[e] - s.max) - std::log(s.sum);
  });
  return llvm::Error::success();
}

static Expansion expandSoftmax(Builder &b, Node &n) {
  Value *x = n.operand(0);
  Attrs axes = {{"axes", vec(n.attrs.i("axis"))}};
  Value *e = b.make(ops::exp, {b.make(ops::sub, {x, b.make(ops::reduce_max, {x}, axes)})});
  return {b.make(ops::div, {e, b.make(ops::reduce_sum, {e}, axes)})};
}

static Expansion expandLogSoftmax(Builder &b, Node &n) {
  Value *x = n.operand(0);
  Attrs axes = {{"axes", vec(n.attrs.i("axis"))}};
  Value *s = b.make(ops::sub, {x, b.make(ops::reduce_max, {x}, axes)});
  Value *sum = b.make(ops::reduce_sum, {b.make(ops::exp, {s})}, axes);
  return {b.make(ops::sub, {s, b.make(ops::log, {sum})})};
}

/// Whether a select may keep some of a value, seen through casts and views.
static bool isSelected(const Value *v) {
  return llvm::any_of(v->uses, [](auto &u) {
    return u.node->op == &ops::select || ((u.node->op == &ops::cast || u.node->op->view) && isSelected(u.node->result()));
  });
}

/// y * (dy - sum(dy * y)). Rows of -inf give NaN, and models that select them away mean their gradient to be 0: there, a
/// gradient of 0 says so whatever y is.
static Values gradSoftmax(Builder &b, Node &n, ArrayRef<Value *> dy) {
  Value *y = n.result();
  if (isSelected(y)) {
    Value *zero = b.scalar(0, y->type.elem);
    y = b.make(ops::select, {b.make(ops::eq, {dy[0], zero}), zero, y});
    Value *s = b.reduceSum(b.make(ops::mul, {dy[0], y}), n.attrs.i("axis"));
    Value *d = b.make(ops::sub, {dy[0], s});
    Value *whole = b.make(ops::mul, {n.result(), d});
    return {b.make(ops::select, {b.make(ops::eq, {d, zero}), zero, whole})};
  }
  Value *s = b.reduceSum(b.make(ops::mul, {dy[0], y}), n.attrs.i("axis"));
  return {b.make(ops::mul, {y, b.make(ops::sub, {dy[0], s})})};
}

static Values gradLogSoftmax(Builder &b, Node &n, ArrayRef<Value *> dy) {
  Value *p = b.make(ops::exp, {n.result()});
  Value *s = b.reduceSum(dy[0], n.attrs.i("axis"));
  return {b.make(ops::sub, {dy[0], b.make(ops::mul, {p, s})})};
}

constexpr OpDef zcc::ops::softmax = defineOp({
    .name = "softmax",
    .summary = "exp(x) over its sum along an axis",
    .operands = {{{"x"}}},
    .attrs = {{{"axis", AttrKind::Int, nullptr}}},
    .infer = inferSoftmax,
    .expand = expandSoftmax,
    .gradFn = gradSoftmax,
    .eval = evalSoftmax,
    .precision = Precision::F32,
    .rows = Rows::Others,
});

constexpr OpDef zcc::ops::log_softmax = defineOp({
    .name = "log_softmax",
    .summary = "logarithm of the softmax along an axis",
    .operands = {{{"x"}}},
    .attrs = {{{"axis", AttrKind::Int, nullptr}}},
    .infer = inferSoftmax,
    .expand = expandLogSoftmax,
    .gradFn = gradLogSoftmax,
    .eval = evalLogSoftmax,
    .precision = Precision::F32,
    .rows = Rows::Others,
});

// ---- cross_entropy

static TypesOr inferCrossEntropy(Operands t, const Attrs &a) {
  const Type &x = *t[0], &labels = *t[1], *weight = t.size() > 2 ? t[2] : nullptr;
  if (!isFloat(x.elem) || x.ndim() != 2)
    return error("logits must be floating point [N, classes], got " + x.str());
  if (labels.elem != Elem::I64 || labels.dims != Dims{x.dims[0]})
    return error("labels must be i64[" + llvm::Twine(x.dims[0]) + "], got " + labels.str());
  if (weight && (weight->elem != x.elem || weight->dims != Dims{x.dims[1]}))
    return error("the class weights are " + weight->str() + ", logits are " + x.str());
  if (int64_t classes = a.i("classes", 0); classes < 0 || classes > x.dims[1])
    return error(llvm::Twine(classes) + " classes of logits " + x.str());
  Elem e = x.elem == Elem::F64 ? Elem::F64 : Elem::F32;
  return Types{Type(e, {x.dims[0]}), Type(e, {x.dims[0], 1})};
}

/// Columns that are classes: all, or so many.
static int64_t classesOf(const Attrs &a, const Type &logits) {
  const int64_t classes = a.i("classes", 0);
  return classes ? classes : logits.dims[1];
}

static bool isIgnored(const Attrs &a, int64_t label) { return a.i("has_ignore", 1) && label == a.i("ignore", -100); }

static llvm::Error evalCrossEntropy(Node &n, ArrayRef<const Tensor *> in, ArrayRef<Tensor *> out) {
  const Tensor &x = *in[0], &labels = *in[1], *weight = in.size() > 2 ? in[2] : nullptr;
  const int64_t rows = x.type.dims[0], columns = x.type.dims[1], classes = classesOf(n.attrs, x.type);
  for (int64_t r = 0; r < rows; ++r) {
    ArrayRef<double> row = ArrayRef(x.f).slice(r * columns, classes);
    int64_t label = labels.i[r];
    bool ignored = isIgnored(n.attrs, label);
    if (!ignored && (label < 0 || label >= classes))
      return errorAt(n.loc, "label " + llvm::Twine(label) + " is not a class of " + x.type.str());
    const SumOfExp s(row);
    out[1]->f[r] = ignored ? 0 : s.max + std::log(s.sum);
    out[0]->f[r] = ignored ? 0 : (weight ? weight->f[label] : 1) * (std::log(s.sum) - (row[label] - s.max));
  }
  return llvm::Error::success();
}

namespace {
/// What cross_entropy's body and gradient have in common, as columns [N, 1] and matrices [N, C].
struct LabelRows {
  Value *x;      ///< logits in the element of the loss; -inf where a column is no class
  Value *hit;    ///< [N, C]: whether this is the label's class
  Value *valid;  ///< [N, 1]: whether the row is not ignored; nullptr: all are
  Value *weight; ///< [N, 1]: weight of the label's class; nullptr: 1
};
} // namespace

static LabelRows labelRows(Builder &b, Node &n) {
  Value *logits = n.operand(0), *labels = n.operand(1), *weight = n.operand(2);
  const int64_t rows = logits->type.dims[0], columns = logits->type.dims[1], classes = classesOf(n.attrs, logits->type);
  Elem e = n.result()->type.elem;
  LabelRows l{b.cast(logits, e), nullptr, nullptr, nullptr};
  Value *label = b.reshape(labels, {rows, 1}), *column = counter(b, {1, columns}, /*axis=*/1);
  if (classes < columns) {
    Value *isClass = b.make(ops::lt, {column, b.scalar(double(classes), Elem::I64)});
    l.x = b.make(ops::select, {isClass, l.x, b.scalar(-std::numeric_limits<double>::infinity(), e)});
  }
  l.hit = b.make(ops::eq, {column, label});
  if (n.attrs.i("has_ignore", 1)) {
    Value *ignore = b.scalar(double(n.attrs.i("ignore", -100)), Elem::I64);
    l.valid = b.make(ops::ne, {label, ignore});
  }
  if (weight)
    l.weight = b.reduceSum(b.make(ops::select, {l.hit, b.cast(weight, e), b.scalar(0, e)}), /*axes=*/1);
  return l;
}

static Value *orZero(Builder &b, Value *valid, Value *v) {
  return valid ? b.make(ops::select, {valid, v, b.scalar(0, v->type.elem)}) : v;
}

static Expansion expandCrossEntropy(Builder &b, Node &n) {
  LabelRows l = labelRows(b, n);
  Value *max = b.make(ops::reduce_max, {l.x}, {{"axes", vec(1)}});
  Value *sum = b.reduceSum(b.make(ops::exp, {b.make(ops::sub, {l.x, max})}), /*axes=*/1);
  Value *log = b.make(ops::log, {sum}), *lse = b.make(ops::add, {log, max});
  Value *picked = b.reduceSum(b.make(ops::select, {l.hit, l.x, b.scalar(0, l.x->type.elem)}), /*axes=*/1);
  // Beside a large maximum the logarithm of the sum would be lost.
  Value *loss = b.make(ops::sub, {log, b.make(ops::sub, {picked, max})});
  if (l.weight)
    loss = b.make(ops::mul, {loss, l.weight});
  return {b.reshape(orZero(b, l.valid, loss), n.result()->type.dims), orZero(b, l.valid, lse)};
}

/// dx = (exp(x - lse) - onehot) * dy * weight of the label, 0 in ignored rows.
static Values gradCrossEntropy(Builder &b, Node &n, ArrayRef<Value *> dy) {
  LabelRows l = labelRows(b, n);
  Value *lse = n.result(1), *dx = nullptr, *dWeight = nullptr;
  Elem e = l.x->type.elem;
  Value *p = b.make(ops::exp, {b.make(ops::sub, {l.x, lse})});
  if (dy[0]) {
    Value *row = b.reshape(dy[0], lse->type.dims);
    Value *weighted = l.weight ? b.make(ops::mul, {row, l.weight}) : row;
    Value *less = b.make(ops::sub, {p, b.scalar(1, e)});
    // Zero before and behind the factor: a forward may keep what does not depend on that.
    dx = b.make(ops::mul, {orZero(b, l.valid, b.make(ops::select, {l.hit, less, p})), weighted});
    if (Value *weight = n.operand(2)) {
      Value *each = b.make(ops::mul, {b.make(ops::sub, {lse, l.x}), row});
      Value *own = b.make(ops::select, {l.hit, each, b.scalar(0, e)});
      dWeight = b.cast(orZero(b, l.valid, own), weight->type.elem);
    }
  }
  if (dy[1])
    dx = plus(b, dx, b.make(ops::mul, {p, dy[1]}));
  return {dx ? b.cast(orZero(b, l.valid, dx), n.operand(0)->type.elem) : nullptr, nullptr, dWeight};
}

constexpr OpDef zcc::ops::cross_entropy = defineOp({
    .name = "cross_entropy",
    .summary = "per-row loss -weight[label] * log_softmax(logits)[label], and the log of "
               "the sum; both 0 where ignored",
    .operands = {{{"logits"}, {"labels", OperandDef::AnyElem}, {"weight", OperandDef::Optional}}},
    .attrs = {{{"ignore", AttrKind::Int, "-100"},
               {"has_ignore", AttrKind::Int, "1"},
               {"classes", AttrKind::Int, "0"}}}, // of the first columns; 0: all are
    .results = 2,
    .infer = inferCrossEntropy,
    .expand = expandCrossEntropy,
    .gradFn = gradCrossEntropy,
    .eval = evalCrossEntropy,
    .precision = Precision::F32,
    .staysWide = true,
    .rows = Rows::PerSample,
    .rowOperands = 0b11,
    .sameOperands = ~1u,
});
