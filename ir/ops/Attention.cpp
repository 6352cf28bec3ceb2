// Scaled dot-product attention with grouped heads, additive or boolean mask and causal limit, and its gradient.
#include "ir/View.h"
#include "ir/ops/Rules.h"
#include <cmath>

using namespace zcc;
using namespace zcc::rules;
using llvm::ArrayRef;

namespace {
/// The extents of q[B,H,S,D], k[B,Hk,T,D], v[B,Hk,T,Dv].
struct Heads {
  int64_t b, h, hk, s, t, d, dv;
  int64_t group() const { return h / hk; }
  Dims scores() const { return {b, h, s, t}; }
};
} // namespace

static llvm::Expected<Heads> headsOf(const Type &q, const Type &k, const Type &v, const Type *mask) {
  if (q.ndim() != 4 || k.ndim() != 4 || v.ndim() != 4)
    return error("attention needs [batch, heads, length, width], got " + q.str() + ", " + k.str() + " and " + v.str());
  if (auto e = sameFloats({&q, &k, &v}))
    return e;
  Heads n{q.dims[0], q.dims[1], k.dims[1], q.dims[2], k.dims[2], q.dims[3], v.dims[3]};
  if (k.dims[0] != n.b || v.dims[0] != n.b || v.dims[1] != n.hk || v.dims[2] != n.t || k.dims[3] != n.d || n.hk < 1 || n.h % n.hk)
    return error("query, key and value do not fit: " + q.str() + ", " + k.str() + " and " + v.str());
  if (!mask)
    return n;
  if (mask->elem != Elem::Bool && mask->elem != q.elem)
    return error("the mask must be bool or " + elemName(q.elem) + ", got " + mask->str());
  if (broadcastDims(n.scores(), mask->dims) != n.scores())
    return error("the mask " + mask->str() + " does not broadcast to the scores " + Type(q.elem, n.scores()).str());
  return n;
}

static Type lseType(const Type &q) {
  return Type(q.elem == Elem::F64 ? Elem::F64 : Elem::F32, {q.dims[0], q.dims[1], q.dims[2], 1});
}

/// The type of a result as it lies: of those that `rows_first` has a bit for, [B,S,H,D].
static Type laid(Type t, const Attrs &a, unsigned result) {
  if (hasRowsFirst(a, result))
    std::swap(t.dims[1], t.dims[2]);
  return t;
}

static TypesOr inferAttention(Operands t, const Attrs &a) {
  auto n = headsOf(*t[0], *t[1], *t[2], t.size() > 3 ? t[3] : nullptr);
  if (!n)
    return n.takeError();
  return Types{laid(Type(t[0]->elem, {n->b, n->h, n->s, n->dv}), a, 0), lseType(*t[0])};
}

static TypesOr inferAttentionGrad(Operands t, const Attrs &a) {
  auto n = headsOf(*t[1], *t[2], *t[3], t[4]);
  if (!n)
    return n.takeError();
  Type y(t[1]->elem, {n->b, n->h, n->s, n->dv});
  if (*t[0] != y || *t[5] != y || *t[6] != lseType(*t[1]))
    return error("gradient, result and log-sum do not fit to the query: " + t[0]->str() + ", " + t[5]->str() + ", " +
                 t[6]->str());
  return Types{laid(*t[1], a, 0), laid(*t[2], a, 1), laid(*t[3], a, 2)};
}

// ---- naive loops

namespace {
/// Operands q, k, v, mask of either operator, by position.
struct Scores {
  Heads n;
  const Tensor &q, &k, &v, *mask;
  double scale;
  bool causal;
  int64_t rowsFirst; ///< a bit for each result

  Scores(const Node &node, ArrayRef<const Tensor *> in)
      : n(llvm::cantFail(headsOf(in[0]->type, in[1]->type, in[2]->type, nullptr))), q(*in[0]), k(*in[1]), v(*in[2]),
        mask(in.size() > 3 ? in[3] : nullptr), scale(node.attrs.f("scale")), causal(node.attrs.i("causal")),
        rowsFirst(node.attrs.i(kRowsFirst)) {}

