// Layer, RMS and batch normalisation, spelled out in primitives when kernels are made. Each saves its statistics for the
// gradient.
#include "ir/ops/Window.h"
#include <cmath>

using namespace zcc;
using namespace zcc::rules;
using llvm::ArrayRef;
using Expansion = llvm::SmallVector<Value *, 2>;

// ---- layer_norm, rms_norm: over the axes from `axis` on

/// Type with the normalised axes as 1, after checking scale and bias.
static llvm::Expected<Type> statisticsOf(Operands t, const Attrs &a) {
  if (auto e = sameFloats(t))
    return e;
  auto axis = axisOf(*t[0], a);
  if (!axis)
    return axis.takeError();
  for (const Type *s : t.drop_front())
    if (s && broadcastDims(t[0]->dims, s->dims) != t[0]->dims)
      return error("scale or bias " + s->str() + " does not broadcast to " + t[0]->str());
  Type stat = *t[0];
  for (unsigned i = *axis; i < stat.ndim(); ++i)
    stat.dims[i] = 1;
  return stat;
}

/// Mean over axes, which stay as 1.
static Value *mean(Builder &b, Value *v, ArrayRef<int64_t> axes) {
  double n = 1;
  for (int64_t a : axes)
    n *= double(v->type.dims[a]);
  return scaled(b, b.reduceSum(v, axes), 1 / n);
}

static TypesOr inferLayerNorm(Operands t, const Attrs &a) {
  auto stat = statisticsOf(t, a);
  if (!stat)
    return stat.takeError();
  return Types{*t[0], *stat, *stat};
}

static TypesOr inferRmsNorm(Operands t, const Attrs &a) {
  auto stat = statisticsOf(t, a);
  if (!stat)
    return stat.takeError();
  return Types{*t[0], *stat};
}

/// Element of a scale or bias for flat element `e` of x.
static double broadcastAt(const Tensor &s, const Tensor &x, int64_t e) {
  int64_t at = 0, stride = 1, shift = x.type.ndim() - s.type.ndim();
  for (int i = int(x.type.ndim()) - 1; i >= shift; --i) {
    int64_t d = s.type.dims[i - shift];
    at += (d == 1 ? 0 : e % x.type.dims[i]) * stride;
    stride *= d;
    e /= x.type.dims[i];
  }
  return s.f[at];
}

/// Both norms; `centre`: subtract the mean.
static void evalNorm(Node &n, ArrayRef<const Tensor *> in, Tensor &y, Tensor *means, Tensor &rstd) {
  const Tensor &x = *in[0];
  int64_t rows = rstd.count(), cols = rows ? x.count() / rows : 0;
  const Tensor *scale = in.size() > 1 ? in[1] : nullptr, *bias = in.size() > 2 ? in[2] : nullptr;
  for (int64_t r = 0; r < rows; ++r) {
    double m = 0, v = 0;
    for (int64_t c = 0; means && c < cols; ++c)
      m += x.f[r * cols + c] / double(cols);
    for (int64_t c = 0; c < cols; ++c)
      v += (x.f[r * cols + c] - m) * (x.f[r * cols + c] - m) / double(cols);
    rstd.f[r] = 1 / std::sqrt(v + n.attrs.f("eps"));
    if (means)
      means->f[r] = m;
    for (int64_t e = r * cols; e < (r + 1) * cols; ++e)
      y.f[e] = (x.f[e] - m) * rstd.f[r] * (scale ? broadcastAt(*scale, x, e) : 1) + (bias ? broadcastAt(*bias, x, e) : 0);
  }
}

static llvm::Error evalLayerNorm(Node &n, ArrayRef<const Tensor *> in, ArrayRef<Tensor *> out) {
  evalNorm(n, in, *out[0], out[1], *out[2]);
  return llvm::Error::success();
}

static llvm::Error evalRmsNorm(Node &n, ArrayRef<const Tensor *> in, ArrayRef<Tensor *> out) {
  evalNorm(n, in, *out[0], nullptr, *out[1]);
  return llvm::Error::success();
}

