// Matrix products and convolutions: library kernels with gradients in terms of each other.
#include "ir/Epilogue.h"
#include "ir/ops/Window.h"

using namespace zcc;
using namespace zcc::rules;
using llvm::ArrayRef;

// ---- matmul

static TypesOr inferMatmul(Operands t, const Attrs &) {
  const Type &a = *t[0], &b = *t[1];
  if (auto e = sameFloats(t))
    return e;
  if (a.ndim() < 2 || b.ndim() < 2)
    return error("operands need two axes at least: " + both(a, b));
  if (a.dims.back() != b.dims[b.ndim() - 2])
    return error("inner dimensions differ, " + llvm::Twine(a.dims.back()) + " and " + llvm::Twine(b.dims[b.ndim() - 2]));
  auto dims = broadcastDims(ArrayRef(a.dims).drop_back(2), ArrayRef(b.dims).drop_back(2));
  if (!dims)
    return error("batch dimensions do not broadcast: " + both(a, b));
  dims->push_back(a.dims[a.ndim() - 2]);
  dims->push_back(b.dims.back());
  return Types{Type(a.elem, *dims)};
}

static llvm::Error evalMatmul(Node &n, ArrayRef<const Tensor *> in, ArrayRef<Tensor *> out) {
  const Tensor &a = *in[0], &b = *in[1];
  Tensor &y = *out[0];
  unsigned nd = y.type.ndim();
  int64_t m = y.type.dims[nd - 2], cols = y.type.dims[nd - 1], inner = a.type.dims.back();
  Dims batch(y.type.dims.begin(), y.type.dims.end() - 2), at(nd - 2, 0);
  auto offset = [&](const Tensor &t, int64_t matrix) { // of the matrix at `at`, broadcast
    int64_t o = 0, lead = t.type.ndim() - 2;
    for (int64_t i = 0; i < lead; ++i) {
      int64_t d = t.type.dims[i];
      o = o * d + (d == 1 ? 0 : at[batch.size() - lead + i]);
    }
    return o * matrix;
  };
  if (y.count() == 0)
    return llvm::Error::success();
  int64_t yo = 0;
  do {
    int64_t ao = offset(a, m * inner), bo = offset(b, inner * cols);
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < cols; ++j) {
        double s = 0;
        for (int64_t k = 0; k < inner; ++k)
          s += a.f[ao + i * inner + k] * b.f[bo + k * cols + j];
        y.f[yo++] = s;
      }
  } while (step(at, batch));
  return llvm::Error::success();
}

/// Whether all axes but the last two are 1 or absent.
static bool isOneMatrix(const Type &t) { return elementCount(ArrayRef(t.dims).drop_back(2)) == 1; }

static Values gradMatmul(Builder &b, Node &n, ArrayRef<Value *> dy) {
  Value *x = n.operand(firstFactor(n)), *w = n.operand(firstFactor(n) + 1), *g = dy[0], *dw;
  // w's first: it is x's last use.
  if (isOneMatrix(w->type) && x->type.ndim() > 2) {
    // One product over all rows at once; a batched product would be summed over the batch.
    auto asRows = [&](Value *v) {
      ArrayRef<int64_t> d = v->type.dims;
      return b.reshape(v, {elementCount(d.drop_back()), d.back()});
    };
    dw = b.make(ops::matmul, {swapped(b, asRows(x)), asRows(g)});
    dw = b.reshape(dw, w->type.dims);
  } else {
    dw = b.make(ops::matmul, {swapped(b, x), g});
  }
  return {b.make(ops::matmul, {g, swapped(b, w)}), dw};
}

static double flopsMatmul(const Node &n) {
  return 2.0 * double(n.result()->type.count()) * double(n.operand(0)->type.dims.back());
}

constexpr OpDef zcc::ops::matmul = defineOp({
    .name = "matmul",
    .summary = "matrix product over the last two axes; the others broadcast",
    .operands = {{{"a"}, {"b"}}},
    .infer = inferMatmul,
    .kernel = "matmul",
    .gradFn = gradMatmul,
    .eval = evalMatmul,
    .packs = 0b10,
    .library = Library::Product,
    .precision = Precision::Compute,
    .rows = Rows::Product,
    .flops = flopsMatmul,
});

