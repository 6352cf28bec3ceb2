// Reading and writing at computed positions. Negative indices count from the end; others outside are errors.
#include "ir/ops/Rules.h"
#include "ir/ops/Window.h"

using namespace zcc;
using namespace zcc::rules;
using llvm::ArrayRef;

static llvm::Error checkIndex(const Type &t) {
  if (t.elem != Elem::I64 && t.elem != Elem::I32)
    return error("indices must be i64 or i32, got " + t.str());
  return llvm::Error::success();
}

static llvm::Error sameElem(const Type &a, const Type &b) {
  if (a.elem != b.elem)
    return error("element types differ: " + both(a, b));
  return llvm::Error::success();
}

/// An index into an axis of `extent`, counted from the front.
static llvm::Expected<int64_t> resolve(const Node &n, int64_t index, int64_t extent) {
  int64_t i = index < 0 ? index + extent : index;
  if (i < 0 || i >= extent)
    return errorAt(n.loc, "index " + llvm::Twine(index) + " is outside an axis of " + llvm::Twine(extent));
  return i;
}

// ---- how an update meets what is there

enum class Combine { Replace, Add, Mul, Max, Min };

static llvm::Expected<Combine> combineOf(const Attrs &a) {
  std::string s = a.s("reduce", "none");
  if (s == "none")
    return Combine::Replace;
  if (s == "add")
    return Combine::Add;
  if (s == "mul")
    return Combine::Mul;
  if (s == "max")
    return Combine::Max;
  if (s == "min")
    return Combine::Min;
  return error("'reduce' must be none, add, mul, max or min, not '" + s + "'");
}

template <typename T> static T combined(Combine c, T old, T x) {
  switch (c) {
  case Combine::Replace:
    return x;
  case Combine::Add:
    return old + x;
  case Combine::Mul:
    return old * x;
  case Combine::Max:
    return x > old || x != x ? x : old;
  case Combine::Min:
    return x < old || x != x ? x : old;
  }
  llvm_unreachable("all ways of combining are listed");
}

static void combineElement(Combine c, Tensor &dst, int64_t to, const Tensor &src, int64_t from) {
  if (dst.isFloat())
    dst.f[to] = combined(c, dst.f[to], src.f[from]);
  else if (dst.type.elem == Elem::U64 || c == Combine::Add || c == Combine::Mul) // sums and products wrap
    dst.i[to] = int64_t(combined(c, uint64_t(dst.i[to]), uint64_t(src.i[from])));
  else
    dst.i[to] = combined(c, dst.i[to], src.i[from]);
}

static void copyValues(Tensor &dst, const Tensor &src) {
  dst.f = src.f;
  dst.i = src.i;
}

// ---- gather, scatter_add: whole slices along an axis

static Dims gatherDims(const Type &x, const Type &index, int64_t axis) {
  Dims d(x.dims.begin(), x.dims.begin() + axis);
  d.append(index.dims.begin(), index.dims.end());
  d.append(x.dims.begin() + axis + 1, x.dims.end());
  return d;
}

static TypesOr inferGather(Operands t, const Attrs &a) {
  if (auto e = checkIndex(*t[1]))
    return e;
  auto axis = axisOf(*t[0], a);
  if (!axis)
    return axis.takeError();
  return Types{Type(t[0]->elem, gatherDims(*t[0], *t[1], *axis))};
}

static TypesOr inferScatterAdd(Operands t, const Attrs &a) {
  if (auto e = checkIndex(*t[1]))
    return e;
  if (auto e = sameElem(*t[0], *t[2]))
    return e;
  auto axis = axisOf(*t[0], a);
  if (!axis)
    return axis.takeError();
  Dims d = gatherDims(*t[0], *t[1], *axis);
  if (t[2]->dims != d)
    return error("updates must be " + Type(t[0]->elem, d).str() + ", got " + t[2]->str());
  return Types{*t[0]};
}

