// Elementwise operators: what they compute and their gradients, as scalar expressions (ir/Scalar.h). Where a function has no
// derivative the rules follow PyTorch: that of relu and abs at 0 is 0, equal operands of max and min share alike.
#include "ir/Builder.h"

using namespace zcc;

/// An operator of one operand `x`.
static consteval OpDef unary(const char *name, const char *onnx, const char *scalar, const char *grad, const char *summary,
                             Precision precision = Precision::Follow) {
  OpDef d;
  d.name = name;
  d.summary = summary;
  d.onnx = onnx;
  d.operands = {{{"x"}}};
  d.scalar = scalar;
  d.grad = grad;
  d.precision = precision;
  return defineOp(d);
}

/// A function that a library computes, in f32.
static consteval OpDef function(const char *name, const char *onnx, const char *scalar, const char *grad, const char *summary) {
  OpDef d = unary(name, onnx, scalar, grad, summary, Precision::F32);
  d.dear = true;
  return d;
}

/// An operator of two operands `a` and `b`.
static consteval OpDef binary(const char *name, const char *onnx, const char *scalar, const char *grad, const char *summary) {
  OpDef d;
  d.name = name;
  d.summary = summary;
  d.onnx = onnx;
  d.operands = {{{"a"}, {"b"}}};
  d.scalar = scalar;
  d.grad = grad;
  return defineOp(d);
}

static consteval OpDef linear(OpDef d, uint32_t operands) {
  d.linear = operands;
  return d;
}

static consteval OpDef cheap(OpDef d) {
  d.cheap = true;
  return d;
}
static consteval OpDef dear(OpDef d) {
  d.dear = true;
  return d;
}
static consteval OpDef exact(OpDef d) {
  d.exact = true;
  return d;
}

/// Results that nothing can be derived from.
static consteval OpDef test(OpDef d) {
  d.grad = nullptr;
  d.noGrad = "a truth value has no gradient";
  d.resultElem = ResultElem::Bool;
  return defineOp(d);
}
static consteval OpDef ofIntegers(OpDef d) {
  d.grad = nullptr;
  d.noGrad = "an integer has no gradient";
  return defineOp(d);
}

// ---- arithmetic

constexpr OpDef ops::add = cheap(linear(binary("add", "Add", "a + b", "dy; dy", "sum"), kAllOperands));
constexpr OpDef ops::sub = cheap(linear(binary("sub", "Sub", "a - b", "dy; -dy", "difference"), kAllOperands));
constexpr OpDef ops::mul = [] {
  OpDef d = cheap(linear(binary("mul", "Mul", "a * b", "dy * b; dy * a", "product"), kAllOperands));
  d.bilinear = true;
  return d;
}();
constexpr OpDef ops::div = linear(binary("div", "Div", "a / b", "dy / b; -dy * (y / b)", "quotient; of integers, truncated"), 1);
constexpr OpDef ops::pow = [] {
  OpDef d = binary("pow", nullptr, "pow(a, b)", "b == 0 ? 0 : dy * (b * pow(a, b - 1)); a == 0 && b >= 0 ? 0 : dy * (y * log(a))",
                   "a to the power of b");
  d.precision = Precision::F32;
  d.dear = true;
  return d;
}();
constexpr OpDef ops::max =
    cheap(exact(binary("max", nullptr, "max(a, b)", "a == b ? dy * 0.5 : a < b ? 0 : dy; a == b ? dy * 0.5 : b < a ? 0 : dy",
                       "the larger one; NaN if either is")));
constexpr OpDef ops::min =
    cheap(exact(binary("min", nullptr, "min(a, b)", "a == b ? dy * 0.5 : b < a ? 0 : dy; a == b ? dy * 0.5 : a < b ? 0 : dy",
                       "the smaller one; NaN if either is")));
constexpr OpDef ops::mod =
    dear(binary("mod", nullptr, "mod(a, b)", "dy; -dy * floor(a / b)", "remainder with the sign of b, as Python's"));
constexpr OpDef ops::fmod = dear(binary("fmod", nullptr, "fmod(a, b)", "dy; a / b < 0 ? -dy * ceil(a / b) : -dy * floor(a / b)",
                                        "remainder with the sign of a, as C's"));

