// softmax, log_softmax, softmax cross-entropy and the logarithms of a sigmoid and of a sum of exponentials that a model spells
// out.
#include "passes/simplify/Simplify.h"

using namespace zcc;

/// The one axis of a reduction, or -1.
static int64_t oneAxis(const Node *reduce) {
  std::vector<int64_t> axes = reduce ? reduce->attrs.ints("axes") : std::vector<int64_t>();
  return axes.size() == 1 ? axes[0] : -1;
}

/// x - max(x), or x itself: what exp and the sum are taken of does not change a softmax. Returns x.
static Value *unshifted(Value *v, int64_t axis) {
  Node *sub = defBy(v, ops::sub);
  // The gradient through the maximum is zero, so that it does not matter whether it is stopped.
  Node *stop = sub ? defBy(sub->operand(1), ops::stop_gradient) : nullptr;
  Node *max = sub ? defBy(stop ? stop->operand(0) : sub->operand(1), ops::reduce_max) : nullptr;
  if (max && max->operand(0) == sub->operand(0) && oneAxis(max) == axis)
    return sub->operand(0);
  return nullptr;
}

/// exp(x - max(x)) / sum(exp(x - max(x)))
static bool recogniseSoftmax(Node &n, Rewriter &r) {
  Node *e = defBy(n.operand(0), ops::exp), *sum = defBy(n.operand(1), ops::reduce_sum);
  if (!e || !sum || sum->operand(0) != e->result() || oneAxis(sum) < 0)
    return false;
  Value *x = unshifted(e->operand(0), oneAxis(sum));
  if (!x)
    return false;
  r.replace(n.result(), r.before(n, {e, sum}).make(ops::softmax, {x}, {{"axis", oneAxis(sum)}}));
  return true;
}

/// s - log(sum(exp(s))) with s = x - max(x)
static bool recogniseLogSoftmax(Node &n, Rewriter &r) {
  Node *log = defBy(n.operand(1), ops::log);
  Node *sum = log ? defBy(log->operand(0), ops::reduce_sum) : nullptr;
  Node *e = sum ? defBy(sum->operand(0), ops::exp) : nullptr;
  if (!e || e->operand(0) != n.operand(0) || oneAxis(sum) < 0)
    return false;
  Value *x = unshifted(n.operand(0), oneAxis(sum));
  if (!x)
    return false;
  r.replace(n.result(), r.before(n, {log, sum, e}).make(ops::log_softmax, {x}, {{"axis", oneAxis(sum)}}));
  return true;
}

/// log(softmax(x))
static bool logOfSoftmax(Node &n, Rewriter &r) {
  Node *s = defBy(n.operand(0), ops::softmax);
  if (!s)
    return false;
  r.replace(n.result(), r.before(n, {s}).make(ops::log_softmax, {s->operand(0)}, s->attrs));
  return true;
}

/// log(sigmoid(x)) -> -softplus(-x), log(1 - sigmoid(x)) -> -softplus(x): PyTorch's TorchScript exporter spells out
/// binary_cross_entropy_with_logits so, which is infinite where the sigmoid rounds to 0 or 1. binary_cross_entropy, of
/// probabilities, bounds that infinity by a maximum: there the value stays PyTorch's.
static bool logOfSigmoid(Node &n, Rewriter &r) {
  Node *sub = defBy(n.operand(0), ops::sub);
  bool isRest = sub && r.isSplat(sub->operand(0), 1);
  Node *s = defBy(isRest ? sub->operand(1) : n.operand(0), ops::sigmoid);
  if (!s || s->result()->type != n.result()->type ||
      llvm::any_of(n.result()->uses, [](const Value::Use &u) { return u.node->is(ops::max); }))
    return false;
  Builder b = r.before(n, {isRest ? sub : nullptr, s});
  Value *x = isRest ? s->operand(0) : b.make(ops::neg, {s->operand(0)});
  r.replace(n.result(), b.make(ops::neg, {b.make(ops::softplus, {x})}));
  return true;
}

/// log(exp(a) + exp(b)) -> max(a, b) + softplus(-|a - b|), which neither overflows nor is infinite where both exponentials are 0:
/// PyTorch's exporters spell out logaddexp so. Equal infinities have no difference.
static bool recogniseLogAddExp(Node &n, Rewriter &r) {
  Node *sum = defBy(n.operand(0), ops::add);
  Node *left = sum ? defBy(sum->operand(0), ops::exp) : nullptr, *right = sum ? defBy(sum->operand(1), ops::exp) : nullptr;
  if (!left || !right || sum->result()->type.elem != n.result()->type.elem)
    return false;
  Builder b = r.before(n, {sum, left, right});
  Value *x = left->operand(0), *y = right->operand(0);
  Value *apart = b.make(ops::select, {b.make(ops::eq, {x, y}), b.scalar(0, x->type.elem), b.make(ops::sub, {x, y})});
  Value *rest = b.make(ops::softplus, {b.make(ops::neg, {b.make(ops::abs, {apart})})});
  r.replace(n.result(), b.make(ops::add, {b.make(ops::max, {x, y}), rest}));
  return true;
}

/// gather_elements(log_softmax(x[N, C]), labels[N, 1]) -> -cross_entropy(x, labels)
static bool recogniseCrossEntropy(Node &n, Rewriter &r) {
  Node *logs = defBy(n.operand(0), ops::log_softmax);
  Value *labels = n.operand(1);
  if (!logs || logs->result()->type.ndim() != 2 || logs->attrs.i("axis") != 1 || n.attrs.i("axis") != 1 ||
      labels->type.elem != Elem::I64 || labels->type.dims[1] != 1 || labels->type.dims[0] != logs->result()->type.dims[0] ||
      !r.hasOneUse(logs->result()) || isFloat16(logs->result()->type.elem))
    return false;
  Builder b = r.before(n, {logs});
  Value *flat = b.reshape(labels, {labels->type.dims[0]}); // of which negative ones count from the end
  Value *behind = b.make(ops::add, {flat, b.scalar(double(logs->result()->type.dims[1]), Elem::I64)});
  flat = b.make(ops::select, {b.make(ops::lt, {flat, b.scalar(0, Elem::I64)}), behind, flat});
  Value *loss = b.make(ops::cross_entropy, {logs->operand(0), flat}, {{"has_ignore", int64_t(0)}});
  r.replace(n.result(), b.make(ops::neg, {b.reshape(loss, labels->type.dims)}));
  return true;
}

llvm::ArrayRef<Rule> zcc::softmaxRules() {
  static const Rule rules[] = {{&ops::div, recogniseSoftmax},   {&ops::sub, recogniseLogSoftmax},
                               {&ops::log, logOfSoftmax},       {&ops::log, logOfSigmoid},
                               {&ops::log, recogniseLogAddExp}, {&ops::gather_elements, recogniseCrossEntropy}};
  return rules;
}
