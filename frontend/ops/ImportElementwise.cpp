// Elementwise operators without a counterpart of ours: mostly activations, which are expressions of what there is.
#include "frontend/onnx/SourceLoc.h"
#include "frontend/ops/Activation.h"
#include "llvm/ADT/StringSwitch.h"
#include <cmath>
#include <numbers>

using namespace zcc;

namespace {
namespace elementwise_ops {

// ---- several of ours, or one of several

/// Folded from the left: Max, Min, Sum of any number of operands.
template <const OpDef &Op> Val chain(NodeImport &n) {
  Val r = n.in(0);
  for (unsigned i = 1; i < n.inputs(); ++i)
    r = n.e(Op, r, n.in(i));
  return r;
}
template <const OpDef &Op> void variadic(NodeImport &n) { n.out(chain<Op>(n)); }

/// Max and Min. torch.clamp by a number comes as one of them, too, and like Clip has no gradient at the bound.
template <const OpDef &Op, const OpDef &Reaches> void extremum(NodeImport &n) {
  auto fx = fxNodeOf(n.node);
  if (!fx || !llvm::StringRef(fx->target).starts_with("aten.clamp.") || n.inputs() != 2 || n.in(1).rank() != 0 ||
      !Emitter::tensorOf(n.in(1)))
    return n.out(chain<Op>(n));
  Val x = n.in(0), bound = n.in(1);
  n.out(n.e.select(n.e(Reaches, x, bound), bound, x));
}

void mean(NodeImport &n) {
  Val s = chain<ops::add>(n);
  n.out(n.e.div(s, n.e.like(n.inputs(), s)));
}

/// torch.atan2 comes as the arc tangent of y / x, put right by what follows. The smaller over the larger of both has a
/// gradient where x is 0, too.
void arcTangent(NodeImport &n) {
  Emitter &e = n.e;
  Val slope = n.in(0);
  auto fx = fxNodeOf(n.node);
  const Node *div = slope.value ? slope.value->def : nullptr;
  if (!n.graph.training() || !fx || !llvm::StringRef(fx->target).starts_with("aten.atan2.") || !div || !div->is(ops::div))
    return n.out(e(ops::atan, slope));
  Val y = Emitter::of(div->operand(0)), x = Emitter::of(div->operand(1));
  Val isFlat = e(ops::le, e(ops::abs, y), e(ops::abs, x));
  Val smaller = e.select(isFlat, y, x), larger = e.select(isFlat, x, y), none = e(ops::eq, larger, e.like(0, x));
  Val angle = e(ops::atan, e.div(e.select(none, e.like(0, x), smaller), e.select(none, e.like(1, x), larger)));
  Val isDown = e(ops::ne, e(ops::lt, x, e.like(0, x)), e(ops::lt, y, e.like(0, y)));
  Val right = e.select(isDown, e.like(-std::numbers::pi / 2, x), e.like(std::numbers::pi / 2, x));
  n.out(e.select(isFlat, angle, e.sub(right, angle)));
}

void mod(NodeImport &n) {
  bool c = n.i("fmod") != 0;
  n.out(n.e(c ? ops::fmod : ops::mod, n.in(0), n.in(1)));
}

void bitShift(NodeImport &n) {
  const bool isLeft = n.oneOf("direction", {"LEFT", "RIGHT"}, "") == "LEFT";
  n.out(n.e(isLeft ? ops::shift_left : ops::shift_right, n.in(0), n.in(1)));
}

void isInf(NodeImport &n) {
  Val x = n.in(0), r = n.e(ops::isinf, x);
  if (!n.i("detect_negative", 1))
    r = n.e(ops::and_, r, n.e(ops::gt, x, n.e.like(0, x)));
  if (!n.i("detect_positive", 1))
    r = n.e(ops::and_, r, n.e(ops::lt, x, n.e.like(0, x)));
  n.out(r);
}

void cast(NodeImport &n) {
  n.ignore({"saturate", "round_mode"}); // only for 8-bit floats, which are refused
  n.out(n.e.cast(n.in(0), n.elemOf("to")));
}

void castLike(NodeImport &n) {
  n.ignore({"saturate", "round_mode"});
  n.out(n.e.cast(n.in(0), n.in(1).elem()));
}

/// Between integers of one size a conversion keeps the bits.
void bitCast(NodeImport &n) {
  Val x = n.in(0);
  Type to = x.type;
  to.elem = n.elemOf("to");
  if (elemBytes(to.elem) != elemBytes(x.elem()))
    invalid("the elements of " + x.type.str() + " and " + elemName(to.elem) + " differ in size");
  if (const Tensor *t = x.known ? Emitter::tensorOf(x) : nullptr)
    return n.out(Emitter::known(tensorFromBytes(to, tensorToBytes(*t))));
  bool isOfFloats = to.elem != x.elem() && (x.isFloat() || isFloat(to.elem));
  if ((isOfFloats && elemBytes(to.elem) < 4) || (to.elem != x.elem() && to.elem == Elem::Bool))
    unsupported("the bits of " + elemName(x.elem()) + " as " + elemName(to.elem));
  n.out(isOfFloats ? n.e.emit(ops::bit_cast, {x}, {{"to", elemName(to.elem).str()}}) : n.e.cast(x, to.elem));
}

/// Tensor.detach is an Identity in ONNX; PyTorch's default exporter, unoptimised, says so in the
/// node's metadata.
void identity(NodeImport &n) {
  Val x = n.in(0);
  auto fx = n.graph.training() && !x.list && x.isFloat() ? fxNodeOf(n.node) : std::nullopt;
  bool stops = fx && llvm::StringRef(fx->target).starts_with("aten.detach");
  n.out(stops ? n.e(ops::stop_gradient, x) : x);
}

/// No gradient at the bounds themselves, as torch.clamp, relu6 and hardtanh have it.
void clip(NodeImport &n) {
  Val x = n.in(0), y = x;
  Val bounds[3]; // numbers, which files have as [1], too
  for (unsigned i : {1u, 2u})
    if (n.has(i))
      bounds[i] = n.e.reshape(n.in(i), {});
  if (n.has(2))
    y = n.e.select(n.e(ops::ge, y, bounds[2]), bounds[2], y);
  if (n.has(1))
    y = n.e.select(n.e(ops::le, x, bounds[1]), bounds[1], y);
  if (n.has(1) && n.has(2)) // where the bounds cross, the upper one wins
    y = n.e(ops::min, y, bounds[2]);
  if (auto *q = y.value ? n.graph.passOn(x) : nullptr) { // to fewer levels
    GraphImporter::Quantized narrow{q->from, q->isInRange};
    for (auto [i, op] : {std::pair(1u, &ops::ge), std::pair(2u, &ops::le)})
      if (n.has(i))
        narrow.isInRange = n.e(ops::and_, narrow.isInRange, n.e(*op, x, bounds[i]));
    n.graph.quantized[y.value] = narrow;
  }
  n.out(y);
}

// ---- activations

Val positive(Emitter &e, const Val &x) { return e(ops::gt, x, e.like(0, x)); }
Val zero(Emitter &e, const Val &x) { return e.like(0, x); }
/// exp(x) - 1 for x <= 0, without overflow elsewhere; the whole gradient at 0, as PyTorch has it.
Val expm1Negative(Emitter &e, const Val &x) { return e(ops::expm1, e.select(positive(e, x), zero(e, x), x)); }

Val leakyReluOf(Emitter &e, const Val &x, double alpha) { return e.select(positive(e, x), x, e.mul(x, alpha)); }

void leakyRelu(NodeImport &n) { n.out(leakyReluOf(n.e, n.in(0), n.f("alpha", 0.01))); }

/// The slope broadcasts to the right (ONNX); PyTorch's has been given its axes by the exporter.
void prelu(NodeImport &n) {
  Emitter &e = n.e;
  Val x = n.in(0);
  n.out(e.select(positive(e, x), x, e.mul(x, n.in(1))));
}

Val eluOf(Emitter &e, const Val &x, double alpha) { return e.select(positive(e, x), x, e.mul(expm1Negative(e, x), alpha)); }

void elu(NodeImport &n) { n.out(eluOf(n.e, n.in(0), n.f("alpha", 1))); }

void celu(NodeImport &n) {
  Emitter &e = n.e;
  Val x = n.in(0);
  double alpha = n.f("alpha", 1);
  n.out(e.select(positive(e, x), x, e.mul(expm1Negative(e, e.mul(x, 1 / alpha)), alpha)));
}

void selu(NodeImport &n) {
  Emitter &e = n.e;
  Val x = n.in(0);
  double alpha = n.f("alpha", 1.67326319217681884765625), gamma = n.f("gamma", 1.05070102214813232421875);
  n.out(e.select(positive(e, x), e.mul(x, gamma), e.mul(expm1Negative(e, x), alpha * gamma)));
}

Val hardSigmoidOf(Emitter &e, const Val &x, double alpha, double beta) {
  Val y = e.add(e.mul(x, alpha), beta);
  Val one = e.like(1, x);
  return e.select(e(ops::le, y, zero(e, y)), zero(e, y), e.select(e(ops::ge, y, one), one, y));
}

void hardSigmoid(NodeImport &n) {
  double alpha = n.f("alpha", 0.2);
  if (std::abs(alpha - 1.0 / 6) < 1e-7) // PyTorch's, printed as a float
    alpha = 1.0 / 6;
  n.out(hardSigmoidOf(n.e, n.in(0), alpha, n.f("beta", 0.5)));
}

Val hardSwishOf(Emitter &e, const Val &x) { return e.mul(x, hardSigmoidOf(e, x, 1.0 / 6, 0.5)); }

void hardSwish(NodeImport &n) { n.out(hardSwishOf(n.e, n.in(0))); }

Val thresholdedReluOf(Emitter &e, const Val &x, double alpha) { return e.select(e(ops::gt, x, e.like(alpha, x)), x, zero(e, x)); }

void thresholdedRelu(NodeImport &n) { n.out(thresholdedReluOf(n.e, n.in(0), n.f("alpha", 1))); }

Val softsignOf(Emitter &e, const Val &x) { return e.div(x, e.add(e(ops::abs, x), 1)); }

void softsign(NodeImport &n) { n.out(softsignOf(n.e, n.in(0))); }

void gelu(NodeImport &n) {
  const bool byTanh = n.oneOf("approximate", {"none", "tanh"}, "none") == "tanh";
  n.out(n.e(byTanh ? ops::gelu_tanh : ops::gelu, n.in(0)));
}

void mish(NodeImport &n) {
  Val x = n.in(0);
  n.out(n.e.mul(x, n.e(ops::tanh, n.e(ops::softplus, x))));
}

Val swishOf(Emitter &e, const Val &x, double alpha) {
  return alpha == 1 ? e(ops::silu, x) : e.mul(x, e(ops::sigmoid, e.mul(x, alpha)));
}

void swish(NodeImport &n) { n.out(swishOf(n.e, n.in(0), n.f("alpha", 1))); }

void swiGlu(NodeImport &n) { n.out(n.e.mul(swishOf(n.e, n.in(0), n.f("alpha", 1)), n.in(1))); }

void shrink(NodeImport &n) {
  Emitter &e = n.e;
  Val x = n.in(0);
  double lambda = n.f("lambd", 0.5), bias = n.f("bias", 0);
  Val high = e(ops::gt, x, e.like(lambda, x)), low = e(ops::lt, x, e.like(-lambda, x));
  n.out(e.select(low, e.add(x, bias), e.select(high, e.add(x, -bias), zero(e, x))));
}

/// Equal of booleans is not exclusive or.
void equal(NodeImport &n) {
  Val a = n.in(0), b = n.in(1);
  if (a.elem() == Elem::Bool)
    return n.out(n.e(ops::not_, n.e(ops::xor_, a, b)));
  n.out(n.e(ops::eq, a, b));
}

const OnnxOp kOps[] = {
    {"Atan", arcTangent},
    {"Mod", mod},
    {"Max", extremum<ops::max, ops::le>},
    {"Min", extremum<ops::min, ops::ge>},
    {"Sum", variadic<ops::add>},
    {"Mean", mean},
    {"IsInf", isInf},
    {"Equal", equal},
    {"BitShift", bitShift},
    {"Cast", cast},
    {"CastLike", castLike},
    {"BitCast", bitCast},
    {"Identity", identity},
    {"Clip", clip},
    {"LeakyRelu", leakyRelu},
    {"PRelu", prelu},
    {"Elu", elu},
    {"Celu", celu},
    {"Selu", selu},
    {"HardSigmoid", hardSigmoid},
    {"HardSwish", hardSwish},
    {"ThresholdedRelu", thresholdedRelu},
    {"Softsign", softsign},
    {"Gelu", gelu},
    {"Mish", mish},
    {"Swish", swish},
    {"SwiGLU", swiGlu},
    {"Shrink", shrink},
};

} // namespace elementwise_ops
} // namespace