constexpr OpDef ops::neg = cheap(exact(linear(unary("neg", "Neg", "-x", "-dy", "negative"), kAllOperands)));
constexpr OpDef ops::abs = exact(unary("abs", "Abs", "abs(x)", "dy * sign(x)", "absolute value"));
constexpr OpDef ops::sign = unary("sign", "Sign", "sign(x)", "0", "-1, 0 or 1");
constexpr OpDef ops::sqrt = unary("sqrt", nullptr, "sqrt(x)", "dy / (2 * y)", "square root", Precision::F32);
constexpr OpDef ops::rsqrt = unary("rsqrt", nullptr, "rsqrt(x)", "dy * (-0.5 * (y * y * y))", "1 / sqrt(x)", Precision::F32);
constexpr OpDef ops::reciprocal = unary("reciprocal", "Reciprocal", "1 / x", "-dy * (y * y)", "1 / x", Precision::F32);

// ---- exponentials, logarithms, trigonometry

constexpr OpDef ops::exp = function("exp", "Exp", "exp(x)", "dy * y", "e^x");
constexpr OpDef ops::expm1 = function("expm1", nullptr, "expm1(x)", "dy * (y + 1)", "e^x - 1");
constexpr OpDef ops::log = function("log", "Log", "log(x)", "dy / x", "natural logarithm");
constexpr OpDef ops::log1p = function("log1p", nullptr, "log1p(x)", "dy / (x + 1)", "log(1 + x)");
constexpr OpDef ops::sin = function("sin", "Sin", "sin(x)", "dy * cos(x)", "sine");
constexpr OpDef ops::cos = function("cos", "Cos", "cos(x)", "-dy * sin(x)", "cosine");
constexpr OpDef ops::tan = function("tan", "Tan", "tan(x)", "dy * (y * y + 1)", "tangent");
constexpr OpDef ops::asin = function("asin", "Asin", "asin(x)", "dy * rsqrt(1 - x * x)", "inverse sine");
constexpr OpDef ops::acos = function("acos", "Acos", "acos(x)", "-dy * rsqrt(1 - x * x)", "inverse cosine");
constexpr OpDef ops::atan = function("atan", nullptr, "atan(x)", "dy / (x * x + 1)", "inverse tangent");
constexpr OpDef ops::sinh = function("sinh", "Sinh", "sinh(x)", "dy * cosh(x)", "hyperbolic sine");
constexpr OpDef ops::cosh = function("cosh", "Cosh", "cosh(x)", "dy * sinh(x)", "hyperbolic cosine");
constexpr OpDef ops::asinh = function("asinh", "Asinh", "asinh(x)", "dy * rsqrt(x * x + 1)", "inverse hyperbolic sine");
constexpr OpDef ops::acosh = function("acosh", "Acosh", "acosh(x)", "dy * rsqrt(x * x - 1)", "inverse hyperbolic cosine");
constexpr OpDef ops::atanh = function("atanh", "Atanh", "atanh(x)", "dy / (1 - x * x)", "inverse hyperbolic tangent");
constexpr OpDef ops::erf = function("erf", "Erf", "erf(x)", "dy * (1.1283791670955126 * exp(-(x * x)))", "error function");

// ---- activations

constexpr OpDef ops::tanh = function("tanh", "Tanh", "tanh(x)", "dy * (1 - y * y)", "hyperbolic tangent");
constexpr OpDef ops::sigmoid = function("sigmoid", "Sigmoid", "sigmoid(x)", "dy * ((1 - y) * y)", "1 / (1 + e^-x)");
constexpr OpDef ops::softplus =
    function("softplus", "Softplus", "max(x, 0) + log1p(exp(-abs(x)))", "dy * sigmoid(x)", "log(1 + e^x)");