/// 1 / sqrt(mean(v*v) + eps)
static Value *rstdOf(Builder &b, Value *v, ArrayRef<int64_t> axes, double eps) {
  Value *var = mean(b, b.make(ops::mul, {v, v}), axes);
  return b.make(ops::rsqrt, {b.make(ops::add, {var, b.scalar(eps, v->type.elem)})});
}

static Value *affine(Builder &b, Value *v, Value *scale, Value *bias) {
  v = scale ? b.make(ops::mul, {v, scale}) : v;
  return bias ? b.make(ops::add, {v, bias}) : v;
}

static Expansion expandLayerNorm(Builder &b, Node &n) {
  Value *x = n.operand(0);
  Dims axes = axisRange(n.attrs.i("axis"), x->type.ndim());
  Value *m = mean(b, x, axes);
  Value *centred = b.make(ops::sub, {x, m});
  Value *rstd = rstdOf(b, centred, axes, n.attrs.f("eps"));
  Value *xhat = b.make(ops::mul, {centred, rstd});
  return {affine(b, xhat, n.operand(1), n.operand(2)), m, rstd};
}

static Expansion expandRmsNorm(Builder &b, Node &n) {
  Value *x = n.operand(0);
  Value *rstd = rstdOf(b, x, axisRange(n.attrs.i("axis"), x->type.ndim()), n.attrs.f("eps"));
  return {affine(b, b.make(ops::mul, {x, rstd}), n.operand(1), nullptr), rstd};
}

/// Gradient of rstd's use as a result: d rstd / dx = -rstd^2 * xhat / n.
static Value *fromRstd(Builder &b, Value *dRstd, Value *rstd, Value *xhat, double n) {
  if (!dRstd)
    return nullptr;
  Value *c = b.make(ops::mul, {b.make(ops::mul, {rstd, rstd}), scaled(b, dRstd, -1 / n)});
  return b.make(ops::mul, {xhat, c});
}

static Values gradLayerNorm(Builder &b, Node &n, ArrayRef<Value *> dy) {
  Value *x = n.operand(0), *scale = n.operand(1), *bias = n.operand(2);
  Value *m = n.result(1), *rstd = n.result(2), *dx = nullptr, *dScale = nullptr;
  Dims axes = axisRange(n.attrs.i("axis"), x->type.ndim());
  double count = double(x->type.count()) / double(m->type.count());
  Value *xhat = b.make(ops::mul, {b.make(ops::sub, {x, m}), rstd});
  if (dy[0]) {
    Value *g = scale ? b.make(ops::mul, {dy[0], scale}) : dy[0];
    Value *along = b.make(ops::mul, {xhat, mean(b, b.make(ops::mul, {g, xhat}), axes)});
    Value *rest = b.make(ops::sub, {b.make(ops::sub, {g, mean(b, g, axes)}), along});
    dx = b.make(ops::mul, {rest, rstd});
    dScale = scale ? b.make(ops::mul, {dy[0], xhat}) : nullptr;
  }
  if (dy[1])
    dx = plus(b, dx, b.expand(scaled(b, dy[1], 1 / count), x->type.dims));
  dx = plus(b, dx, fromRstd(b, dy[2], rstd, xhat, count));
  return {dx, dScale, bias ? dy[0] : nullptr};
}

static Values gradRmsNorm(Builder &b, Node &n, ArrayRef<Value *> dy) {
  Value *x = n.operand(0), *scale = n.operand(1), *rstd = n.result(1);
  Value *dx = nullptr, *dScale = nullptr;
  Dims axes = axisRange(n.attrs.i("axis"), x->type.ndim());
  Value *xhat = b.make(ops::mul, {x, rstd});
  if (dy[0]) {
    Value *g = scale ? b.make(ops::mul, {dy[0], scale}) : dy[0];
    Value *along = b.make(ops::mul, {xhat, mean(b, b.make(ops::mul, {g, xhat}), axes)});
    dx = b.make(ops::mul, {b.make(ops::sub, {g, along}), rstd});
    dScale = scale ? b.make(ops::mul, {dy[0], xhat}) : nullptr;
  }
  double count = double(x->type.count()) / double(rstd->type.count());
  return {plus(b, dx, fromRstd(b, dy[1], rstd, xhat, count)), dScale};
}