/// Calls f(element of x, element of the gathered tensor) for each pair.
template <typename F> static llvm::Error forGathered(const Node &n, const Type &x, const Tensor &index, F f) {
  AroundAxis s(x.dims, n.attrs.i("axis"));
  int64_t count = index.count();
  for (int64_t j = 0; j < count; ++j) {
    auto at = resolve(n, index.i[j], s.extent);
    if (!at)
      return at.takeError();
    for (int64_t o = 0; o < s.outer; ++o)
      for (int64_t i = 0; i < s.inner; ++i)
        f((o * s.extent + *at) * s.inner + i, (o * count + j) * s.inner + i);
  }
  return llvm::Error::success();
}

static llvm::Error evalGather(Node &n, ArrayRef<const Tensor *> in, ArrayRef<Tensor *> out) {
  return forGathered(n, in[0]->type, *in[1], [&](int64_t x, int64_t y) { copyElement(*out[0], y, *in[0], x); });
}

static llvm::Error evalScatterAdd(Node &n, ArrayRef<const Tensor *> in, ArrayRef<Tensor *> out) {
  copyValues(*out[0], *in[0]);
  return forGathered(n, in[0]->type, *in[1], [&](int64_t x, int64_t y) { combineElement(Combine::Add, *out[0], x, *in[2], y); });
}

static Values gradGather(Builder &b, Node &n, ArrayRef<Value *> dy) {
  Value *zero = b.splat(0, n.operand(0)->type);
  return {b.make(ops::scatter_add, {zero, n.operand(1), dy[0]}, n.attrs), nullptr};
}

static Values gradScatterAdd(Builder &b, Node &n, ArrayRef<Value *> dy) {
  return {dy[0], nullptr, b.make(ops::gather, {dy[0], n.operand(1)}, n.attrs)};
}

// ---- gather_elements, scatter_elements: one index per element

/// Indices have x's rank and fit into it on the other axes.
static llvm::Error checkElements(const Type &x, const Type &index, const Attrs &a) {
  if (auto e = checkIndex(index))
    return e;
  auto axis = axisOf(x, a);
  if (!axis)
    return axis.takeError();
  bool fits = x.ndim() == index.ndim();
  for (int64_t i = 0; fits && i < int64_t(x.ndim()); ++i)
    fits = i == *axis || index.dims[i] <= x.dims[i];
  if (!fits)
    return error("indices " + index.str() + " do not fit into " + x.str());
  return llvm::Error::success();
}

static TypesOr inferGatherElements(Operands t, const Attrs &a) {
  if (auto e = checkElements(*t[0], *t[1], a))
    return e;
  return Types{Type(t[0]->elem, t[1]->dims)};
}

static TypesOr inferScatterElements(Operands t, const Attrs &a) {
  if (auto e = checkElements(*t[0], *t[1], a))
    return e;
  if (auto e = sameElem(*t[0], *t[2]))
    return e;
  if (auto c = combineOf(a); !c)
    return c.takeError();
  if (t[2]->dims != t[1]->dims)
    return error("indices and updates differ: " + both(*t[1], *t[2]));
  return Types{*t[0]};
}

/// Calls f(element of x, element of the indices) for each index.
template <typename F> static llvm::Error forElements(const Node &n, const Type &x, const Tensor &index, F f) {
  Dims strides = denseStrides(x.dims), at(x.ndim(), 0);
  int64_t axis = n.attrs.i("axis");
  for (int64_t e = 0; e < index.count(); ++e, step(at, index.type.dims)) {
    auto to = resolve(n, index.i[e], x.dims[axis]);
    if (!to)
      return to.takeError();
    int64_t flat = 0;
    for (int64_t i = 0; i < int64_t(at.size()); ++i)
      flat += (i == axis ? *to : at[i]) * strides[i];
    f(flat, e);
  }
  return llvm::Error::success();
}

static llvm::Error evalGatherElements(Node &n, ArrayRef<const Tensor *> in, ArrayRef<Tensor *> out) {
  return forElements(n, in[0]->type, *in[1], [&](int64_t x, int64_t e) { copyElement(*out[0], e, *in[0], x); });
}