// ---- add_matmul

static TypesOr inferAddMatmul(Operands t, const Attrs &a) {
  auto product = inferMatmul(t.drop_front(), a);
  if (!product)
    return product;
  if (*t[0] != (*product)[0])
    return error("the sum so far is " + t[0]->str() + ", the product " + (*product)[0].str());
  return product;
}

static llvm::Error evalAddMatmul(Node &n, ArrayRef<const Tensor *> in, ArrayRef<Tensor *> out) {
  if (auto e = evalMatmul(n, in.drop_front(), out))
    return e;
  for (int64_t i = 0; i < out[0]->count(); ++i)
    out[0]->f[i] += in[0]->f[i];
  return llvm::Error::success();
}

static Values gradAddMatmul(Builder &b, Node &n, ArrayRef<Value *> dy) {
  Values factors = gradMatmul(b, n, dy);
  return {dy[0], factors[0], factors[1]};
}

static double flopsAddMatmul(const Node &n) {
  return 2.0 * double(n.result()->type.count()) * double(n.operand(1)->type.dims.back());
}

constexpr OpDef zcc::ops::add_matmul = defineOp({
    .name = "add_matmul",
    .summary = "x + matmul(a, b), in x's memory",
    .operands = {{{"x"}, {"a"}, {"b"}}},
    .infer = inferAddMatmul,
    .kernel = "add_matmul",
    .gradFn = gradAddMatmul,
    .eval = evalAddMatmul,
    .inPlace = 1,
    .library = Library::Product,
    .precision = Precision::Compute,
    .flops = flopsAddMatmul,
});

// ---- fused_matmul

static TypesOr inferFusedMatmul(Operands, const Attrs &a) {
  return error(llvm::Twine("the results of 'fused_matmul' are those of its kernel '@") + a.s("kernel") + "'");
}

static double flopsFusedMatmul(const Node &n) {
  return 2.0 * double(productType(n).count()) * double(n.operand(0)->type.dims.back());
}

constexpr OpDef zcc::ops::fused_matmul = defineOp({
    .name = "fused_matmul",
    .summary = "a kernel of the module over matmul(a, b), its argument `product`, and x: bias, activation, residual",
    .operands = {{{"a"}, {"b"}, {"x", OperandDef::Flags(OperandDef::Variadic | OperandDef::AnyElem)}}},
    .attrs = {{{"kernel", AttrKind::Str, nullptr}, {"product", AttrKind::Int, "0"}}},
    .results = -1,
    .infer = inferFusedMatmul,
    .kernel = "matmul",
    .noGrad = "it is made after differentiation",
    .packs = 0b10,
    .library = Library::Product,
    .feedsKernel = true,
    .flops = flopsFusedMatmul,
});

// ---- conv

namespace {
/// A convolution y = x * w seen from any of its three operators.
struct Conv {
  Window window;
  int64_t batch, channels, filters, group;
  Dims in, out;           // spatial
  int64_t xBlock, yBlock; // channels side by side
  Dims result() const {
    Dims d = {batch, filters};
    d.append(out.begin(), out.end());
    return blocked(d, yBlock);
  }
};
} // namespace

