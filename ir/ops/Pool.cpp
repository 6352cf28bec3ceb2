// Maximum and average pooling and their gradients.
#include "ir/ops/Window.h"
#include <cmath>

using namespace zcc;
using namespace zcc::rules;
using llvm::ArrayRef;

namespace {
/// A pooling of [N, C, in...] to [N, C, out...].
struct Pool {
  Window window;
  int64_t planes; ///< N*C
  Dims in, out;
  Dims result(ArrayRef<int64_t> x) const {
    Dims d = {x[0], x[1]};
    d.append(out.begin(), out.end());
    return d;
  }
};
} // namespace

static llvm::Expected<Pool> poolOf(ArrayRef<int64_t> x, const Attrs &a) {
  std::vector<int64_t> kernel = a.ints("kernel");
  if (x.size() < 3 || kernel.size() != x.size() - 2)
    return error("pooling needs [N, C, spatial...] and one 'kernel' value per spatial axis");
  if (*llvm::min_element(x) < 0)
    return error("attribute 'dims' must not be negative");
  auto window = Window::from(a, kernel);
  if (!window)
    return window.takeError();
  Pool p{std::move(*window), x[0] * x[1], Dims(x.drop_front(2)), {}};
  auto out = p.window.outputs(p.in);
  if (!out)
    return out.takeError();
  p.out = *out;
  return p;
}

/// The type of a gradient: attribute `dims`, after checking that pooling it gives `dy`'s.
static llvm::Expected<Type> inputOf(const Type &dy, const Attrs &a) {
  std::vector<int64_t> dims = a.ints("dims");
  auto p = poolOf(dims, a);
  if (!p)
    return p.takeError();
  if (dy.dims != p->result(dims))
    return error("pooling these dims gives " + Type(dy.elem, p->result(dims)).str() + ", operand 'dy' is " + dy.str());
  return Type(dy.elem, dims);
}

// ---- max_pool

/// What holds the position in a window of a pooling. A byte does for windows of fewer than
/// 256 taps: it is kept for the backward for nearly the whole step.
static Elem tapElem(const Pool &p) { return elementCount(p.window.kernel) < 256 ? Elem::U8 : Elem::I32; }

static TypesOr inferMaxPool(Operands t, const Attrs &a) {
  if (auto e = sameFloats(t))
    return e;
  auto p = poolOf(t[0]->dims, a);
  if (!p)
    return p.takeError();
  Dims d = p->result(t[0]->dims);
  return Types{Type(t[0]->elem, d), Type(tapElem(*p), d)};
}

/// A window wholly in the padding gives -infinity and no tap, so that no gradient passes.
static llvm::Error evalMaxPool(Node &n, ArrayRef<const Tensor *> in, ArrayRef<Tensor *> out) {
  const Tensor &x = *in[0];
  Tensor &y = *out[0], &tap = *out[1];
  Pool p = llvm::cantFail(poolOf(x.type.dims, n.attrs));
  const int64_t none = noTap(tap.type.elem);
  std::fill(y.f.begin(), y.f.end(), -INFINITY);
  std::fill(tap.i.begin(), tap.i.end(), none);
  int64_t inPlane = elementCount(p.in), outPlane = elementCount(p.out);
  forTaps(p.window, p.out, p.in, [&](int64_t o, int64_t k, int64_t i) {
    for (int64_t plane = 0; plane < p.planes; ++plane) {
      double v = x.f[plane * inPlane + i];
      int64_t to = plane * outPlane + o;
      if (tap.i[to] != none && !(v > y.f[to]) && !std::isnan(v))
        continue;
      y.f[to] = v;
      tap.i[to] = k;
    }
  });
  return llvm::Error::success();
}

static Values gradMaxPool(Builder &b, Node &n, ArrayRef<Value *> dy) {
  if (!dy[0])
    return {nullptr};
  return {b.make(ops::max_pool_grad, {dy[0], n.result(1)}, withDims(n.attrs, n.operand(0)->type))};
}

static TypesOr inferMaxPoolGrad(Operands t, const Attrs &a) {
  auto type = inputOf(*t[0], a);
  if (!type)
    return type.takeError();
  const Elem taps = tapElem(llvm::cantFail(poolOf(type->dims, a)));
  if (!isFloat(t[0]->elem) || t[1]->elem != taps || t[0]->dims != t[1]->dims)
    return error("the gradient and its " + elemName(taps) + " taps differ: " + both(*t[0], *t[1]));
  return Types{*type};
}

static llvm::Error evalMaxPoolGrad(Node &n, ArrayRef<const Tensor *> in, ArrayRef<Tensor *> out) {
  const Tensor &dy = *in[0], &tap = *in[1];
  Tensor &dx = *out[0];
  Pool p = llvm::cantFail(poolOf(dx.type.dims, n.attrs));
  std::fill(dx.f.begin(), dx.f.end(), 0.0);
  int64_t inPlane = elementCount(p.in), outPlane = elementCount(p.out);
  forTaps(p.window, p.out, p.in, [&](int64_t o, int64_t k, int64_t i) {
    for (int64_t plane = 0; plane < p.planes; ++plane)
      if (tap.i[plane * outPlane + o] == k)
        dx.f[plane * inPlane + i] += dy.f[plane * outPlane + o];
  });
  return llvm::Error::success();
}

constexpr OpDef zcc::ops::max_pool = defineOp({
    .name = "max_pool",
    .summary = "maximum over windows; tap: its position in the window, row by row",
    .operands = {{{"x"}}},
    .attrs = {{{"kernel", AttrKind::Ints, nullptr},
               {"strides", AttrKind::Ints, "1"},
               {"pads_lo", AttrKind::Ints, "0"},
               {"pads_hi", AttrKind::Ints, "0"},
               {"dilations", AttrKind::Ints, "1"}}},
    .results = 2,
    .infer = inferMaxPool,
    .kernel = "max_pool",
    .gradFn = gradMaxPool,
    .eval = evalMaxPool,
    .rows = Rows::PerSample,
});

