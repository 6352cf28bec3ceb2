// Classification losses: per-row losses, and their mean over the rows that are not ignored.
#include "frontend/Importer.h"
#include "frontend/onnx/SourceLoc.h"
#include "onnx.pb.h"
#include <cmath>

using namespace zcc;
using llvm::StringRef;

/// Which labels count; absent if all do.
static Val validLabels(Emitter &e, const Val &labels, const CrossEntropy &c) {
  return c.hasIgnore ? e(ops::ne, labels, e.like(double(c.ignore), labels)) : Val();
}

/// NaN where a label is no class and is not ignored.
static Val orNan(Emitter &e, const Val &losses, const CrossEntropy &c, int64_t classes) {
  if (c.isChecked)
    return losses;
  Val isClass = e(ops::and_, e(ops::ge, c.labels, e.like(0, c.labels)), e(ops::lt, c.labels, e.like(double(classes), c.labels)));
  if (c.hasIgnore)
    isClass = e(ops::or_, isClass, e(ops::eq, c.labels, e.like(double(c.ignore), c.labels)));
  return e.select(isClass, losses, e.like(NAN, losses));
}

Val zcc::crossEntropyRows(Emitter &e, const CrossEntropy &c) {
  Attrs a{{"has_ignore", int64_t(c.hasIgnore)}};
  if (c.hasIgnore)
    a.set("ignore", c.ignore);
  Vals operands{c.logits, c.labels};
  if (c.weight)
    operands.push_back(c.weight);
  Vals r = e.emitAll(ops::cross_entropy, operands, std::move(a));
  r[0] = orNan(e, r[0], c, c.logits.dim(1));
  if (c.smoothing == 0)
    return r[0];
  // (1-s) * nll + s * mean over classes of -w log p, which is lse - mean of the logits without
  // weights (torch.nn.CrossEntropyLoss).
  Val logits = e.cast(c.logits, r[1].elem());
  Val spread = c.weight ? e.mean(e.mul(e.sub(r[1], logits), e.cast(c.weight, r[1].elem())), {1}, Emitter::Keep::Nothing)
                        : e.sub(e.squeeze(r[1], {1}), e.mean(logits, {1}, Emitter::Keep::Nothing));
  if (Val valid = validLabels(e, c.labels, c))
    spread = e.select(valid, spread, e.like(0, spread));
  return e.add(e.mul(r[0], 1 - c.smoothing), e.mul(spread, c.smoothing));
}

Val zcc::meanOverValid(Emitter &e, const Val &rowLosses, const Val &labels, const CrossEntropy &c) {
  if (isFloat16(rowLosses.elem())) // neither sums nor numbers of rows need fit it
    return e.cast(meanOverValid(e, e.cast(rowLosses, Elem::F32), labels, c), rowLosses.elem());
  Val total = e.sum(rowLosses, allAxes(0, rowLosses.rank()), Emitter::Keep::Nothing);
  Val valid = validLabels(e, labels, c);
  if (!valid && !c.weight)
    return e.div(total, e.like(double(rowLosses.count()), total));
  Val each;
  if (c.weight) {
    // Weight times how often its class appears: a sum over classes, whose gradient is exact.
    int64_t classes = c.weight.count();
    Val column = e.reshape(labels, {labels.count(), 1});
    Val hits = e(ops::eq, e.iota({1, classes}, 1, labels.elem()), column);
    if (valid)
      hits = e(ops::and_, hits, e.reshape(valid, column.dims()));
    Val times = e.sum(e.cast(hits, total.elem()), {0}, Emitter::Keep::Nothing);
    each = e.mul(e.cast(c.weight, total.elem()), times);
  } else {
    each = e.cast(valid, total.elem());
  }
  // 0 / 0 is NaN, as in PyTorch.
  return e.div(total, e.sum(each, allAxes(0, each.rank()), Emitter::Keep::Nothing));
}

