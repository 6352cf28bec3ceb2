// Softmax and normalisations. BatchNormalization in training form updates its running statistics.
#include "frontend/Importer.h"
#include "frontend/onnx/SourceLoc.h"
#include "onnx.pb.h"

using namespace zcc;
using llvm::ArrayRef;

namespace {
namespace normalize_ops {

/// What f(x, axis) makes along an axis, or in older opsets over all axes from that one on.
template <typename F> void overAxis(NodeImport &n, F f) {
  Val x = n.in(0);
  if (n.opset >= 13) // the node's own
    return n.out(f(x, normalAxis(n.i("axis", -1), x.rank())));
  int64_t axis = n.i("axis", 1);
  axis = axis < 0 ? axis + x.rank() : axis;
  if (axis < 0 || axis > x.rank())
    invalid("axis " + llvm::Twine(axis) + " of " + x.type.str());
  Val flat = n.e.reshape(x, {elementCount(x.dims().take_front(axis)), elementCount(x.dims().drop_front(axis))});
  n.out(n.e.reshape(f(flat, 1), x.dims()));
}

template <const OpDef &Op> void softmax(NodeImport &n) {
  overAxis(n, [&](const Val &x, int64_t axis) { return n.e.emit(Op, {x}, {{"axis", axis}}); });
}

void hardmax(NodeImport &n) {
  overAxis(n, [&](const Val &x, int64_t axis) {
    Val best = n.e.emit(ops::argmax, {x}, {{"axis", axis}});
    return n.e.cast(n.e(ops::eq, n.e.iota(x.dims(), axis), best), x.elem());
  });
}

/// The first `count` inputs, of the type that has the most bits: under PyTorch's autocast a norm's scale is wider than what
/// it scales, and BatchNormalization may have statistics of another type. The result has the type of the first. Of the inputs,
/// `required` may not be left out.
Vals inOneType(NodeImport &n, unsigned count, unsigned required) {
  Vals r;
  for (unsigned i = 0; i < count; ++i)
    r.push_back(i < required ? n.in(i) : n.optional(i));
  Elem widest = r[0].elem();
  for (const Val &v : r)
    if (v && v.isFloat() && elemBytes(v.elem()) > elemBytes(widest))
      widest = v.elem();
  for (Val &v : r)
    if (v)
      v = n.e.cast(v, widest);
  return r;
}

void outInTypeOfInput(NodeImport &n, const Val &y) { n.out(0, n.e.cast(y, n.in(0).elem())); }

/// What a norm's statistics have; ours are computed in f32 at least, and of f64 in that.
Elem stashType(NodeImport &n) {
  const Elem stash = n.i("stash_type", 0) ? n.elemOf("stash_type") : Elem::F32;
  return n.in(0).elem() == Elem::F64 ? Elem::F64 : stash;
}

void layerNorm(NodeImport &n) {
  const Elem stash = stashType(n);
  Vals operands = inOneType(n, 3, /*required=*/1);
  if (n.wants(1) || n.wants(2))
    for (Val &v : operands)
      if (v && isFloat16(v.elem()))
        v = n.e.cast(v, Elem::F32);
  int64_t axis = normalAxis(n.i("axis", -1), operands[0].rank());
  Vals r = n.e.emitAll(ops::layer_norm, operands, {{"axis", axis}, {"eps", n.f("epsilon", 1e-5)}});
  outInTypeOfInput(n, r[0]);
  for (unsigned i = 1; i < 3; ++i)
    n.out(i, n.e.cast(r[i], stash));
}

void rmsNorm(NodeImport &n) {
  n.ignore({"stash_type"});
  Vals operands = inOneType(n, 2, /*required=*/1);
  int64_t axis = normalAxis(n.i("axis", -1), operands[0].rank());
  outInTypeOfInput(n, n.e.emit(ops::rms_norm, operands, {{"axis", axis}, {"eps", n.f("epsilon", 1e-5)}}));
}

/// ONNX Runtime's name for RMSNormalization, in the standard domain; its second result is the
/// reciprocal deviation.
void simplifiedNorm(NodeImport &n) {
  rmsNorm(n);
  if (!n.wants(1))
    return;
  Emitter &e = n.e;
  Val x = n.in(0);
  const Elem stash = stashType(n);
  if (isFloat16(x.elem()))
    x = e.cast(x, Elem::F32);
  Dims axes = allAxes(normalAxis(n.i("axis", -1), x.rank()), x.rank());
  n.out(1, e.cast(e(ops::rsqrt, e.add(e.mean(e.mul(x, x), axes), n.f("epsilon", 1e-5))), stash));
}

/// A vector per channel against [N, C, ...].
Val perChannel(Emitter &e, const Val &v, int64_t rank) {
  Dims d(rank, 1);
  d[1] = v.count();
  return e.reshape(v, d);
}

Val scaled(Emitter &e, const Val &x, const Val &scale, const Val &bias) {
  return e.add(e.mul(x, perChannel(e, scale, x.rank())), perChannel(e, bias, x.rank()));
}

/// Normalises over everything behind the first two axes of [N, groups, ...].
Val normalizeGroups(Emitter &e, const Val &x, int64_t groups, double eps) {
  Val flat = e.reshape(x, {x.dim(0), groups, x.count() / std::max<int64_t>(1, x.dim(0) * groups)});
  Val y = e.emitAll(ops::layer_norm, {flat, Val(), Val()}, {{"axis", int64_t(2)}, {"eps", eps}})[0];
  return e.reshape(y, x.dims());
}

void instanceNorm(NodeImport &n) {
  Vals v = inOneType(n, 3, /*required=*/3);
  outInTypeOfInput(n, scaled(n.e, normalizeGroups(n.e, v[0], v[0].dim(1), n.f("epsilon", 1e-5)), v[1], v[2]));
}

void groupNorm(NodeImport &n) {
  Vals v = inOneType(n, 3, /*required=*/3);
  const Val &x = v[0];
  n.ignore({"stash_type"});
  int64_t groups = n.i("num_groups");
  if (groups < 1 || x.rank() < 3 || x.dim(1) % groups)
    invalid(llvm::Twine(groups) + " groups of the channels of " + x.type.str());
  outInTypeOfInput(n, scaled(n.e, normalizeGroups(n.e, x, groups, n.f("epsilon", 1e-5)), v[1], v[2]));
}

// ---- BatchNormalization

/// Whether the node normalises by the batch in @micro.
bool trainsStatistics(NodeImport &n) {
  // Five results mean training, in files of newer opsets too, which have no such form.
  const bool wantsSaved = n.wants(3) || n.wants(4);
  bool inFile = n.i("training_mode", 0) != 0 || wantsSaved || (n.opset < 14 && (n.wants(1) || n.wants(2)));
  // A graph whose results are the new statistics asks for them, in evaluation too.
  if (inFile && llvm::any_of(n.graph.file.graph().output(), [&](auto &o) {
        return (n.wants(1) && o.name() == n.node.output(1)) || (n.wants(2) && o.name() == n.node.output(2));
      }))
    return true;
  if (!n.graph.training())
    return false;
  switch (n.graph.options.batchNorm) {
  case ImportOptions::Train:
    return true;
  case ImportOptions::Frozen:
    return false;
  case ImportOptions::AsInFile:
    break;
  }
  if (inFile)
    return true;
  // PyTorch's default exporter writes inference form even from a model in training mode:
  // _native_batch_norm_legit_functional(input, weight, bias, mean, var, training, momentum, eps).
  auto training = fxArgument(n.node, "aten._native_batch_norm_legit_functional.", 5);
  if (training && *training != "False") {
    n.graph.remarkOnce("BatchNormalization normalises by the batch: the model was exported in training mode, its "
                       "nodes only look like inference (--batch-norm=frozen keeps the file's statistics)");
    return true;
  }
  n.graph.warnOnce("BatchNormalization is in inference form in this file and keeps its statistics; "
                   "--batch-norm=train normalises by the batch and updates them");
  return false;
}

/// running * momentum + batch * (1 - momentum), in training written at every micro-batch.
Val updateStatistic(NodeImport &n, unsigned input, const Val &batch, double momentum) {
  Emitter &e = n.e;
  Val running = n.in(input);
  Val next = e.add(e.mul(running, momentum), e.mul(e.cast(batch, running.elem()), 1 - momentum));
  // A constant has nowhere to be updated; one that --train names is updated by the optimizer.
  if (n.graph.training() && running.value && running.value->isGlobal() &&
      static_cast<GlobalValue *>(running.value)->role == GlobalValue::State) {
    if (&e.current() != &e.fn)
      unsupported("running statistics that a branch, or a loop which is not unrolled, updates");
    e.emitAll(ops::assign, {running, next});
  }
  return next;
}

void batchNorm(NodeImport &n) {
  Emitter &e = n.e;
  double eps = n.f("epsilon", 1e-5), momentum = n.f("momentum", 0.9);
  if (n.i("spatial", 1) == 0 && n.in(0).rank() > 2) // gone since opset 9
    unsupported("spatial=0");
  bool train = trainsStatistics(n);
  Vals inputs = inOneType(n, train ? 3 : 5, /*required=*/5); // the batch's statistics stand for the running ones
  const Val &x = inputs[0], &scale = inputs[1], &bias = inputs[2];
  n.ignore({"training_mode"});
  if (!train) {
    const Val &mean = inputs[3], &var = inputs[4];
    Val rstd = e(ops::rsqrt, e.add(var, eps));
    Val factor = e.mul(scale, rstd);
    outInTypeOfInput(n, scaled(e, x, factor, e.sub(bias, e.mul(mean, factor))));
    for (unsigned i = 1; i < n.outputs(); ++i) // the last two are gone since opset 14
      n.out(i, n.in(i % 2 ? 3 : 4));
    return;
  }
  Vals r = e.emitAll(ops::batch_norm, {x, scale, bias}, {{"eps", eps}});
  double count = double(x.count()) / double(x.dim(1));
  // PyTorch's running variance is unbiased, and its files mean that; ONNX's own is biased.
  bool unbiased = n.graph.file.isFromPyTorch() && count > 1;
  Val variance = unbiased ? e.mul(r[2], count / (count - 1)) : r[2];
  outInTypeOfInput(n, r[0]);
  n.out(1, updateStatistic(n, 3, r[1], momentum));
  n.out(2, updateStatistic(n, 4, variance, momentum));
  for (unsigned i = 3; i < n.outputs(); ++i) // saved for the backward, until opset 14
    n.out(i, r[i - 2]);
}

// ---- rarer ones

/// x / (bias + alpha/size * sum of squares over neighbouring channels)^beta
void lrn(NodeImport &n) {
  Emitter &e = n.e;
  Val x = n.in(0);
  int64_t size = n.i("size");
  if (x.rank() < 2 || size < 1)
    invalid("sums over " + llvm::Twine(size) + " channels of " + x.type.str());
  int64_t channels = x.dim(1), others = std::max<int64_t>(0, channels - 1); // none is further away
  int64_t before = std::min((size - 1) / 2, others), behind = std::min(size - 1 - (size - 1) / 2, others);
  if (before + behind >= 1 << 14) // each is a node
    unsupported("sums over " + llvm::Twine(size) + " channels");
  Dims lo(x.rank(), 0), hi(x.rank(), 0);
  lo[1] = before;
  hi[1] = behind;
  Val padded = e.pad(e.mul(x, x), lo, hi), sum;
  for (int64_t i = 0; i <= before + behind; ++i) {
    Val part = e.slice(padded, 1, i, i + channels);
    sum = sum ? e.add(sum, part) : part;
  }
  Val base = e.add(e.mul(sum, n.f("alpha", 1e-4) / double(size)), n.f("bias", 1));
  n.out(e.mul(x, e(ops::pow, base, e.like(-n.f("beta", 0.75), x))));
}

void meanVariance(NodeImport &n) {
  Emitter &e = n.e;
  Val x = n.in(0);
  auto axes = n.ints("axes");
  if (axes.empty())
    axes = {0, 2, 3};
  Dims a = normalAxes(axes, x.rank());
  Val centred = e.sub(x, e.mean(x, a));
  Val deviation = e(ops::sqrt, e.mean(e.mul(centred, centred), a));
  n.out(e.div(centred, e.add(deviation, 1e-9)));
}

const OnnxOp kOps[] = {
    {"Softmax", alongAxis<softmax<ops::softmax>>},
    {"LogSoftmax", alongAxis<softmax<ops::log_softmax>>},
    {"Hardmax", alongAxis<hardmax>},
    {"LayerNormalization", layerNorm},
    {"RMSNormalization", rmsNorm},
    {"InstanceNormalization", instanceNorm},
    {"GroupNormalization", groupNorm},
    {"BatchNormalization", batchNorm},
    {"LRN", lrn},
    {"MeanVarianceNormalization", meanVariance},
    {"SimplifiedLayerNormalization", simplifiedNorm},
};

} // namespace normalize_ops
} // namespace

ArrayRef<OnnxOp> zcc::normalizeOps() { return normalize_ops::kOps; }