constexpr OpDef ops::relu = cheap(exact(unary("relu", "Relu", "max(x, 0)", "y <= 0 ? 0 : dy", "x where positive, else 0")));
/// The gradient by an operator of `x` and `dy`.
static llvm::SmallVector<Value *, 4> gradActivation(Builder &b, Node &n, llvm::ArrayRef<Value *> dy) {
  const OpDef &by = n.is(ops::gelu) ? ops::gelu_grad : n.is(ops::gelu_tanh) ? ops::gelu_tanh_grad : ops::silu_grad;
  return {b.make(by, {n.operand(0), dy[0]})};
}

/// An operator that costs as much as a function but takes 16-bit operands as they are: it rounds once, and bfloat16's are
/// computed `roughly`.
static consteval OpDef roughFunction(const char *name, const char *scalar, const char *roughly, const char *summary) {
  OpDef d;
  d.name = name;
  d.summary = summary;
  d.operands = {{{"x"}}};
  d.scalar = scalar;
  d.roughly = roughly;
  d.dear = true;
  return d;
}
static consteval OpDef activation(const char *name, const char *scalar, const char *roughly, const char *summary) {
  OpDef d = roughFunction(name, scalar, roughly, summary);
  d.gradFn = gradActivation;
  return defineOp(d);
}
static consteval OpDef activationGrad(const char *name, const char *scalar, const char *roughly, const char *summary) {
  OpDef d = roughFunction(name, scalar, roughly, summary);
  d.operands = {{{"x"}, {"dy"}}};
  d.noGrad = "it is a gradient";
  d.linear = 0b10;
  return defineOp(d);
}

constexpr OpDef ops::gelu = activation("gelu", "x * 0.5 * (1 + erf(x * 0.7071067811865476))", "x * rough_normal(x)",
                                       "x times the normal distribution function");
constexpr OpDef ops::gelu_grad = activationGrad("gelu_grad",
                                                "dy * (0.5 * (1 + erf(x * 0.7071067811865476)) + "
                                                "x * (exp(x * x * -0.5) * 0.3989422804014327))",
                                                "dy * rough_gelu_slope(x)", "gradient of gelu");
constexpr OpDef ops::gelu_tanh =
    activation("gelu_tanh", "x * sigmoid(1.5957691216057308 * (x + 0.044715 * (x * x * x)))",
               "x * rough_sigmoid(1.5957691216057308 * (x + 0.044715 * (x * x * x)))", "gelu with tanh in place of erf");
constexpr OpDef ops::gelu_tanh_grad =
    activationGrad("gelu_tanh_grad",
                   "dy * (sigmoid(1.5957691216057308 * (x + 0.044715 * (x * x * x))) * "
                   "(1 + x * (1 - sigmoid(1.5957691216057308 * (x + 0.044715 * (x * x * x)))) * "
                   "(1.5957691216057308 + 0.2140644488178 * (x * x))))",
                   "dy * (rough_sigmoid(1.5957691216057308 * (x + 0.044715 * (x * x * x))) * "
                   "(1 + x * (1 - rough_sigmoid(1.5957691216057308 * (x + 0.044715 * (x * x * x)))) * "
                   "(1.5957691216057308 + 0.2140644488178 * (x * x))))",
                   "gradient of gelu_tanh");
constexpr OpDef ops::silu = activation("silu", "x * sigmoid(x)", "x * rough_sigmoid(x)", "x times its sigmoid");
constexpr OpDef ops::silu_grad = activationGrad("silu_grad", "dy * (sigmoid(x) * (1 + x * (1 - sigmoid(x))))",
                                                "dy * (rough_sigmoid(x) * (1 + x * (1 - rough_sigmoid(x))))", "gradient of silu");

constexpr OpDef ops::stop_gradient = defineOp({
    .name = "stop_gradient",
    .summary = "x, through which no gradient flows; gone after differentiation",
    .operands = {{{"x"}}},
    .scalar = "x",
    .noGrad = "gradients stop at it",
    .stopsGradient = true,
});

// ---- rounding and tests

