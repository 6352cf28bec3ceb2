// Views, and the operators that lay elements out anew: concat, pad, copy.
#include "ir/View.h"
#include "ir/ops/Rules.h"

using namespace zcc;
using namespace zcc::rules;
using llvm::ArrayRef;
using Ints = std::vector<int64_t>;

static llvm::Error checkLength(const Attrs &a, const char *name, const Type &t) {
  if (a.ints(name).size() != t.ndim())
    return error("attribute '" + llvm::Twine(name) + "' needs " + llvm::Twine(t.ndim()) + " values, one per axis of " + t.str());
  return llvm::Error::success();
}

/// A view operator reads its operand through strides.
static llvm::Error evalView(Node &n, ArrayRef<const Tensor *> in, ArrayRef<Tensor *> out) {
  const Dims &d = in[0]->type.dims;
  auto v = viewThrough(n, View{nullptr, 0, d, denseStrides(d)}); // exists, the operand being dense
  copyStrided(*in[0], v->offset, v->strides, *out[0]);
  return llvm::Error::success();
}

// ---- reshape

static TypesOr inferReshape(Operands t, const Attrs &a) {
  Type r = t[0]->withDims(a.ints("dims"));
  if (r.count() != t[0]->count() || llvm::any_of(r.dims, [](int64_t d) { return d < 0; }))
    return error(t[0]->str() + " cannot be reshaped to " + r.str());
  return Types{r};
}

static Values gradReshape(Builder &b, Node &n, ArrayRef<Value *> dy) { return {b.reshape(dy[0], n.operand(0)->type.dims)}; }

static std::optional<View> viewReshape(const Node &n, const View &in) {
  auto strides = reshapeStrides(in.dims, in.strides, n.result()->type.dims);
  if (!strides)
    return std::nullopt;
  return View{in.base, in.offset, n.result()->type.dims, *strides};
}

constexpr OpDef ops::reshape = defineOp({
    .name = "reshape",
    .summary = "the same elements in row-major order with other dims",
    .operands = {{{"x"}}},
    .attrs = {{{"dims", AttrKind::Ints, nullptr}}},
    .infer = inferReshape,
    .view = viewReshape,
    .gradFn = gradReshape,
    .eval = evalView,
    .linear = kAllOperands,
    .reshapes = true,
    .rows = Rows::InOrder,
    .flops = noFlops,
});

// ---- transpose

static TypesOr inferTranspose(Operands t, const Attrs &a) {
  if (auto e = checkLength(a, "perm", *t[0]))
    return e;
  Ints perm = a.ints("perm"), sorted = perm;
  llvm::sort(sorted);
  Type r = *t[0];
  for (size_t i = 0; i < perm.size(); ++i)
    if (sorted[i] != int64_t(i))
      return error(llvm::Twine("'perm' is not a permutation of the axes of ") + t[0]->str());
  for (size_t i = 0; i < perm.size(); ++i)
    r.dims[i] = t[0]->dims[perm[i]];
  return Types{r};
}

static Values gradTranspose(Builder &b, Node &n, ArrayRef<Value *> dy) {
  Ints perm = n.attrs.ints("perm"), inverse(perm.size());
  for (size_t i = 0; i < perm.size(); ++i)
    inverse[perm[i]] = i;
  return {b.transpose(dy[0], inverse)};
}

static std::optional<View> viewTranspose(const Node &n, const View &in) {
  View out = in;
  Ints perm = n.attrs.ints("perm");
  for (size_t i = 0; i < perm.size(); ++i)
    out.strides[i] = in.strides[perm[i]];
  return out;
}

constexpr OpDef ops::transpose = defineOp({
    .name = "transpose",
    .summary = "axis i of the result is axis perm[i] of the operand",
    .operands = {{{"x"}}},
    .attrs = {{{"perm", AttrKind::Ints, nullptr}}},
    .infer = inferTranspose,
    .view = viewTranspose,
    .gradFn = gradTranspose,
    .eval = evalView,
    .linear = kAllOperands,
    .rows = Rows::Permuted,
    .flops = noFlops,
});

// ---- slice

static int64_t sliceLength(int64_t start, int64_t end, int64_t step) {
  int64_t span = step > 0 ? end - start : start - end, by = std::abs(step);
  return span <= 0 ? 0 : (span + by - 1) / by;
}