static llvm::Error evalScatterElements(Node &n, ArrayRef<const Tensor *> in, ArrayRef<Tensor *> out) {
  Combine c = llvm::cantFail(combineOf(n.attrs));
  copyValues(*out[0], *in[0]);
  return forElements(n, in[0]->type, *in[1], [&](int64_t x, int64_t e) { combineElement(c, *out[0], x, *in[2], e); });
}

// ---- gather_nd, scatter_nd: tuples of indices

/// Dims of what tuples of indices select: index's but the last, then what is left of x.
static llvm::Expected<Dims> tupleDims(const Type &x, const Type &index, int64_t batch) {
  if (auto e = checkIndex(index))
    return e;
  bool fits = index.ndim() >= 1 && batch >= 0 && batch < int64_t(index.ndim()) && batch + index.dims.back() <= int64_t(x.ndim());
  for (int64_t i = 0; fits && i < batch; ++i)
    fits = x.dims[i] == index.dims[i];
  if (!fits)
    return error("indices " + index.str() + " do not fit into " + x.str());
  Dims d(index.dims.begin(), index.dims.end() - 1);
  d.append(x.dims.begin() + batch + index.dims.back(), x.dims.end());
  return d;
}

static TypesOr inferGatherNd(Operands t, const Attrs &a) {
  auto d = tupleDims(*t[0], *t[1], a.i("batch"));
  if (!d)
    return d.takeError();
  return Types{Type(t[0]->elem, *d)};
}

static TypesOr inferScatterNd(Operands t, const Attrs &a) {
  auto d = tupleDims(*t[0], *t[1], /*batch=*/0);
  if (!d)
    return d.takeError();
  if (auto e = sameElem(*t[0], *t[2]))
    return e;
  if (auto c = combineOf(a); !c)
    return c.takeError();
  if (t[2]->dims != *d)
    return error("updates must be " + Type(t[0]->elem, *d).str() + ", got " + t[2]->str());
  return Types{*t[0]};
}

/// Calls f(element of x, element of what is selected) for each pair.
template <typename F> static llvm::Error forTuples(const Node &n, const Type &x, const Tensor &index, F f) {
  int64_t width = index.type.dims.back(), batch = n.attrs.i("batch");
  Dims strides = denseStrides(x.dims);
  int64_t tuples = elementCount(ArrayRef(index.type.dims).drop_back());
  int64_t perBatch = elementCount(ArrayRef(index.type.dims).slice(batch).drop_back());
  int64_t inner = elementCount(ArrayRef(x.dims).drop_front(batch + width));
  int64_t batchStride = elementCount(ArrayRef(x.dims).drop_front(batch));
  for (int64_t j = 0; j < tuples; ++j) {
    int64_t base = j / perBatch * batchStride;
    for (int64_t w = 0; w < width; ++w) {
      auto at = resolve(n, index.i[j * width + w], x.dims[batch + w]);
      if (!at)
        return at.takeError();
      base += *at * strides[batch + w];
    }
    for (int64_t i = 0; i < inner; ++i)
      f(base + i, j * inner + i);
  }
  return llvm::Error::success();
}

static llvm::Error evalGatherNd(Node &n, ArrayRef<const Tensor *> in, ArrayRef<Tensor *> out) {
  return forTuples(n, in[0]->type, *in[1], [&](int64_t x, int64_t e) { copyElement(*out[0], e, *in[0], x); });
}

static llvm::Error evalScatterNd(Node &n, ArrayRef<const Tensor *> in, ArrayRef<Tensor *> out) {
  Combine c = llvm::cantFail(combineOf(n.attrs));
  copyValues(*out[0], *in[0]);
  return forTuples(n, in[0]->type, *in[1], [&](int64_t x, int64_t e) { combineElement(c, *out[0], x, *in[2], e); });
}

// ---- gradients of the last two pairs

namespace {
/// One pair of operators at fixed indices: what scatter writes, gather reads.
struct Indexing {
  Builder &b;
  const OpDef &gatherOp, &scatterOp;
  Value *index;
  Attrs attrs; ///< axis, where there is one

