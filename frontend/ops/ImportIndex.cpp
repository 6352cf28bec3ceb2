// Reading and writing at computed positions, sorting, and running sums.
#include "frontend/Importer.h"
#include "frontend/onnx/SourceLoc.h"
#include "onnx.pb.h"

using namespace zcc;
using llvm::ArrayRef;

namespace {
namespace index_ops {

/// Indices as the IR takes them: i64 or i32.
Val indices(Emitter &e, const Val &v) { return v.elem() == Elem::I64 || v.elem() == Elem::I32 ? v : e.cast(v, Elem::I64); }

/// Whether PyTorch refuses indices below 0, which ONNX counts from the end: the node is an embedding's. Without
/// metadata rows of a weight are taken for one.
bool isEmbedding(NodeImport &n, const Val &table, int64_t axis) {
  if (axis != 0 || !n.graph.file.isFromPyTorch())
    return false;
  if (fxArgument(n.node, "aten.", 0))
    return fxArgument(n.node, "aten.embedding.", 0).has_value();
  const Value *v = table.value;
  return v && v->isGlobal() && table.rank() == 2 && table.isFloat() &&
         static_cast<const GlobalValue *>(v)->role == GlobalValue::Param;
}

/// A constant index that counts up by one is a slice, and the whole gradient a pad.
Val gathered(NodeImport &n, const Val &x, const Val &index, int64_t axis) {
  int64_t d = x.dim(axis);
  Dims dims(x.dims().begin(), x.dims().begin() + axis);
  dims.append(index.dims().begin(), index.dims().end());
  dims.append(x.dims().begin() + axis + 1, x.dims().end());
  if (index.known && index.count() > 0 && !x.known) {
    auto at = Emitter::asInts(index, "indices");
    int64_t first = at[0] < 0 ? at[0] + d : at[0];
    bool counts = true;
    for (size_t i = 0; i < at.size(); ++i) {
      int64_t a = at[i] < 0 ? at[i] + d : at[i];
      if (a < 0 || a >= d)
        invalid("index " + llvm::Twine(at[i]) + " is outside an axis of " + llvm::Twine(d));
      counts &= a == first + int64_t(i);
    }
    if (counts)
      return n.e.reshape(n.e.slice(x, axis, first, first + int64_t(at.size())), dims);
  }
  n.graph.noteRange(index, isEmbedding(n, x, axis) ? 0 : -d, d - 1);
  return n.e.gather(x, index, axis);
}

/// torch.nn.Embedding's padding_idx, the row that is never trained; negative if there is none. ONNX has no word for it;
/// the metadata of PyTorch's default exporter has: embedding(weight, indices, padding_idx).
int64_t paddingRow(NodeImport &n) {
  int64_t row = -1;
  if (n.graph.training() && fxArgument(n.node, "aten.embedding.", 3) == "True")
    unsupported("scale_grad_by_freq=True");
  auto text = n.graph.training() ? fxArgument(n.node, "aten.embedding.", 2) : std::nullopt;
  return text && !llvm::StringRef(*text).getAsInteger(10, row) ? row : -1;
}

void gather(NodeImport &n) {
  Emitter &e = n.e;
  Val x = n.in(0), index = indices(e, n.in(1));
  int64_t axis = normalAxis(n.i("axis", 0), x.rank());
  Val y = gathered(n, x, index, axis);
  if (int64_t row = paddingRow(n); row >= 0 && axis == 0 && x.isFloat()) {
    Dims dims(index.dims());
    dims.append(x.rank() - 1, 1);
    Val isPadding = e.reshape(e(ops::eq, index, e.like(double(row), index)), dims);
    y = e.select(isPadding, e(ops::stop_gradient, y), y);
  }
  n.out(y);
}

void gatherElements(NodeImport &n) {
  Val x = n.in(0), index = indices(n.e, n.in(1));
  const int64_t axis = normalAxis(n.i("axis", 0), x.rank());
  if (x.rank())
    n.graph.noteRange(index, -x.dim(axis), x.dim(axis) - 1);
  n.out(n.e.emit(ops::gather_elements, {x, index}, {{"axis", axis}}));
}

void gatherND(NodeImport &n) {
  n.out(n.e.emit(ops::gather_nd, {n.in(0), indices(n.e, n.in(1))}, {{"batch", n.i("batch_dims", 0)}}));
}

bool includesSelf(NodeImport &n) {
  auto fx = fxNodeOf(n.node);
  return !fx || !llvm::is_contained(fx->keywords, "include_self: False");
}

/// Whether the node stands for scatter_reduce(self, dim, index, src, "mean"), which the exporter writes as a reduction of none;
/// its metadata still says so. Without `include_self` a first node puts zeros where the second adds up.
bool isScatteredMean(NodeImport &n) {
  auto reduce = fxArgument(n.node, "aten.scatter_reduce.", 4);
  const Tensor *updates = Emitter::tensorOf(n.in(2));
  bool clears = updates && llvm::all_of(updates->f, [](double v) { return v == 0; });
  return reduce && *reduce == "mean" && (includesSelf(n) || !clears);
}

/// The mean of what is put at each position and, unless it was cleared, of what was there.
Val scatteredMean(NodeImport &n, const Val &x, const Val &at, const Attrs &attrs) {
  Emitter &e = n.e;
  Val updates = n.in(2), own = e.like(includesSelf(n) ? 1 : 0, x);
  auto added = [&](const Val &to, const Val &what) { return e.emit(ops::scatter_elements, {to, at, what}, attrs); };
  Val count = added(e.expand(own, x.dims()), e.expand(e.like(1, x), updates.dims()));
  return e.div(added(x, updates), e(ops::max, count, e.like(1, count)));
}

void scatterElements(NodeImport &n) {
  Val x = n.in(0), at = indices(n.e, n.in(1));
  bool isMean = isScatteredMean(n);
  std::string reduce = n.s("reduction", "none");
  Attrs attrs{{"axis", normalAxis(n.i("axis", 0), x.rank())}, {"reduce", isMean ? "add" : reduce}};
  n.out(isMean ? scatteredMean(n, x, at, attrs) : n.e.emit(ops::scatter_elements, {x, at, n.in(2)}, attrs));
}

void scatterND(NodeImport &n) {
  n.out(n.e.emit(ops::scatter_nd, {n.in(0), indices(n.e, n.in(1)), n.in(2)}, {{"reduce", n.s("reduction", "none")}}));
}

/// Writes `update` into the cache along the sequence axis, from each sample's own position on.
void tensorScatter(NodeImport &n) {
  Emitter &e = n.e;
  Val cache = n.in(0), update = n.in(1);
  int64_t axis = normalAxis(n.i("axis", -2), cache.rank());
  Val at = e.iota(update.dims(), axis);
  if (n.has(2)) {
    Dims d(cache.rank(), 1);
    d[0] = n.in(2).count();
    at = e.add(at, e.reshape(e.cast(n.in(2), Elem::I64), d));
  }
  if (n.oneOf("mode", {"linear", "circular"}, "linear") == "circular")
    at = e(ops::mod, at, e.like(double(cache.dim(axis)), at));
  n.out(e.emit(ops::scatter_elements, {cache, at, update}, {{"axis", axis}, {"reduce", std::string("none")}}));
}

// ---- sorting and choosing

void topK(NodeImport &n) {
  n.ignore({"sorted"}); // ours always are
  Val x = n.in(0);
  int64_t axis = normalAxis(n.i("axis", -1), x.rank()), k = Emitter::asInt(n.in(1), "numbers of elements");
  if (k < 0 || k > x.dim(axis))
    invalid("the " + llvm::Twine(k) + " largest of " + llvm::Twine(x.dim(axis)));
  Vals r = n.e.emitAll(ops::topk, {x}, {{"axis", axis}, {"k", k}, {"largest", n.i("largest", 1)}});
  n.out(0, r[0]);
  n.out(1, r[1]);
}

template <const OpDef &Op> void argument(NodeImport &n) {
  Val x = n.in(0);
  int64_t axis = normalAxis(n.i("axis", 0), x.rank());
  Val r = n.e.emit(Op, {x}, {{"axis", axis}, {"last", n.i("select_last_index", 0)}});
  n.out(n.i("keepdims", 1) ? r : n.e.squeeze(r, {axis}));
}

void oneHot(NodeImport &n) {
  Emitter &e = n.e;
  Val at = e.cast(n.in(0), Elem::I64), values = n.in(2);
  int64_t depth = Emitter::asInt(n.in(1), "depths"), axis = normalAxis(n.i("axis", -1), at.rank() + 1);
  if (n.opset >= 11) // before, all is off there
    at = e.select(e(ops::lt, at, e.like(0, at)), e.add(at, double(depth)), at);
  at = e.unsqueeze(at, {axis});
  Dims d(at.rank(), 1);
  d[axis] = depth;
  Val hot = e(ops::eq, e.iota(d, axis, Elem::I64), at);
  n.out(e.select(hot, e.reshape(e.slice(values, 0, 1, 2), {}), e.reshape(e.slice(values, 0, 0, 1), {})));
}

/// Where a constant is true, in row-major order.
void nonZero(NodeImport &n) {
  auto v = Emitter::asFloats(n.in(0), "operands");
  auto dims = n.in(0).dims();
  std::vector<std::vector<int64_t>> found(dims.size());
  const int64_t count = llvm::count_if(v, [](double x) { return x != 0; });
  for (size_t i = 0; i < v.size(); ++i) {
    if (v[i] == 0)
      continue;
    int64_t rest = int64_t(i);
    for (int64_t a = int64_t(dims.size()) - 1; a >= 0; --a) {
      found[a].push_back(rest % dims[a]);
      rest /= dims[a];
    }
  }
  std::vector<int64_t> flat;
  for (auto &f : found)
    flat.insert(flat.end(), f.begin(), f.end());
  n.out(Emitter::integers(flat, {int64_t(dims.size()), count}));
}

void compress(NodeImport &n) {
  Val x = n.in(0);
  auto keep = Emitter::asInts(n.in(1), "conditions");
  int64_t axis = 0;
  if (n.hasAttr("axis"))
    axis = normalAxis(n.i("axis"), x.rank());
  else
    x = n.e.reshape(x, {x.count()});
  std::vector<int64_t> at;
  for (size_t i = 0; i < keep.size(); ++i)
    if (keep[i])
      at.push_back(int64_t(i));
  n.out(n.e.gather(x, Emitter::integers(at), axis));
}

/// Element t of sample b becomes element len[b]-1-t, if t < len[b].
void reverseSequence(NodeImport &n) {
  Emitter &e = n.e;
  Val x = n.in(0);
  int64_t time = n.i("time_axis", 0), batch = n.i("batch_axis", 1);
  if (std::min(time, batch) != 0 || std::max(time, batch) != 1 || x.rank() < 2)
    invalid("axes " + llvm::Twine(time) + " and " + llvm::Twine(batch) + " of " + x.type.str() + "; they are 0 and 1");
  Dims d(x.rank(), 1);
  d[batch] = x.dim(batch);
  Val length = e.reshape(e.cast(n.in(1), Elem::I64), d), t = e.iota(x.dims(), time);
  Val mirrored = e.sub(e.add(length, -1.0), t);
  Val at = e.select(e(ops::lt, t, length), mirrored, t);
  n.out(e.emit(ops::gather_elements, {x, at}, {{"axis", time}}));
}

// ---- running sums and products

void cumSum(NodeImport &n) {
  Val x = n.in(0);
  int64_t axis = normalAxis(Emitter::asInt(n.in(1), "axes"), x.rank());
  n.out(n.e.emit(ops::cumsum, {x}, {{"axis", axis}, {"exclusive", n.i("exclusive", 0)}, {"reverse", n.i("reverse", 0)}}));
}

void cumProd(NodeImport &n) {
  Emitter &e = n.e;
  Val x = n.in(0);
  int64_t axis = normalAxis(Emitter::asInt(n.in(1), "axes"), x.rank()), d = x.dim(axis);
  bool exclusive = n.i("exclusive", 0) != 0, reverse = n.i("reverse", 0) != 0;
  if (d > 1 << 14) // each element of the axis is a node
    unsupported("more than 2^14 products");
  Vals parts(d);
  Val running;
  for (int64_t k = 0; k < d; ++k) {
    int64_t i = reverse ? d - 1 - k : k;
    Val here = e.slice(x, axis, i, i + 1);
    Val before = running ? running : e.expand(e.like(1, x), here.dims());
    running = running ? e.mul(running, here) : here;
    parts[i] = exclusive ? before : running;
  }
  n.out(d ? e.concat(parts, axis) : x);
}

const OnnxOp kOps[] = {
    {"Gather", alongAxis<gather>},
    {"GatherElements", alongAxis<gatherElements>},
    {"GatherND", gatherND},
    {"ScatterElements", alongAxis<scatterElements>},
    {"ScatterND", scatterND},
    {"TensorScatter", tensorScatter},
    {"TopK", alongAxis<topK>},
    {"ArgMax", alongAxis<argument<ops::argmax>>},
    {"ArgMin", alongAxis<argument<ops::argmin>>},
    {"OneHot", oneHot},
    {"NonZero", nonZero},
    {"Compress", compress},
    {"ReverseSequence", reverseSequence},
    {"CumSum", alongAxis<cumSum>},
    {"CumProd", alongAxis<cumProd>},
};

} // namespace index_ops
} // namespace

ArrayRef<OnnxOp> zcc::indexOps() { return index_ops::kOps; }