/// From x's and w's dims, and the blocks in which y has its channels.
static llvm::Expected<Conv> convOf(ArrayRef<int64_t> given, ArrayRef<int64_t> w, const Attrs &a, int64_t yBlock) {
  const int64_t xBlock = blockOf(given, w.size());
  const Dims x = xBlock > 1 ? unblocked(given) : Dims(given);
  if (x.size() < 3 || x.size() != w.size())
    return error("convolution needs [N, C, spatial...] and [M, C/group, kernel...], got " + llvm::Twine(x.size()) + " and " +
                 llvm::Twine(w.size()) + " axes");
  auto window = Window::from(a, w.drop_front(2));
  if (!window)
    return window.takeError();
  Conv c{std::move(*window), x[0], x[1], w[0], a.i("group", 1), Dims(ArrayRef(x).drop_front(2)), {}, xBlock, yBlock};
  if (*llvm::min_element(x) < 0 || *llvm::min_element(w) < 0)
    return error("attribute 'dims' must not be negative");
  if (c.group < 1 || c.group > c.filters || c.channels != w[1] * c.group || c.filters % c.group)
    return error("channels do not fit: the input has " + llvm::Twine(c.channels) + ", the weight is for " + llvm::Twine(w[1]) +
                 " per group and " + llvm::Twine(c.filters) + " filters in " + llvm::Twine(c.group) + " groups");
  for (auto [block, channels] : {std::pair(xBlock, c.channels), std::pair(yBlock, c.filters)})
    if ((block != 1 && block != 8 && block != 16) || channels % block)
      return error("blocks have 8 or 16 of all channels, not " + llvm::Twine(block) + " of " + llvm::Twine(channels));
  auto out = c.window.outputs(c.in);
  if (!out)
    return out.takeError();
  c.out = *out;
  return c;
}

static TypesOr inferConv(Operands t, const Attrs &a) {
  if (auto e = sameFloats(t))
    return e;
  auto c = convOf(t[0]->dims, t[1]->dims, a, a.i("block", 1));
  if (!c)
    return c.takeError();
  if (t.size() > 2 && t[2] && t[2]->dims != Dims{c->filters})
    return error("the bias is " + t[2]->str() + ", the convolution has " + llvm::Twine(c->filters) + " filters");
  return Types{Type(t[0]->elem, c->result())};
}

static TypesOr inferConvGradInput(Operands t, const Attrs &a) {
  if (auto e = sameFloats(t))
    return e;
  std::vector<int64_t> dims = a.ints("dims");
  auto c = convOf(dims, t[1]->dims, a, blockOf(t[0]->dims, t[1]->ndim()));
  if (!c)
    return c.takeError();
  if (t[0]->dims != c->result())
    return error("a convolution of these dims gives " + Type(t[0]->elem, c->result()).str() + ", operand 'dy' is " + t[0]->str());
  return Types{Type(t[0]->elem, dims)};
}

static TypesOr inferConvGradWeight(Operands t, const Attrs &a) {
  if (auto e = sameFloats(t))
    return e;
  std::vector<int64_t> dims = a.ints("dims");
  auto c = convOf(t[0]->dims, dims, a, blockOf(t[1]->dims, dims.size()));
  if (!c)
    return c.takeError();
  if (t[1]->dims != c->result())
    return error("a convolution of these dims gives " + Type(t[0]->elem, c->result()).str() + ", operand 'dy' is " + t[1]->str());
  return Types{Type(t[0]->elem, dims)};
}

/// Calls f(element of x, element of w, element of y) for each product of the convolution.
template <typename F> static void forProducts(const Conv &c, F f) {
  int64_t xPlane = elementCount(c.in), yPlane = elementCount(c.out);
  int64_t taps = elementCount(c.window.kernel);
  int64_t inPer = c.channels / c.group, outPer = c.filters / c.group;
  // An element of a channel, of all images', in blocks of channels.
  auto at = [](int64_t channel, int64_t block, int64_t plane, int64_t pixel) {
    return (channel / block * plane + pixel) * block + channel % block;
  };
  forTaps(c.window, c.out, c.in, [&](int64_t o, int64_t k, int64_t i) {
    for (int64_t b = 0; b < c.batch; ++b)
      for (int64_t m = 0; m < c.filters; ++m)
        for (int64_t ch = 0; ch < inPer; ++ch)
          f(at(b * c.channels + m / outPer * inPer + ch, c.xBlock, xPlane, i), (m * inPer + ch) * taps + k,
            at(b * c.filters + m, c.yBlock, yPlane, o));
  });
}

static llvm::Error evalConv(Node &n, ArrayRef<const Tensor *> in, ArrayRef<Tensor *> out) {
  const Tensor &x = *in[0], &w = *in[1];
  Tensor &y = *out[0];
  Conv c = llvm::cantFail(convOf(x.type.dims, w.type.dims, n.attrs, n.attrs.i("block", 1)));
  std::fill(y.f.begin(), y.f.end(), 0.0);
  const int64_t plane = elementCount(c.out) * c.yBlock;
  if (in.size() > 2 && in[2])
    for (int64_t e = 0; e < y.count(); ++e)
      y.f[e] = in[2]->f[e / plane * c.yBlock % c.filters + e % c.yBlock];
  forProducts(c, [&](int64_t i, int64_t k, int64_t o) { y.f[o] += x.f[i] * w.f[k]; });
  return llvm::Error::success();
}