  int64_t qRow(int64_t b, int64_t h, int64_t s) const { return (b * n.h + h) * n.s + s; }
  int64_t kRow(int64_t b, int64_t h, int64_t t) const { return (b * n.hk + h / n.group()) * n.t + t; }
  /// The same rows of a result.
  int64_t queryRow(unsigned result, int64_t b, int64_t h, int64_t s) const {
    return rowsFirst >> result & 1 ? (b * n.s + s) * n.h + h : qRow(b, h, s);
  }
  int64_t keyRow(unsigned result, int64_t b, int64_t h, int64_t t) const {
    return rowsFirst >> result & 1 ? (b * n.t + t) * n.hk + h / n.group() : kRow(b, h, t);
  }
  /// The scaled and masked score; -infinity where key t may not be attended.
  double at(int64_t b, int64_t h, int64_t s, int64_t t) const {
    if (causal && t > s + n.t - n.s)
      return -INFINITY;
    double x = 0;
    for (int64_t i = 0; i < n.d; ++i)
      x += q.f[qRow(b, h, s) * n.d + i] * k.f[kRow(b, h, t) * n.d + i];
    x *= scale;
    if (!mask)
      return x;
    int64_t index[4] = {b, h, s, t}, flat = 0, lead = 4 - mask->type.ndim();
    for (int64_t a = lead; a < 4; ++a) {
      int64_t d = mask->type.dims[a - lead];
      flat = flat * d + (d == 1 ? 0 : index[a]);
    }
    if (mask->isFloat())
      return x + mask->f[flat];
    return mask->i[flat] ? x : -INFINITY;
  }
  /// Calls f(b, h, s) for each row of the scores.
  template <typename F> void forRows(F f) const {
    for (int64_t b = 0; b < n.b; ++b)
      for (int64_t h = 0; h < n.h; ++h)
        for (int64_t s = 0; s < n.s; ++s)
          f(b, h, s);
  }
};
} // namespace

static llvm::Error evalAttention(Node &node, ArrayRef<const Tensor *> in, ArrayRef<Tensor *> out) {
  Scores sc(node, in);
  const Heads &n = sc.n;
  std::vector<double> p(n.t);
  std::fill(out[0]->f.begin(), out[0]->f.end(), 0.0);
  sc.forRows([&](int64_t b, int64_t h, int64_t s) {
    int64_t row = sc.qRow(b, h, s);
    double max = -INFINITY, sum = 0;
    for (int64_t t = 0; t < n.t; ++t) {
      p[t] = sc.at(b, h, s, t);
      max = std::isnan(p[t]) || p[t] > max ? p[t] : max;
    }
    out[1]->f[row] = max;
    if (max == -INFINITY)
      return;
    for (double &x : p)
      sum += x = std::exp(x - max);
    out[1]->f[row] = max + std::log(sum);
    const int64_t to = sc.queryRow(0, b, h, s);
    for (int64_t t = 0; t < n.t; ++t)
      for (int64_t j = 0; j < n.dv; ++j)
        out[0]->f[to * n.dv + j] += p[t] / sum * sc.v.f[sc.kRow(b, h, t) * n.dv + j];
  });
  return llvm::Error::success();
}

/// Below, a log-sum is no more exact enough to take probabilities from.
static constexpr double kFarLogSum = -4096;