static TypesOr inferSlice(Operands t, const Attrs &a) {
  for (const char *name : {"starts", "ends", "steps"})
    if (auto e = checkLength(a, name, *t[0]))
      return e;
  Ints starts = a.ints("starts"), ends = a.ints("ends"), steps = a.ints("steps");
  Type r = *t[0];
  for (size_t i = 0; i < starts.size(); ++i) {
    int64_t n = t[0]->dims[i], low = steps[i] < 0 ? -1 : 0;
    r.dims[i] = steps[i] ? sliceLength(starts[i], ends[i], steps[i]) : 0;
    bool startsInside = starts[i] >= low && starts[i] <= n && (r.dims[i] == 0 || starts[i] < n);
    if (!steps[i] || !startsInside || ends[i] < low || ends[i] > n)
      return error("slice " + llvm::Twine(starts[i]) + ":" + llvm::Twine(ends[i]) + ":" + llvm::Twine(steps[i]) +
                   " is outside axis " + llvm::Twine(i) + " of " + t[0]->str());
  }
  return Types{r};
}

/// Inserts step - 1 zeros behind each element along `axis`.
static Value *spread(Builder &b, Value *v, int64_t axis, int64_t step) {
  Dims d = v->type.dims;
  d.insert(d.begin() + axis + 1, 1);
  Ints lo(d.size(), 0), hi(d.size(), 0);
  hi[axis + 1] = step - 1;
  Value *zeros = b.make(ops::pad, {b.reshape(v, d)}, {{"lo", lo}, {"hi", hi}});
  d = v->type.dims;
  d[axis] *= step;
  return b.reshape(zeros, d);
}

static Values gradSlice(Builder &b, Node &n, ArrayRef<Value *> dy) {
  const Type &x = n.operand(0)->type;
  Value *g = dy[0];
  if (g->type.count() == 0)
    return {b.splat(0, x)};
  Ints starts = n.attrs.ints("starts"), steps = n.attrs.ints("steps"), lo, hi;
  for (size_t i = 0; i < starts.size(); ++i) {
    int64_t count = g->type.dims[i], start = starts[i], step = steps[i];
    if (step < 0) {
      g = b.slice(g, i, count - 1, -1, -1);
      start += (count - 1) * step;
      step = -step;
    }
    if (step > 1 && count > 1)
      g = spread(b, g, i, step);
    lo.push_back(start);
    // Negative where zeros behind the last element are dropped.
    hi.push_back(x.dims[i] - start - g->type.dims[i]);
  }
  auto isZero = [](int64_t v) { return v == 0; };
  if (llvm::all_of(lo, isZero) && llvm::all_of(hi, isZero))
    return {g};
  return {b.make(ops::pad, {g}, {{"lo", lo}, {"hi", hi}})};
}

static std::optional<View> viewSlice(const Node &n, const View &in) {
  View out = in;
  Ints starts = n.attrs.ints("starts"), steps = n.attrs.ints("steps");
  for (size_t i = 0; i < starts.size(); ++i) {
    out.offset += starts[i] * in.strides[i];
    out.strides[i] = in.strides[i] * steps[i];
  }
  return out;
}

constexpr OpDef ops::slice = defineOp({
    .name = "slice",
    .summary = "elements start, start + step, ... before end along each axis; a step may be negative",
    .operands = {{{"x"}}},
    .attrs = {{{"starts", AttrKind::Ints, nullptr}, {"ends", AttrKind::Ints, nullptr}, {"steps", AttrKind::Ints, nullptr}}},
    .infer = inferSlice,
    .view = viewSlice,
    .gradFn = gradSlice,
    .eval = evalView,
    .linear = kAllOperands,
    .rows = Rows::Sliced,
    .flops = noFlops,
});

// ---- broadcast

static TypesOr inferBroadcast(Operands t, const Attrs &a) {
  Ints dims = a.ints("dims");
  auto d = broadcastDims(t[0]->dims, dims);
  if (!d || ArrayRef<int64_t>(*d) != ArrayRef(dims))
    return error(t[0]->str() + " does not broadcast to " + Type(t[0]->elem, dims).str());
  return Types{t[0]->withDims(dims)};
}

static Values gradBroadcast(Builder &b, Node &n, ArrayRef<Value *> dy) { return {b.sumTo(dy[0], n.operand(0)->type.dims)}; }

static std::optional<View> viewBroadcast(const Node &n, const View &in) {
  View out = in;
  const Dims &dims = n.result()->type.dims;
  size_t lead = dims.size() - in.dims.size();
  out.strides.assign(dims.size(), 0);
  for (size_t i = lead; i < dims.size(); ++i)
    out.strides[i] = in.dims[i - lead] == dims[i] ? in.strides[i - lead] : 0;
  return out;
}

constexpr OpDef ops::broadcast = defineOp({
    .name = "broadcast",
    .summary = "repeats along axes of 1 and new leading axes, as numpy",
    .operands = {{{"x"}}},
    .attrs = {{{"dims", AttrKind::Ints, nullptr}}},
    .infer = inferBroadcast,
    .view = viewBroadcast,
    .gradFn = gradBroadcast,
    .eval = evalView,
    .linear = kAllOperands,
    .rows = Rows::Aligned,
    .flops = noFlops,
});