llvm::ArrayRef<OnnxOp> zcc::elementwiseOps() { return elementwise_ops::kOps; }

size_t zcc::activationParameters(llvm::StringRef name) {
  return llvm::StringSwitch<size_t>(name)
      .CasesLower("leakyrelu", "thresholdedrelu", "elu", 1)
      .CasesLower("hardsigmoid", "affine", "scaledtanh", 2)
      .Default(0);
}

Val zcc::activation(Emitter &e, const Val &x, llvm::StringRef name, llvm::ArrayRef<std::optional<double>> p) {
  auto parameter = [&](size_t i, double otherwise) { return i < p.size() ? p[i].value_or(otherwise) : otherwise; };
  std::string f = name.lower();
  static const std::pair<const char *, const OpDef *> kPlain[] = {
      {"relu", &ops::relu}, {"tanh", &ops::tanh}, {"sigmoid", &ops::sigmoid}, {"softplus", &ops::softplus}};
  for (auto [plain, op] : kPlain)
    if (f == plain)
      return e(*op, x);
  if (f == "leakyrelu")
    return elementwise_ops::leakyReluOf(e, x, parameter(0, 0.01));
  if (f == "thresholdedrelu")
    return elementwise_ops::thresholdedReluOf(e, x, parameter(0, 1));
  if (f == "elu")
    return elementwise_ops::eluOf(e, x, parameter(0, 1));
  if (f == "hardsigmoid")
    return elementwise_ops::hardSigmoidOf(e, x, parameter(0, 0.2), parameter(1, 0.5));
  if (f == "hardswish")
    return elementwise_ops::hardSwishOf(e, x);
  if (f == "softsign")
    return elementwise_ops::softsignOf(e, x);
  if (f == "affine")
    return e.add(e.mul(x, parameter(0, 1)), parameter(1, 0));
  if (f == "clip" && p.size() > 1 && p[0] && p[1])
    return e(ops::min, e(ops::max, x, e.like(*p[0], x)), e.like(*p[1], x));
  unsupported("activation '" + name + "'");
}