  Value *gather(Value *x) const { return b.make(gatherOp, {x, index}, attrs); }
  Value *scatter(Value *x, Value *updates, llvm::StringRef reduce) const {
    Attrs a = attrs;
    a.set("reduce", reduce.str());
    return b.make(scatterOp, {x, index, updates}, a);
  }
};
} // namespace

/// Products: dy * y / x, but where one factor is 0 the product of the others instead of y / x.
static Values gradScatterMul(const Indexing &at, Value *x, Value *updates, Value *y, Value *dy) {
  Builder &b = at.b;
  Value *zero = b.scalar(0, x->type.elem), *one = b.scalar(1, x->type.elem);
  auto isZero = [&](Value *v) { return b.make(ops::eq, {v, zero}); };
  Value *nonZero = b.make(ops::select, {isZero(x), one, x});
  Value *others = at.scatter(nonZero, updates, "mul");
  Value *dx = b.make(ops::mul, {dy, b.make(ops::div, {others, nonZero})});
  Value *zeros = b.cast(isZero(updates), x->type.elem);
  Value *counts = at.gather(at.scatter(b.splat(0, x->type), zeros, "add"));
  Value *onlyZero = b.make(ops::and_, {isZero(updates), b.make(ops::eq, {counts, one})});
  Value *without = at.scatter(x, b.make(ops::select, {onlyZero, one, updates}), "mul");
  Value *divisor = b.make(ops::select, {isZero(updates), one, updates});
  Value *rest = b.make(ops::div, {at.gather(y), divisor});
  Value *factor = b.make(ops::select, {onlyZero, at.gather(without), rest});
  return {dx, nullptr, b.make(ops::mul, {at.gather(dy), factor})};
}

/// Maxima and minima: shared equally by all that equal the result.
static Values gradScatterExtreme(const Indexing &at, Value *x, Value *updates, Value *y, Value *dy) {
  Builder &b = at.b;
  Value *inX = b.cast(b.make(ops::eq, {x, y}), x->type.elem);
  Value *inUpdates = b.cast(b.make(ops::eq, {updates, at.gather(y)}), x->type.elem);
  Value *share = b.make(ops::div, {dy, at.scatter(inX, inUpdates, "add")});
  return {b.make(ops::mul, {inX, share}), nullptr, b.make(ops::mul, {inUpdates, at.gather(share)})};
}

static Values gradScatter(const Indexing &at, Node &n, Value *dy) {
  Value *x = n.operand(0), *updates = n.operand(2);
  switch (llvm::cantFail(combineOf(n.attrs))) {
  case Combine::Replace:
    return {at.scatter(dy, at.b.splat(0, updates->type), "none"), nullptr, at.gather(dy)};
  case Combine::Add:
    return {dy, nullptr, at.gather(dy)};
  case Combine::Mul:
    return gradScatterMul(at, x, updates, n.result(), dy);
  case Combine::Max:
  case Combine::Min:
    return gradScatterExtreme(at, x, updates, n.result(), dy);
  }
  llvm_unreachable("all ways of combining are listed");
}

static Indexing elementsOf(Builder &b, Node &n) {
  return {b, ops::gather_elements, ops::scatter_elements, n.operand(1), {{"axis", n.attrs.i("axis")}}};
}

static Values gradScatterElements(Builder &b, Node &n, ArrayRef<Value *> dy) { return gradScatter(elementsOf(b, n), n, dy[0]); }

static Values gradScatterNd(Builder &b, Node &n, ArrayRef<Value *> dy) {
  return gradScatter({b, ops::gather_nd, ops::scatter_nd, n.operand(1), {}}, n, dy[0]);
}

static Values gradGatherElements(Builder &b, Node &n, ArrayRef<Value *> dy) {
  Value *zero = b.splat(0, n.operand(0)->type);
  return {elementsOf(b, n).scatter(zero, dy[0], "add"), nullptr};
}