static llvm::Error evalConvGradInput(Node &n, ArrayRef<const Tensor *> in, ArrayRef<Tensor *> out) {
  const Tensor &dy = *in[0], &w = *in[1];
  Tensor &dx = *out[0];
  Conv c = llvm::cantFail(convOf(dx.type.dims, w.type.dims, n.attrs, blockOf(dy.type.dims, w.type.ndim())));
  std::fill(dx.f.begin(), dx.f.end(), 0.0);
  forProducts(c, [&](int64_t i, int64_t k, int64_t o) { dx.f[i] += dy.f[o] * w.f[k]; });
  return llvm::Error::success();
}

static llvm::Error evalConvGradWeight(Node &n, ArrayRef<const Tensor *> in, ArrayRef<Tensor *> out) {
  const Tensor &x = *in[0], &dy = *in[1];
  Tensor &dw = *out[0];
  Conv c = llvm::cantFail(convOf(x.type.dims, dw.type.dims, n.attrs, blockOf(dy.type.dims, dw.type.ndim())));
  std::fill(dw.f.begin(), dw.f.end(), 0.0);
  forProducts(c, [&](int64_t i, int64_t k, int64_t o) { dw.f[k] += x.f[i] * dy.f[o]; });
  return llvm::Error::success();
}

/// Attributes of another of the three operators: of a gradient with the dims of `t`; of a convolution that gives what lies as
/// `t`.
static Attrs ofGradient(Attrs a, const Type &t) {
  a.erase("block");
  return withDims(std::move(a), t);
}
static Attrs ofConvolution(Attrs a, const Type &t, const Type &w) {
  a.erase("dims");
  if (const int64_t block = blockOf(t.dims, w.ndim()); block > 1)
    a.set("block", block);
  return a;
}

static Values gradConv(Builder &b, Node &n, ArrayRef<Value *> dy) {
  Value *x = n.operand(0), *w = n.operand(1), *g = dy[0], *dbias = nullptr;
  if (Value *bias = n.operand(2)) {
    dbias = b.reshape(b.reduceSum(g, axesBesideChannels(g->type, g->type.ndim() > w->type.ndim())), bias->type.dims);
  }
  Value *dw = b.make(ops::conv_grad_weight, {x, g}, ofGradient(n.attrs, w->type));
  return {b.make(ops::conv_grad_input, {g, w}, ofGradient(n.attrs, x->type)), dw, dbias};
}

// The three are one trilinear form <conv(x, w), dy>, so each gradient is one of the other two.
static Values gradConvGradInput(Builder &b, Node &n, ArrayRef<Value *> dy) {
  Value *g = dy[0], *y = n.operand(0), *w = n.operand(1);
  return {b.make(ops::conv, {g, w}, ofConvolution(n.attrs, y->type, w->type)),
          b.make(ops::conv_grad_weight, {g, y}, ofGradient(n.attrs, w->type))};
}

static Values gradConvGradWeight(Builder &b, Node &n, ArrayRef<Value *> dy) {
  Value *g = dy[0], *x = n.operand(0), *y = n.operand(1);
  return {b.make(ops::conv_grad_input, {y, g}, ofGradient(n.attrs, x->type)),
          b.make(ops::conv, {x, g}, ofConvolution(n.attrs, y->type, g->type))};
}

/// Two per filter weight and output position, with dims of y and w.
static double convFlops(const Type &y, const Type &w) { return 2.0 * double(y.count()) * double(w.count() / w.dims[0]); }
static double flopsConv(const Node &n) { return convFlops(n.result()->type, n.operand(1)->type); }
static double flopsConvGradInput(const Node &n) { return convFlops(n.operand(0)->type, n.operand(1)->type); }
static double flopsConvGradWeight(const Node &n) { return convFlops(n.operand(1)->type, n.result()->type); }