constexpr OpDef zcc::ops::max_pool_grad = defineOp({
    .name = "max_pool_grad",
    .summary = "each gradient added at the tap that max_pool chose; dims: those of the input",
    .operands = {{{"dy"}, {"tap", OperandDef::AnyElem}}},
    .attrs = {{{"dims", AttrKind::Ints, nullptr},
               {"kernel", AttrKind::Ints, nullptr},
               {"strides", AttrKind::Ints, "1"},
               {"pads_lo", AttrKind::Ints, "0"},
               {"pads_hi", AttrKind::Ints, "0"},
               {"dilations", AttrKind::Ints, "1"}}},
    .infer = inferMaxPoolGrad,
    .kernel = "max_pool_grad",
    .noGrad = "second derivatives are not supported",
    .eval = evalMaxPoolGrad,
});

// ---- avg_pool

static TypesOr inferAvgPool(Operands t, const Attrs &a) {
  if (auto e = sameFloats(t))
    return e;
  auto p = poolOf(t[0]->dims, a);
  if (!p)
    return p.takeError();
  return Types{Type(t[0]->elem, p->result(t[0]->dims))};
}

static TypesOr inferAvgPoolGrad(Operands t, const Attrs &a) {
  if (auto e = sameFloats(t))
    return e;
  auto type = inputOf(*t[0], a);
  if (!type)
    return type.takeError();
  return Types{*type};
}

/// For each output position what its sum is divided by: the taps inside the input, or all with
/// count_pad.
static std::vector<double> divisors(const Pool &p, const Attrs &a) {
  bool all = a.i("count_pad");
  std::vector<double> n(elementCount(p.out), all ? double(elementCount(p.window.kernel)) : 0.0);
  if (!all)
    forTaps(p.window, p.out, p.in, [&](int64_t o, int64_t, int64_t) { n[o] += 1; });
  return n;
}

static llvm::Error evalAvgPool(Node &n, ArrayRef<const Tensor *> in, ArrayRef<Tensor *> out) {
  const Tensor &x = *in[0];
  Tensor &y = *out[0];
  Pool p = llvm::cantFail(poolOf(x.type.dims, n.attrs));
  std::vector<double> div = divisors(p, n.attrs);
  std::fill(y.f.begin(), y.f.end(), 0.0);
  int64_t inPlane = elementCount(p.in), outPlane = elementCount(p.out);
  forTaps(p.window, p.out, p.in, [&](int64_t o, int64_t, int64_t i) {
    for (int64_t plane = 0; plane < p.planes; ++plane)
      y.f[plane * outPlane + o] += x.f[plane * inPlane + i];
  });
  for (int64_t e = 0; e < y.count(); ++e)
    y.f[e] /= div[e % outPlane];
  return llvm::Error::success();
}

static llvm::Error evalAvgPoolGrad(Node &n, ArrayRef<const Tensor *> in, ArrayRef<Tensor *> out) {
  const Tensor &dy = *in[0];
  Tensor &dx = *out[0];
  Pool p = llvm::cantFail(poolOf(dx.type.dims, n.attrs));
  std::vector<double> div = divisors(p, n.attrs);
  std::fill(dx.f.begin(), dx.f.end(), 0.0);
  int64_t inPlane = elementCount(p.in), outPlane = elementCount(p.out);
  forTaps(p.window, p.out, p.in, [&](int64_t o, int64_t, int64_t i) {
    for (int64_t plane = 0; plane < p.planes; ++plane)
      dx.f[plane * inPlane + i] += dy.f[plane * outPlane + o] / div[o];
  });
  return llvm::Error::success();
}

static Values gradAvgPool(Builder &b, Node &n, ArrayRef<Value *> dy) {
  return {b.make(ops::avg_pool_grad, {dy[0]}, withDims(n.attrs, n.operand(0)->type))};
}

static Values gradAvgPoolGrad(Builder &b, Node &n, ArrayRef<Value *> dy) {
  Attrs a = n.attrs;
  a.erase("dims");
  return {b.make(ops::avg_pool, {dy[0]}, a)};
}

constexpr OpDef zcc::ops::avg_pool = defineOp({
    .name = "avg_pool",
    .summary = "mean over windows; count_pad: the padding counts as zeros",
    .operands = {{{"x"}}},
    .attrs = {{{"kernel", AttrKind::Ints, nullptr},
               {"strides", AttrKind::Ints, "1"},
               {"pads_lo", AttrKind::Ints, "0"},
               {"pads_hi", AttrKind::Ints, "0"},
               {"count_pad", AttrKind::Int, "0"}}},
    .infer = inferAvgPool,
    .kernel = "avg_pool",
    .gradFn = gradAvgPool,
    .eval = evalAvgPool,
    .rows = Rows::PerSample,
});

constexpr OpDef zcc::ops::avg_pool_grad = defineOp({
    .name = "avg_pool_grad",
    .summary = "gradient of avg_pool; dims: those of the input",
    .operands = {{{"dy"}}},
    .attrs = {{{"dims", AttrKind::Ints, nullptr},
               {"kernel", AttrKind::Ints, nullptr},
               {"strides", AttrKind::Ints, "1"},
               {"pads_lo", AttrKind::Ints, "0"},
               {"pads_hi", AttrKind::Ints, "0"},
               {"count_pad", AttrKind::Int, "0"}}},
    .infer = inferAvgPoolGrad,
    .kernel = "avg_pool_grad",
    .gradFn = gradAvgPoolGrad,
    .eval = evalAvgPoolGrad,
});
