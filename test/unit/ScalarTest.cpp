// The scalar language: parsing, evaluation over each kind, and what it refuses.
#include "ir/Scalar.h"
#include "ir/Op.h"
#include <cmath>
#include <gtest/gtest.h>

namespace scalar_test {

using namespace zcc;
using llvm::StringRef;

static double eval(StringRef text, double x = 0, double z = 0) {
  auto s = parseScalar(text);
  if (!s) {
    ADD_FAILURE() << text.str() << ": " << llvm::toString(s.takeError());
    return 0;
  }
  return llvm::cantFail(evalScalar(**s, {{"x", x}, {"z", z}}));
}

static int64_t evalInt(StringRef text, int64_t x, int64_t z = 0) {
  auto s = llvm::cantFail(parseScalar(text));
  return llvm::cantFail(evalScalarInt(*s, {{"x", x}, {"z", z}}));
}

/// The message about a text that does not parse, or whose kinds do not fit.
static std::string refusal(StringRef text, llvm::ArrayRef<ScalarName> names = {}) {
  auto s = parseScalar(text);
  if (!s)
    return llvm::toString(s.takeError());
  auto p = ScalarProgram::compile(**s, names);
  return p ? "" : llvm::toString(p.takeError());
}

TEST(Scalar, PrecedenceIsThatOfC) {
  EXPECT_EQ(eval("1 + 2 * 3"), 7);
  EXPECT_EQ(eval("(1 + 2) * 3"), 9);
  EXPECT_EQ(eval("10 - 4 - 3"), 3);
  EXPECT_EQ(eval("8 / 4 / 2"), 1);
  EXPECT_EQ(eval("-x * z", 2, 3), -6);
  EXPECT_EQ(eval("2 - -x", 3), 5);
  EXPECT_EQ(eval("x < 1 && z > 2 || x == 5 ? 10 : 20", 5, 0), 10);
  EXPECT_EQ(eval("x < 0 ? 1 : x < 1 ? 2 : 3", 0.5), 2);
  EXPECT_EQ(eval("1e-3 * 2.5e+3"), 2.5);
  EXPECT_EQ(evalInt("x | z << 1 & 6", 1, 1), 3);
}

TEST(Scalar, FunctionsOverFloats) {
  EXPECT_EQ(eval("max(x, z)", -1, 2), 2);
  EXPECT_TRUE(std::isnan(eval("max(x, nan)", 1)));
  EXPECT_TRUE(std::isnan(eval("min(nan, x)", 1)));
  EXPECT_EQ(eval("sign(x)", -3), -1);
  EXPECT_EQ(eval("round(x)", 2.5), 2);
  EXPECT_EQ(eval("round(x)", -3.5), -4);
  EXPECT_EQ(eval("mod(x, z)", -7, 3), 2);
  EXPECT_EQ(eval("fmod(x, z)", -7, 3), -1);
  EXPECT_TRUE(std::signbit(eval("mod(x, z)", 4, -2)));
  EXPECT_EQ(eval("rsqrt(x)", 4), 0.5);
  EXPECT_EQ(eval("isinf(-1 / x) && !isnan(x) ? 1 : 0", 0), 1);
  EXPECT_EQ(eval("sigmoid(x)", -1000), 0);
  EXPECT_EQ(eval("sigmoid(x)", 1000), 1);
  EXPECT_DOUBLE_EQ(eval("sigmoid(x)", 0.5), 1 / (1 + std::exp(-0.5)));
}

TEST(Scalar, IntegersWrapAndNeverTrap) {
  EXPECT_EQ(evalInt("x + z", INT64_MAX, 1), INT64_MIN);
  EXPECT_EQ(evalInt("x * z", INT64_MAX, 2), -2);
  EXPECT_EQ(evalInt("-x", INT64_MIN), INT64_MIN);
  EXPECT_EQ(evalInt("x / z", -7, 2), -3);
  EXPECT_EQ(evalInt("x / z", 7, 0), 0);
  EXPECT_EQ(evalInt("x / z", INT64_MIN, -1), INT64_MIN);
  EXPECT_EQ(evalInt("mod(x, z)", -7, 3), 2);
  EXPECT_EQ(evalInt("fmod(x, z)", INT64_MIN, -1), 0);
  EXPECT_EQ(evalInt("x << z", 5, 64), 0);
  EXPECT_EQ(evalInt("x << z", 5, -1), 0);
  EXPECT_EQ(evalInt("x >> z", -8, 100), -1);
  EXPECT_EQ(evalInt("pow(x, z)", -3, 3), -27);
  EXPECT_EQ(evalInt("pow(x, z)", 2, -1), 0);
  EXPECT_EQ(evalInt("~x", 5), -6);
  EXPECT_EQ(evalInt("x >> z", -8, 1), -4);
  EXPECT_EQ(evalInt("x << z", 1, 64), 0);
}

TEST(Scalar, UnsignedComparesByMagnitude) {
  ScalarName names[] = {{"x", ScalarKind::Unsigned}, {"z", ScalarKind::Unsigned}};
  uint64_t x = uint64_t(1) << 63, z = 1, r = 0;
  auto max = llvm::cantFail(ScalarProgram::compile(**parseScalar("max(x, z)"), names));
  max.run({&x, &z}, &r, 1);
  EXPECT_EQ(r, x);
  int64_t less = -1;
  auto lt = llvm::cantFail(ScalarProgram::compile(**parseScalar("x < z"), names));
  EXPECT_EQ(lt.resultKind(), ScalarKind::Bool);
  lt.run({&x, &z}, &less, 1);
  EXPECT_EQ(less, 0);
}

TEST(Scalar, SelectionDoesNotMixIn) {
  EXPECT_EQ(eval("x > 0 ? z : 0", -1, NAN), 0);
  EXPECT_EQ(eval("x == 0 ? 0 : z / x", 0, 1), 0);
}

TEST(Scalar, BlocksOfManyValues) {
  std::vector<double> x(ScalarProgram::kBlock), y(ScalarProgram::kBlock);
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = double(i);
  auto p = llvm::cantFail(ScalarProgram::compile(**parseScalar("x * x + 1"), {{"x", ScalarKind::Float}}));
  p.run({x.data()}, y.data(), ScalarProgram::kBlock);
  p.run({x.data() + 8}, y.data(), 8); // a shorter block leaves the rest
  EXPECT_EQ(y[0], 65);
  EXPECT_EQ(y[7], 226);
  EXPECT_EQ(y[255], 255 * 255 + 1);
}

TEST(Scalar, SyntaxErrorsNameTheColumn) {
  EXPECT_EQ(refusal("1 +"), "column 4: expected a value");
  EXPECT_EQ(refusal("(1 + 2"), "column 7: expected ')'");
  EXPECT_EQ(refusal("1 ? 2"), "column 6: expected ':'");
  EXPECT_EQ(refusal("1 2"), "column 3: unexpected '2'");
}

TEST(Scalar, KindsMustFit) {
  ScalarName names[] = {{"f", ScalarKind::Float}, {"i", ScalarKind::Int}, {"b", ScalarKind::Bool}};
  EXPECT_EQ(refusal("q + 1", names), "there is no operand 'q'");
  EXPECT_EQ(refusal("sin(f, f)", names), "there is no function 'sin' of 2 operands");
  EXPECT_EQ(refusal("f + i", names), "'+' meets floating-point and integer operands");
  EXPECT_EQ(refusal("b + b", names), "'+' does not take bool operands");
  EXPECT_EQ(refusal("exp(i)", names), "'exp' does not take integer operands");
  EXPECT_EQ(refusal("f & 1", names), "'&' does not take floating-point operands");
  EXPECT_EQ(refusal("f ? 1 : 2", names), "the condition of '?' must be bool");
  EXPECT_EQ(refusal("b == (f < 1) ? f : 0", names), "");
}

/// The gradient rule of an operand for dy = 1, at the operands' values.
static double gradient(const OpDef &op, std::vector<double> at, unsigned operand = 0) {
  std::vector<std::pair<StringRef, double>> names;
  for (size_t i = 0; i < at.size(); ++i)
    names.push_back({op.operands[i].name, at[i]});
  names.push_back({"y", llvm::cantFail(evalScalar(scalarOf(op), names))});
  names.push_back({"dy", 1});
  llvm::SmallVector<StringRef, 3> rules;
  StringRef(op.grad).split(rules, ';');
  return llvm::cantFail(evalScalar(**parseScalar(rules[operand].trim()), names));
}

TEST(Gradients, WhereThereIsNoDerivativeTheyArePyTorchs) {
  EXPECT_EQ(gradient(ops::relu, {0}), 0);
  EXPECT_EQ(gradient(ops::abs, {0}), 0);
  EXPECT_EQ(gradient(ops::sqrt, {0}), INFINITY);
  for (unsigned operand : {0, 1}) {
    EXPECT_EQ(gradient(ops::max, {2, 2}, operand), 0.5);
    EXPECT_EQ(gradient(ops::min, {2, 2}, operand), 0.5);
  }
  EXPECT_EQ(gradient(ops::max, {3, 2}, 0), 1);
  EXPECT_EQ(gradient(ops::max, {3, 2}, 1), 0);
  EXPECT_EQ(gradient(ops::min, {3, 2}, 1), 1);
}

TEST(Gradients, OfPowersAtZero) {
  EXPECT_EQ(gradient(ops::pow, {0, 0}, 0), 0);
  EXPECT_EQ(gradient(ops::pow, {0, 2}, 0), 0);
  EXPECT_EQ(gradient(ops::pow, {0, 1}, 0), 1);
  EXPECT_EQ(gradient(ops::pow, {0, 2}, 1), 0);
  EXPECT_EQ(gradient(ops::pow, {-2, 3}, 0), 12);
  EXPECT_TRUE(std::isnan(gradient(ops::pow, {-2, 3}, 1)));
}

TEST(Gradients, OfActivationsFarFromZero) {
  auto slope = [](const OpDef &grad, double x) { return llvm::cantFail(evalScalar(scalarOf(grad), {{"x", x}, {"dy", 1.0}})); };
  EXPECT_EQ(gradient(ops::softplus, {200}), 1);
  EXPECT_EQ(gradient(ops::softplus, {-200}), std::exp(-200));
  EXPECT_EQ(slope(ops::silu_grad, -800), 0);
  EXPECT_EQ(slope(ops::gelu_grad, 50), 1);
  EXPECT_EQ(slope(ops::gelu_tanh_grad, -50), 0);
  EXPECT_EQ(gradient(ops::sigmoid, {800}), 0);
}

} // namespace scalar_test