constexpr OpDef zcc::ops::layer_norm = defineOp({
    .name = "layer_norm",
    .summary = "normalises over the axes from `axis` on; saves mean and 1/deviation",
    .operands = {{{"x"}, {"scale", OperandDef::Optional}, {"bias", OperandDef::Optional}}},
    .attrs = {{{"axis", AttrKind::Int, nullptr}, {"eps", AttrKind::Float, nullptr}}},
    .results = 3,
    .infer = inferLayerNorm,
    .expand = expandLayerNorm,
    .gradFn = gradLayerNorm,
    .eval = evalLayerNorm,
    .precision = Precision::F32,
    .rows = Rows::Leading,
});

constexpr OpDef zcc::ops::rms_norm = defineOp({
    .name = "rms_norm",
    .summary = "divides by the root mean square over the axes from `axis` on; saves its inverse",
    .operands = {{{"x"}, {"scale", OperandDef::Optional}}},
    .attrs = {{{"axis", AttrKind::Int, nullptr}, {"eps", AttrKind::Float, nullptr}}},
    .results = 2,
    .infer = inferRmsNorm,
    .expand = expandRmsNorm,
    .gradFn = gradRmsNorm,
    .eval = evalRmsNorm,
    .precision = Precision::F32,
    .rows = Rows::Leading,
});

// ---- batch_norm: over all axes but the channels, which may be in blocks (ir/ops/Window.h)

/// Whether of so many channels.
static bool isBlocked(const Type &x, const Type &channel) {
  return x.ndim() > 2 && x.dims[1] != channel.count() && x.dims[1] * x.dims.back() == channel.count();
}
/// The axes that are averaged over.
static Dims batchAxes(const Type &x, const Type &channel) { return axesBesideChannels(x, isBlocked(x, channel)); }

static TypesOr inferBatchNorm(Operands t, const Attrs &) {
  if (auto e = sameFloats(t))
    return e;
  const Type &x = *t[0];
  if (x.ndim() < 2)
    return error("expected [N, C, ...], got " + x.str());
  Type channel(x.elem, {isBlocked(x, *t[1]) ? t[1]->count() : x.dims[1]});
  for (const Type *s : t.drop_front())
    if (*s != channel)
      return error("scale and bias must be " + channel.str() + ", got " + s->str());
  return Types{x, channel, channel, channel};
}

static llvm::Error evalBatchNorm(Node &n, ArrayRef<const Tensor *> in, ArrayRef<Tensor *> out) {
  const Tensor &x = *in[0];
  AroundAxis s(x.type.dims, 1);
  const int64_t block = isBlocked(x.type, in[1]->type) ? x.type.dims.back() : 1;
  double count = double(s.outer * s.inner / block);
  for (int64_t c = 0; c < in[1]->count(); ++c) {
    auto forChannel = [&](auto f) {
      for (int64_t o = 0; o < s.outer; ++o)
        for (int64_t i = c % block; i < s.inner; i += block)
          f((o * s.extent + c / block) * s.inner + i);
    };
    double m = 0, v = 0;
    forChannel([&](int64_t e) { m += x.f[e] / count; });
    forChannel([&](int64_t e) { v += (x.f[e] - m) * (x.f[e] - m) / count; });
    double rstd = 1 / std::sqrt(v + n.attrs.f("eps"));
    forChannel([&](int64_t e) { out[0]->f[e] = (x.f[e] - m) * rstd * in[1]->f[c] + in[2]->f[c]; });
    out[1]->f[c] = m;
    out[2]->f[c] = v;
    out[3]->f[c] = rstd;
  }
  return llvm::Error::success();
}

/// A per-channel value [C] with the dims [1, C, 1...] or [1, C/B, 1..., B] that broadcast against x.
static Value *perChannel(Builder &b, Value *v, const Type &x) {
  Dims d(x.ndim(), 1);
  d[1] = x.dims[1];
  if (isBlocked(x, v->type))
    d.back() = x.dims.back();
  return b.reshape(v, d);
}