static llvm::Error evalAttentionGrad(Node &node, ArrayRef<const Tensor *> in, ArrayRef<Tensor *> out) {
  Scores sc(node, in.slice(1, 4));
  const Heads &n = sc.n;
  const Tensor &dy = *in[0], &y = *in[5], &lse = *in[6];
  Tensor &dq = *out[0], &dk = *out[1], &dv = *out[2];
  for (Tensor *t : out)
    std::fill(t->f.begin(), t->f.end(), 0.0);
  sc.forRows([&](int64_t b, int64_t h, int64_t s) {
    int64_t row = sc.qRow(b, h, s);
    if (lse.f[row] == -INFINITY)
      return;
    double norm = lse.f[row] < kFarLogSum ? 0 : 1; // of a row that is masked as a whole by finite values
    for (int64_t t = 0; t < n.t && lse.f[row] < kFarLogSum; ++t)
      norm += std::exp(sc.at(b, h, s, t) - lse.f[row]);
    double delta = 0; // sum(p * dp)
    for (int64_t j = 0; j < n.dv; ++j)
      delta += dy.f[row * n.dv + j] * y.f[row * n.dv + j];
    const int64_t toQuery = sc.queryRow(0, b, h, s);
    for (int64_t t = 0; t < n.t; ++t) {
      int64_t key = sc.kRow(b, h, t), toKey = sc.keyRow(1, b, h, t), toValue = sc.keyRow(2, b, h, t);
      double p = std::exp(sc.at(b, h, s, t) - lse.f[row]) / norm, dp = 0;
      for (int64_t j = 0; j < n.dv; ++j) {
        dp += dy.f[row * n.dv + j] * sc.v.f[key * n.dv + j];
        dv.f[toValue * n.dv + j] += p * dy.f[row * n.dv + j];
      }
      double ds = p * (dp - delta) * sc.scale;
      for (int64_t i = 0; i < n.d; ++i) {
        dq.f[toQuery * n.d + i] += ds * sc.k.f[key * n.d + i];
        dk.f[toKey * n.d + i] += ds * sc.q.f[row * n.d + i];
      }
    }
  });
  return llvm::Error::success();
}

// ---- gradient

/// Gradient of an additive mask (a learned position bias), from the probabilities: p * (dy v^T -
/// sum(dy * y)). Nobody else needs the scores whole, so this is dropped where the mask leads to no
/// parameter.
static Value *gradMask(Builder &b, Node &n, Value *y, Value *dy) {
  Value *q = n.operand(0), *k = n.operand(1), *v = n.operand(2), *lse = n.result(1);
  Heads h = llvm::cantFail(headsOf(q->type, k->type, v->type, nullptr));
  Elem e = lse->type.elem;
  auto grouped = [&](Value *x, int64_t group) { // [B, Hk, group, rows, width]
    const Dims &d = x->type.dims;
    return h.group() == 1 ? x : b.reshape(x, {h.b, h.hk, group, d[2], d[3]});
  };
  auto product = [&](Value *left, Value *right) {
    Value *m = b.make(ops::matmul, {grouped(left, h.group()), b.swapLast(grouped(right, 1))});
    return b.cast(b.reshape(m, h.scores()), e);
  };
  Value *s = scaled(b, product(q, k), n.attrs.f("scale"));
  s = b.make(ops::add, {s, b.cast(n.operand(3), e)});
  Value *p = b.make(ops::exp, {b.make(ops::sub, {s, lse})});
  Value *none = b.make(ops::isinf, {lse}), *zero = b.scalar(0, e);
  p = b.make(ops::select, {none, zero, p});
  if (n.attrs.i("causal")) {
    Value *shift = b.scalar(double(h.t - h.s), Elem::I64);
    Value *last = b.make(ops::add, {counter(b, {h.s, 1}, /*axis=*/0), shift});
    Value *seen = b.make(ops::le, {counter(b, {1, h.t}, /*axis=*/1), last});
    p = b.make(ops::select, {seen, p, zero});
  }
  // Of rows that are masked as a whole by finite values the log-sum has lost the logarithm of the sum.
  Value *isFar = b.make(ops::and_, {b.make(ops::lt, {lse, b.scalar(kFarLogSum, e)}), b.make(ops::not_, {none})});
  p = b.make(ops::div, {p, b.make(ops::select, {isFar, b.reduceSum(p, {3}), b.scalar(1, e)})});
  Value *delta = b.reduceSum(b.cast(b.make(ops::mul, {dy, y}), e), /*axes=*/3);
  Value *ds = b.make(ops::mul, {p, b.make(ops::sub, {product(dy, v), delta})});
  return b.cast(ds, n.operand(3)->type.elem);
}