namespace {
namespace loss_ops {

Val reduced(NodeImport &n, const Val &losses, const Val &labels, const CrossEntropy &c) {
  std::string reduction = n.oneOf("reduction", {"none", "sum", "mean"}, "mean");
  if (reduction == "mean")
    return meanOverValid(n.e, losses, labels, c);
  if (reduction == "sum")
    return n.e.sum(losses, allAxes(0, losses.rank()), Emitter::Keep::Nothing);
  return losses;
}

/// PyTorch's default exporter leaves label_smoothing out of the operator, without a word; the node's
/// metadata has it: cross_entropy_loss(input, target, weight, reduction, ignore_index, smoothing).
double lostSmoothing(NodeImport &n) {
  auto text = fxArgument(n.node, "aten.cross_entropy_loss", 5);
  double smoothing = 0;
  if (!text || StringRef(*text).getAsDouble(smoothing) || !(smoothing > 0 && smoothing <= 1))
    return 0;
  n.graph.warnOnce("the exporter left label_smoothing=" + *text + " out of '" + n.node.name() +
                   "'; it is trained and evaluated with it");
  return smoothing;
}

CrossEntropy settings(NodeImport &n, int64_t classes) {
  CrossEntropy c;
  c.labels = n.e.cast(n.in(1), Elem::I64);
  c.weight = n.optional(2);
  c.hasIgnore = n.hasAttr("ignore_index");
  c.ignore = n.i("ignore_index", -100);
  c.isChecked = n.graph.noteRange(c.labels, 0, classes - 1, c.hasIgnore ? std::optional(c.ignore) : std::nullopt);
  return c;
}

/// [N, C, d...] as rows [N * d..., C].
Val classesLast(Emitter &e, const Val &x) {
  Dims perm{0};
  for (int64_t i = 2; i < x.rank(); ++i)
    perm.push_back(i);
  perm.push_back(1);
  return e.reshape(e.transpose(x, perm), {x.count() / std::max<int64_t>(1, x.dim(1)), x.dim(1)});
}

/// What PyTorch's exporters write for labels that are probabilities of the classes (mixup, soft
/// targets), which ONNX does not know: -sum over the classes of w p log softmax, its mean over the
/// rows, whatever their weights.
void softCrossEntropy(NodeImport &n, const Val &scores) {
  Emitter &e = n.e;
  Val p = n.in(1), w = n.optional(2);
  if (p.dims() != scores.dims())
    invalid("labels that are probabilities must be " + scores.type.str() + ", got " + p.type.str());
  n.ignore({"ignore_index"}); // PyTorch has none for probabilities
  Val logp = e.emit(ops::log_softmax, {scores}, {{"axis", int64_t(1)}});
  p = e.cast(p, logp.elem());
  if (double smoothing = lostSmoothing(n); smoothing != 0)
    p = e.add(e.mul(p, 1 - smoothing), smoothing / double(scores.dim(1)));
  if (w) {
    Dims axes(scores.rank(), 1);
    axes[1] = w.count();
    p = e.mul(p, e.reshape(w, axes));
  }
  Val rows = e(ops::neg, e.sum(e.mul(p, logp), {1}, Emitter::Keep::Nothing));
  std::string reduction = n.oneOf("reduction", {"none", "sum", "mean"}, "mean");
  auto all = allAxes(0, rows.rank());
  n.out(0, reduction == "none"  ? rows
           : reduction == "sum" ? e.sum(rows, all, Emitter::Keep::Nothing)
                                : e.mean(rows, all, Emitter::Keep::Nothing));
  if (n.wants(1))
    n.out(1, logp);
}

void softmaxCrossEntropy(NodeImport &n) {
  Emitter &e = n.e;
  Val scores = n.in(0);
  if (scores.rank() < 2)
    invalid("scores need two axes at least, got " + scores.type.str());
  if (n.in(1).isFloat())
    return softCrossEntropy(n, scores);
  CrossEntropy c = settings(n, scores.dim(1));
  c.smoothing = lostSmoothing(n);
  Val labels = c.labels;
  c.logits = classesLast(e, scores);
  c.labels = e.reshape(labels, {labels.count()});
  Val rows = crossEntropyRows(e, c);
  const Val loss = n.oneOf("reduction", {"none", "sum", "mean"}, "mean") == "none" ? e.reshape(rows, labels.dims())
                                                                                   : reduced(n, rows, c.labels, c);
  n.out(0, e.cast(loss, scores.elem()));
  if (n.wants(1))
    n.out(1, e.emit(ops::log_softmax, {scores}, {{"axis", int64_t(1)}}));
}

void negativeLogLikelihood(NodeImport &n) {
  Emitter &e = n.e;
  Val logp = n.in(0);
  if (logp.rank() < 2)
    invalid("log-probabilities need two axes at least, got " + logp.type.str());
  CrossEntropy c = settings(n, logp.dim(1));
  Val valid = validLabels(e, c.labels, c);
  Val safe = valid ? e.select(valid, c.labels, e.like(0, c.labels)) : c.labels;
  Val picked = e.emit(ops::gather_elements, {logp, e.unsqueeze(safe, {1})}, {{"axis", int64_t(1)}});
  Val loss = e(ops::neg, e.squeeze(picked, {1}));
  if (c.weight)
    loss = e.mul(loss, e.gather(c.weight, safe, 0));
  if (valid)
    loss = e.select(valid, loss, e.like(0, loss));
  loss = orNan(e, loss, c, logp.dim(1));
  n.out(reduced(n, loss, c.labels, c));
}

const OnnxOp kOps[] = {
    {"SoftmaxCrossEntropyLoss", softmaxCrossEntropy},
    {"NegativeLogLikelihoodLoss", negativeLogLikelihood},
};

} // namespace loss_ops
} // namespace

llvm::ArrayRef<OnnxOp> zcc::lossOps() { return loss_ops::kOps; }