/// Of centred values and 1/deviation, which broadcasts against them.
static Value *batchNormalised(Builder &b, Value *centred, Value *rstd, Value *scale, Value *bias) {
  const Type x = centred->type;
  return affine(b, b.make(ops::mul, {centred, rstd}), perChannel(b, scale, x), perChannel(b, bias, x));
}

static Expansion expandBatchNorm(Builder &b, Node &n) {
  Value *x = n.operand(0);
  Dims axes = batchAxes(x->type, n.operand(1)->type);
  Value *m = mean(b, x, axes);
  Value *centred = b.make(ops::sub, {x, m});
  Value *var = mean(b, b.make(ops::mul, {centred, centred}), axes);
  Value *eps = b.scalar(n.attrs.f("eps"), x->type.elem);
  Value *rstd = b.make(ops::rsqrt, {b.make(ops::add, {var, eps})});
  Value *y = batchNormalised(b, centred, rstd, n.operand(1), n.operand(2));
  const Dims &c = n.result(1)->type.dims;
  return {y, b.reshape(m, c), b.reshape(var, c), b.reshape(rstd, c)};
}

static Value *againBatchNorm(Builder &b, ArrayRef<Value *> operands, ArrayRef<Value *> rest) {
  Value *x = operands[0], *centred = b.make(ops::sub, {x, perChannel(b, rest[0], x->type)});
  return batchNormalised(b, centred, perChannel(b, rest[2], x->type), operands[1], operands[2]);
}

/// dx = scale * rstd * (dy - mean(dy) - xhat * mean(dy * xhat)), with the sums that are also dbias
/// and dscale.
static Values gradBatchNorm(Builder &b, Node &n, ArrayRef<Value *> dy) {
  Value *x = n.operand(0), *dx = nullptr, *dScale = nullptr, *dBias = nullptr;
  Dims axes = batchAxes(x->type, n.operand(1)->type);
  double count = double(x->type.count()) / double(n.operand(1)->type.count());
  Value *rstd = perChannel(b, n.result(3), x->type);
  Value *centred = b.make(ops::sub, {x, perChannel(b, n.result(1), x->type)});
  Value *xhat = b.make(ops::mul, {centred, rstd});
  if (dy[0]) {
    Value *sum = b.reduceSum(dy[0], axes);
    Value *along = b.reduceSum(b.make(ops::mul, {dy[0], xhat}), axes);
    Value *less = b.make(ops::sub, {dy[0], scaled(b, sum, 1 / count)});
    less = b.make(ops::sub, {less, b.make(ops::mul, {xhat, scaled(b, along, 1 / count)})});
    Value *factor = b.make(ops::mul, {perChannel(b, n.operand(1), x->type), rstd});
    dx = b.make(ops::mul, {less, factor});
    dBias = b.reshape(sum, n.operand(2)->type.dims);
    dScale = b.reshape(along, n.operand(1)->type.dims);
  }
  if (dy[1])
    dx = plus(b, dx, b.expand(perChannel(b, scaled(b, dy[1], 1 / count), x->type), x->type.dims));
  if (dy[2])
    dx = plus(b, dx, b.make(ops::mul, {centred, perChannel(b, scaled(b, dy[2], 2 / count), x->type)}));
  Value *dRstd = dy[3] ? perChannel(b, dy[3], x->type) : nullptr;
  return {plus(b, dx, fromRstd(b, dRstd, rstd, xhat, count)), dScale, dBias};
}

constexpr OpDef zcc::ops::batch_norm = defineOp({
    .name = "batch_norm",
    .summary = "normalises each channel by the batch's mean and biased variance; saves them and "
               "1/deviation",
    .operands = {{{"x"}, {"scale"}, {"bias"}}},
    .attrs = {{{"eps", AttrKind::Float, nullptr}}},
    .results = 4,
    .infer = inferBatchNorm,
    .expand = expandBatchNorm,
    .gradFn = gradBatchNorm,
    .eval = evalBatchNorm,
    .again = againBatchNorm,
    .precision = Precision::F32,
});