static Values gradAttention(Builder &b, Node &n, ArrayRef<Value *> dy) {
  if (dy[1])
    return {}; // the log-sum is for the gradient alone
  Attrs attrs = n.attrs;
  attrs.erase(kRowsFirst);
  auto byHeads = [&](Value *v) { return hasRowsFirst(n.attrs, 0) ? b.transpose(v, {0, 2, 1, 3}) : v; };
  Value *mask = n.operand(3), *y = byHeads(n.result(0)), *dOut = byHeads(dy[0]);
  Node *g = b.node(ops::attention_grad, {dOut, n.operand(0), n.operand(1), n.operand(2), mask, y, n.result(1)}, attrs);
  Value *dMask = mask && isFloat(mask->type.elem) ? gradMask(b, n, y, dOut) : nullptr;
  return {g->result(0), g->result(1), g->result(2), dMask};
}

/// Two per score and column of the matrices that each product goes over. Of causal ones kernels leave out what lies behind the
/// last of a block of rows.
static double flopsOf(const Node &n, const Value *q, const Value *k, double columns) {
  constexpr double kBlock = 64;
  const double rows = double(q->type.dims[2]), keys = double(k->type.dims[2]);
  double scores = keys;
  if (n.attrs.i("causal"))
    scores -= std::clamp((rows - std::min(rows, kBlock)) / 2, 0.0, keys / 2);
  return 2.0 * double(q->type.count() / q->type.dims[3]) * scores * columns;
}
static double flopsAttention(const Node &n) {
  double d = double(n.operand(0)->type.dims[3]), dv = double(n.operand(2)->type.dims[3]);
  return flopsOf(n, n.operand(0), n.operand(1), d + dv);
}
static double flopsAttentionGrad(const Node &n) {
  double d = double(n.operand(1)->type.dims[3]), dv = double(n.operand(3)->type.dims[3]);
  return flopsOf(n, n.operand(1), n.operand(2), 3 * d + 2 * dv);
}

constexpr OpDef zcc::ops::attention = defineOp({
    .name = "attention",
    .summary = "softmax(q k^T * scale + mask) v per head; saves the log of the sum; rows without a "
               "key give 0; bit i of rows_first: result i is [batch, length, heads, width]",
    .operands = {{{"q"}, {"k"}, {"v"}, {"mask", OperandDef::Flags(OperandDef::Optional | OperandDef::AnyElem)}}},
    .attrs = {{{"scale", AttrKind::Float, nullptr}, {"causal", AttrKind::Int, "0"}, {kRowsFirst, AttrKind::Int, "0"}}},
    .results = 2,
    .infer = inferAttention,
    .kernel = "attention",
    .gradFn = gradAttention,
    .eval = evalAttention,
    .library = Library::Attention,
    .precision = Precision::Compute,
    .rows = Rows::PerSample,
    .sameOperands = 1u << 3, // the mask
    .flops = flopsAttention,
});

constexpr OpDef zcc::ops::attention_grad = defineOp({
    .name = "attention_grad",
    .summary = "gradients of attention's query, key and value; rows_first as there",
    .operands = {{{"dy"},
                  {"q"},
                  {"k"},
                  {"v"},
                  {"mask", OperandDef::Flags(OperandDef::Optional | OperandDef::AnyElem)},
                  {"y"},
                  {"lse", OperandDef::AnyElem}}},
    .attrs = {{{"scale", AttrKind::Float, nullptr}, {"causal", AttrKind::Int, "0"}, {kRowsFirst, AttrKind::Int, "0"}}},
    .results = 3,
    .infer = inferAttentionGrad,
    .kernel = "attention_grad",
    .noGrad = "second derivatives are not supported",
    .eval = evalAttentionGrad,
    .library = Library::Attention,
    .precision = Precision::Compute,
    .flops = flopsAttentionGrad,
});