/// The batch axes become leading indices of the tuples, which is all that scatter_nd knows.
static Values gradGatherNd(Builder &b, Node &n, ArrayRef<Value *> dy) {
  Value *index = n.operand(1);
  int64_t batch = n.attrs.i("batch");
  if (batch) {
    Dims d = index->type.dims;
    d.back() = 1;
    llvm::SmallVector<Value *, 4> parts;
    for (int64_t axis = 0; axis < batch; ++axis)
      parts.push_back(counter(b, d, axis, index->type.elem));
    parts.push_back(index);
    index = b.make(ops::concat, parts, {{"axis", int64_t(d.size()) - 1}});
  }
  Indexing at{b, ops::gather_nd, ops::scatter_nd, index, {}};
  return {at.scatter(b.splat(0, n.operand(0)->type), dy[0], "add"), nullptr};
}

// ---- the records

static double perUpdate(const Node &n) { return double(n.operand(2)->type.count()); }

constexpr OpDef zcc::ops::gather = defineOp({
    .name = "gather",
    .summary = "the slices of an axis that indices name, in their order",
    .operands = {{{"x"}, {"index", OperandDef::AnyElem}}},
    .attrs = {{{"axis", AttrKind::Int, "0"}}},
    .infer = inferGather,
    .kernel = "gather",
    .gradFn = gradGather,
    .eval = evalGather,
    .rows = Rows::Lookup,
    .flops = noFlops,
});

constexpr OpDef zcc::ops::scatter_add = defineOp({
    .name = "scatter_add",
    .summary = "base with updates added to the slices of an axis that indices name",
    .operands = {{{"base"}, {"index", OperandDef::AnyElem}, {"updates"}}},
    .attrs = {{{"axis", AttrKind::Int, "0"}}},
    .infer = inferScatterAdd,
    .kernel = "scatter_add",
    .gradFn = gradScatterAdd,
    .eval = evalScatterAdd,
    .inPlace = 1,
    .flops = perUpdate,
});

constexpr OpDef zcc::ops::gather_elements = defineOp({
    .name = "gather_elements",
    .summary = "each element from its own position along an axis",
    .operands = {{{"x"}, {"index", OperandDef::AnyElem}}},
    .attrs = {{{"axis", AttrKind::Int, "0"}}},
    .infer = inferGatherElements,
    .kernel = "gather_elements",
    .gradFn = gradGatherElements,
    .eval = evalGatherElements,
    .rows = Rows::Others,
    .flops = noFlops,
});

constexpr OpDef zcc::ops::scatter_elements = defineOp({
    .name = "scatter_elements",
    .summary = "x with each update written or combined at its own position along an axis",
    .operands = {{{"x"}, {"index", OperandDef::AnyElem}, {"updates"}}},
    .attrs = {{{"axis", AttrKind::Int, "0"}, {"reduce", AttrKind::Str, "none"}}},
    .infer = inferScatterElements,
    .kernel = "scatter_elements",
    .gradFn = gradScatterElements,
    .eval = evalScatterElements,
    .inPlace = 1,
    .rows = Rows::Others,
    .flops = perUpdate,
});

constexpr OpDef zcc::ops::gather_nd = defineOp({
    .name = "gather_nd",
    .summary = "what tuples of indices select; `batch` leading axes are shared with the indices",
    .operands = {{{"x"}, {"index", OperandDef::AnyElem}}},
    .attrs = {{{"batch", AttrKind::Int, "0"}}},
    .infer = inferGatherNd,
    .kernel = "gather_nd",
    .gradFn = gradGatherNd,
    .eval = evalGatherNd,
    .rows = Rows::ByTuples,
    .flops = noFlops,
});

constexpr OpDef zcc::ops::scatter_nd = defineOp({
    .name = "scatter_nd",
    .summary = "x with updates written or combined where tuples of indices point",
    .operands = {{{"x"}, {"index", OperandDef::AnyElem}, {"updates"}}},
    .attrs = {{{"reduce", AttrKind::Str, "none"}}},
    .infer = inferScatterNd,
    .kernel = "scatter_nd",
    .gradFn = gradScatterNd,
    .eval = evalScatterNd,
    .inPlace = 1,
    .rows = Rows::ToTuples,
    .flops = perUpdate,
});