constexpr OpDef zcc::ops::conv = defineOp({
    .name = "conv",
    .summary = "convolution of [N, C, spatial...] with [M, C/group, kernel...]; [N, C/B, spatial..., B] has blocks of channels, "
               "the result those of `block`",
    .operands = {{{"x"}, {"w"}, {"bias", OperandDef::Optional}}},
    .attrs = {{{"strides", AttrKind::Ints, "1"},
               {"pads_lo", AttrKind::Ints, "0"},
               {"pads_hi", AttrKind::Ints, "0"},
               {"dilations", AttrKind::Ints, "1"},
               {"group", AttrKind::Int, "1"},
               {"block", AttrKind::Int, "1"}}},
    .infer = inferConv,
    .kernel = "conv",
    .gradFn = gradConv,
    .eval = evalConv,
    .packs = 0b10,
    .library = Library::Convolution,
    .precision = Precision::Compute,
    .rows = Rows::PerSample,
    .rowOperands = 1,
    .sameOperands = ~1u,
    .flops = flopsConv,
});

constexpr OpDef zcc::ops::conv_grad_input = defineOp({
    .name = "conv_grad_input",
    .summary = "gradient of conv's input, also the transposed convolution; dims: those of the input",
    .operands = {{{"dy"}, {"w"}}},
    .attrs = {{{"dims", AttrKind::Ints, nullptr},
               {"strides", AttrKind::Ints, "1"},
               {"pads_lo", AttrKind::Ints, "0"},
               {"pads_hi", AttrKind::Ints, "0"},
               {"dilations", AttrKind::Ints, "1"},
               {"group", AttrKind::Int, "1"}}},
    .infer = inferConvGradInput,
    .kernel = "conv_grad_input",
    .gradFn = gradConvGradInput,
    .eval = evalConvGradInput,
    .packs = 0b10,
    .library = Library::Convolution,
    .precision = Precision::Compute,
    .rows = Rows::PerSample, // also the transposed one
    .rowOperands = 1,
    .sameOperands = ~1u,
    .flops = flopsConvGradInput,
});

constexpr OpDef zcc::ops::conv_grad_weight = defineOp({
    .name = "conv_grad_weight",
    .summary = "gradient of conv's weight; dims: those of the weight",
    .operands = {{{"x"}, {"dy"}}},
    .attrs = {{{"dims", AttrKind::Ints, nullptr},
               {"strides", AttrKind::Ints, "1"},
               {"pads_lo", AttrKind::Ints, "0"},
               {"pads_hi", AttrKind::Ints, "0"},
               {"dilations", AttrKind::Ints, "1"},
               {"group", AttrKind::Int, "1"}}},
    .infer = inferConvGradWeight,
    .kernel = "conv_grad_weight",
    .gradFn = gradConvGradWeight,
    .eval = evalConvGradWeight,
    .library = Library::Convolution,
    .precision = Precision::Compute,
    .flops = flopsConvGradWeight,
});

// ---- pack

static TypesOr inferPack(Operands t, const Attrs &a) {
  if (auto e = sameFloats(t))
    return e;
  const std::string text = a.s("layout");
  llvm::StringRef rest = text;
  auto layout = Layout::parse(rest);
  if (!layout || !rest.empty() || layout->axes() != t[0]->ndim())
    return error("'" + llvm::Twine(text) + "' is no layout of " + t[0]->str());
  return Types{t[0]->withLayout(*layout)};
}

static llvm::Error evalPack(Node &, ArrayRef<const Tensor *> in, ArrayRef<Tensor *> out) {
  copyOperands(in, out);
  return llvm::Error::success();
}

constexpr OpDef zcc::ops::pack = defineOp({
    .name = "pack",
    .summary = "the same numbers as a library wants them that reads them again and again, in `layout` (ir/Layout.h)",
    .operands = {{{"x"}}},
    .attrs = {{{"layout", AttrKind::Str, nullptr}}},
    .infer = inferPack,
    .kernel = "pack",
    .noGrad = "it is inserted after differentiation",
    .eval = evalPack,
    .flops = noFlops,
});