// ---- concat

static TypesOr inferConcat(Operands t, const Attrs &a) {
  auto axis = axisOf(*t[0], a);
  if (!axis)
    return axis.takeError();
  Type r = *t[0];
  r.dims[*axis] = 0;
  for (const Type *x : t) {
    Type like = *x;
    if (x->ndim() == r.ndim())
      like.dims[*axis] = 0;
    Type base = r;
    base.dims[*axis] = 0;
    if (like != base)
      return error("cannot join along axis " + llvm::Twine(*axis) + ": " + both(*t[0], *x));
    r.dims[*axis] += x->dims[*axis];
  }
  return Types{r};
}

static llvm::Error evalConcat(Node &n, ArrayRef<const Tensor *> in, ArrayRef<Tensor *> out) {
  AroundAxis to(out[0]->type.dims, n.attrs.i("axis"));
  int64_t at = 0;
  for (const Tensor *x : in) {
    AroundAxis from(x->type.dims, n.attrs.i("axis"));
    int64_t run = from.extent * from.inner;
    for (int64_t o = 0; o < from.outer; ++o)
      for (int64_t i = 0; i < run; ++i)
        copyElement(*out[0], (o * to.extent + at) * to.inner + i, *x, o * run + i);
    at += from.extent;
  }
  return llvm::Error::success();
}

static Values gradConcat(Builder &b, Node &n, ArrayRef<Value *> dy) {
  Values out;
  int64_t axis = n.attrs.i("axis"), at = 0;
  for (Value *x : n.operands()) {
    int64_t extent = x->type.dims[axis];
    out.push_back(b.slice(dy[0], axis, at, at + extent));
    at += extent;
  }
  return out;
}

constexpr OpDef ops::concat = defineOp({
    .name = "concat",
    .summary = "the operands one behind the other along an axis",
    .operands = {{{"x", OperandDef::Variadic}}},
    .attrs = {{{"axis", AttrKind::Int, nullptr}}},
    .infer = inferConcat,
    .kernel = "concat",
    .gradFn = gradConcat,
    .eval = evalConcat,
    .linear = kAllOperands,
    .rows = Rows::Others,
    .flops = noFlops,
});

// ---- pad

static TypesOr inferPad(Operands t, const Attrs &a) {
  for (const char *name : {"lo", "hi"})
    if (auto e = checkLength(a, name, *t[0]))
      return e;
  Ints lo = a.ints("lo"), hi = a.ints("hi");
  std::string mode = a.s("mode", "constant");
  if (mode != "constant" && mode != "reflect" && mode != "edge" && mode != "wrap")
    return error(llvm::Twine("'mode' must be constant, reflect, edge or wrap, not '") + mode + "'");
  Type r = *t[0];
  for (size_t i = 0; i < lo.size(); ++i) {
    int64_t n = r.dims[i], more = std::max(lo[i], hi[i]), less = std::min(lo[i], hi[i]);
    r.dims[i] = lo[i] + n + hi[i];
    bool fits = mode == "constant"  ? less >= -n && r.dims[i] >= 0
                : mode == "reflect" ? less >= 0 && more < std::max<int64_t>(n, 1)
                : mode == "wrap"    ? less >= 0 && more <= n
                                    : less >= 0 && (n > 0 || more == 0);
    if (!fits)
      return error("padding of " + llvm::Twine(lo[i]) + " and " + llvm::Twine(hi[i]) + " (" + mode + ") does not fit axis " +
                   llvm::Twine(i) + " of " + t[0]->str());
  }
  return Types{r};
}

/// The position in an axis of n elements that padded position `i` shows; -1: the padding value.
static int64_t padSource(llvm::StringRef mode, int64_t i, int64_t n) {
  if (i >= 0 && i < n)
    return i;
  if (mode == "edge")
    return i < 0 ? 0 : n - 1;
  if (mode == "wrap")
    return i < 0 ? i + n : i - n;
  if (mode == "reflect")
    return i < 0 ? -i : 2 * (n - 1) - i;
  return -1;
}