constexpr OpDef ops::floor = unary("floor", "Floor", "floor(x)", "0", "rounds down");
constexpr OpDef ops::ceil = unary("ceil", "Ceil", "ceil(x)", "0", "rounds up");
constexpr OpDef ops::round = unary("round", "Round", "round(x)", "0", "rounds to the nearest integer, halves to even");
constexpr OpDef ops::isnan = test(unary("isnan", "IsNaN", "isnan(x)", "0", "whether x is not a number"));
constexpr OpDef ops::isinf = test(unary("isinf", nullptr, "isinf(x)", "0", "whether x is infinite"));

constexpr OpDef ops::eq = cheap(test(binary("eq", nullptr, "a == b", "0", "whether equal")));
constexpr OpDef ops::ne = cheap(test(binary("ne", nullptr, "a != b", "0", "whether different")));
constexpr OpDef ops::lt = cheap(test(binary("lt", "Less", "a < b", "0", "whether a is less")));
constexpr OpDef ops::le = cheap(test(binary("le", "LessOrEqual", "a <= b", "0", "whether a is less or equal")));
constexpr OpDef ops::gt = cheap(test(binary("gt", "Greater", "a > b", "0", "whether a is greater")));
constexpr OpDef ops::ge = cheap(test(binary("ge", "GreaterOrEqual", "a >= b", "0", "whether a is greater or equal")));

// ---- truth values and bits

constexpr OpDef ops::and_ = test(binary("and", "And", "a && b", "0", "whether both are true"));
constexpr OpDef ops::or_ = test(binary("or", "Or", "a || b", "0", "whether one is true"));
constexpr OpDef ops::xor_ = test(binary("xor", "Xor", "!a != !b", "0", "whether exactly one is true"));
constexpr OpDef ops::not_ = test(unary("not", "Not", "!x", "0", "whether false"));

constexpr OpDef ops::bit_and = ofIntegers(binary("bit_and", "BitwiseAnd", "a & b", "0", "bits set in both"));
constexpr OpDef ops::bit_or = ofIntegers(binary("bit_or", "BitwiseOr", "a | b", "0", "bits set in one"));
constexpr OpDef ops::bit_xor = ofIntegers(binary("bit_xor", "BitwiseXor", "a ^ b", "0", "bits set in exactly one"));
constexpr OpDef ops::bit_not = ofIntegers(unary("bit_not", "BitwiseNot", "~x", "0", "other bits"));
constexpr OpDef ops::shift_left = ofIntegers(binary("shift_left", nullptr, "a << b", "0", "bits moved up by b"));
constexpr OpDef ops::shift_right = ofIntegers(binary("shift_right", nullptr, "a >> b", "0", "bits moved down by b"));

// ---- choice and conversion

constexpr OpDef ops::select = defineOp({
    .name = "select",
    .summary = "a where the condition is true, else b",
    .onnx = "Where",
    .operands = {{{"cond", OperandDef::AnyElem}, {"a"}, {"b"}}},
    .scalar = "cond ? a : b",
    .grad = "0; cond ? dy : 0; cond ? 0 : dy",
    .resultElem = ResultElem::Second,
    .linear = 0b110,
    .exact = true,
    .cheap = true,
});

/// Between floating-point elements the gradient is cast back; others have none.
static llvm::SmallVector<Value *, 4> gradCast(Builder &b, Node &n, llvm::ArrayRef<Value *> dy) {
  Elem from = n.operand(0)->type.elem;
  return {isFloat(from) ? b.cast(dy[0], from) : nullptr};
}

constexpr OpDef ops::cast = defineOp({
    .name = "cast",
    .summary = "converts: floats to integers are truncated, to bool is != 0",
    .operands = {{{"x"}}},
    .attrs = {{{"to", AttrKind::Str, nullptr}}},
    .scalar = "x",
    .gradFn = gradCast,
    .resultElem = ResultElem::To,
    .linear = kAllOperands,
    .cheap = true,
});

constexpr OpDef ops::bit_cast = defineOp({
    .name = "bit_cast",
    .summary = "the same bits as elements of another type of 4 or 8 bytes",
    .operands = {{{"x"}}},
    .attrs = {{{"to", AttrKind::Str, nullptr}}},
    .scalar = "x",
    .noGrad = "bits have no gradient",
    .resultElem = ResultElem::ToOfEqualSize,
    .precision = Precision::F32,
});