static llvm::Error evalPad(Node &n, ArrayRef<const Tensor *> in, ArrayRef<Tensor *> out) {
  const Dims &from = in[0]->type.dims, &to = out[0]->type.dims;
  Ints lo = n.attrs.ints("lo");
  std::string mode = n.attrs.s("mode", "constant");
  double value = n.attrs.f("value");
  for (int64_t e = 0; e < out[0]->count(); ++e) {
    int64_t rest = e, source = 0, stride = 1;
    bool inside = true;
    for (int i = int(to.size()) - 1; i >= 0; --i) {
      int64_t at = padSource(mode, rest % to[i] - lo[i], from[i]);
      inside &= at >= 0;
      source += at * stride;
      rest /= to[i];
      stride *= from[i];
    }
    if (inside)
      copyElement(*out[0], e, *in[0], source);
    else if (out[0]->isFloat())
      out[0]->f[e] = value;
    else
      out[0]->i[e] = int64_t(value);
  }
  return llvm::Error::success();
}

/// Adds the part [from, to) of `g` along `axis` to the positions of `sum` from `at` on, in reverse
/// order if `mirrored`.
static Value *foldBack(Builder &b, Value *sum, Value *g, int64_t axis, int64_t from, int64_t to, int64_t at, bool mirrored) {
  if (from == to)
    return sum;
  Value *part = mirrored ? b.slice(g, axis, to - 1, from - 1, -1) : b.slice(g, axis, from, to);
  Ints lo(g->type.ndim(), 0), hi(g->type.ndim(), 0);
  lo[axis] = at;
  hi[axis] = sum->type.dims[axis] - at - (to - from);
  return b.make(ops::add, {sum, b.make(ops::pad, {part}, {{"lo", lo}, {"hi", hi}})});
}

/// The gradient along one axis, where lo and hi elements were copied from the operand.
static Value *unpadAxis(Builder &b, Value *g, llvm::StringRef mode, int64_t axis, int64_t lo, int64_t hi) {
  int64_t all = g->type.dims[axis], n = all - lo - hi;
  Value *sum = b.slice(g, axis, lo, lo + n);
  if (mode == "reflect") {
    sum = foldBack(b, sum, g, axis, 0, lo, /*at=*/1, /*mirrored=*/true);
    return foldBack(b, sum, g, axis, lo + n, all, /*at=*/n - 1 - hi, /*mirrored=*/true);
  }
  if (mode == "wrap") {
    sum = foldBack(b, sum, g, axis, 0, lo, /*at=*/n - lo, /*mirrored=*/false);
    return foldBack(b, sum, g, axis, lo + n, all, /*at=*/0, /*mirrored=*/false);
  }
  // All of an edge's copies go to one element.
  Value *first = lo ? b.reduceSum(b.slice(g, axis, 0, lo), axis) : nullptr;
  Value *last = hi ? b.reduceSum(b.slice(g, axis, lo + n, all), axis) : nullptr;
  if (first)
    sum = foldBack(b, sum, first, axis, 0, 1, /*at=*/0, /*mirrored=*/false);
  if (last)
    sum = foldBack(b, sum, last, axis, 0, 1, /*at=*/n - 1, /*mirrored=*/false);
  return sum;
}

static Values gradPad(Builder &b, Node &n, ArrayRef<Value *> dy) {
  Ints lo = n.attrs.ints("lo"), hi = n.attrs.ints("hi"), back, front;
  std::string mode = n.attrs.s("mode", "constant");
  Value *g = dy[0];
  bool crops = false;
  for (size_t i = 0; i < lo.size(); ++i) {
    if (mode != "constant")
      g = unpadAxis(b, g, mode, i, lo[i], hi[i]);
    else if (lo[i] >= 0 && hi[i] >= 0)
      g = b.slice(g, i, lo[i], g->type.dims[i] - hi[i]);
    else
      crops = true;
    bool done = mode != "constant" || (lo[i] >= 0 && hi[i] >= 0);
    front.push_back(done ? 0 : -lo[i]);
    back.push_back(done ? 0 : -hi[i]);
  }
  return {crops ? b.make(ops::pad, {g}, {{"lo", front}, {"hi", back}}) : g};
}

constexpr OpDef ops::pad = defineOp({
    .name = "pad",
    .summary = "lo elements before and hi behind each axis: a value, or copies of the operand's; "
               "negative ones crop",
    .operands = {{{"x"}}},
    .attrs = {{{"lo", AttrKind::Ints, nullptr},
               {"hi", AttrKind::Ints, nullptr},
               {"value", AttrKind::Float, "0.0"},
               {"mode", AttrKind::Str, "constant"}}},
    .infer = inferPad,
    .kernel = "pad",
    .gradFn = gradPad,
    .eval = evalPad,
    .rows = Rows::Padded,
    .flops = noFlops,
});

// ---- copy

constexpr OpDef ops::copy = defineOp({
    .name = "copy",
    .summary = "the same values, dense in memory of their own",
    .operands = {{{"x"}}},
    .scalar = "x",
    .grad = "dy",
    .moves = true,
    .exact = true,
    .startable = true,
});
