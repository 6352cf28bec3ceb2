// The functions of scalar expressions, and expressions compiled to steps over blocks of values.
#include "ir/Diag.h"
#include "ir/Philox.h"
#include "ir/Scalar.h"
#include <cmath>
#include <cstring>

using namespace zcc;
using llvm::StringRef;

// ---- loops over a block

template <typename T> static constexpr bool isTruth = std::is_same_v<T, bool>;
/// A Bool lies in an int64_t.
template <typename T> using Stored = std::conditional_t<isTruth<T>, int64_t, T>;

/// Applies F, a lambda over T, to N arrays of T.
template <int N, typename T, auto F> static void each(const void *const *in, void *out, int64_t n) {
  using S = Stored<T>;
  auto a = static_cast<const S *>(in[0]);
  if constexpr (N == 1) {
    auto r = static_cast<Stored<decltype(F(T()))> *>(out);
    for (int64_t i = 0; i < n; ++i)
      r[i] = F(T(a[i]));
  } else if constexpr (N == 3) {
    auto b = static_cast<const S *>(in[1]), c = static_cast<const S *>(in[2]);
    auto r = static_cast<Stored<decltype(F(T(), T(), T()))> *>(out);
    for (int64_t i = 0; i < n; ++i)
      r[i] = F(T(a[i]), T(b[i]), T(c[i]));
  } else {
    auto b = static_cast<const S *>(in[1]);
    auto r = static_cast<Stored<decltype(F(T(), T()))> *>(out);
    for (int64_t i = 0; i < n; ++i)
      r[i] = F(T(a[i]), T(b[i]));
  }
}

template <typename T> static void choose(const void *const *in, void *out, int64_t n) {
  auto c = static_cast<const int64_t *>(in[0]);
  auto a = static_cast<const T *>(in[1]), b = static_cast<const T *>(in[2]);
  auto r = static_cast<T *>(out);
  for (int64_t i = 0; i < n; ++i)
    r[i] = c[i] ? a[i] : b[i];
}

// ---- functions whose integer form is another

/// As an unsigned number, so that integers wrap.
template <typename T> static auto bits(T v) {
  if constexpr (std::is_integral_v<T>)
    return uint64_t(v);
  else
    return v;
}

template <typename T> static T divide(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    if (b == 0)
      return 0;
    if (std::is_signed_v<T> && b == T(-1))
      return T(-bits(a));
  }
  return a / b;
}

template <typename T> static T cRemainder(T a, T b) { // C's: with the sign of a
  if constexpr (std::is_integral_v<T>)
    return b == 0 || b == T(-1) ? (std::is_signed_v<T> || b == 0 ? T(0) : a % b) : a % b;
  else
    return std::fmod(a, b);
}

template <typename T> static T modulo(T a, T b) { // Python's: with the sign of b
  T r = cRemainder(a, b);
  if constexpr (std::is_floating_point_v<T>)
    if (r == 0)
      return std::copysign(r, b);
  return r != 0 && (r < 0) != (b < 0) ? T(r + b) : r;
}

template <typename T> static T power(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    if (b < 0)
      return a == 1 ? 1 : a == T(-1) ? (b & 1 ? T(-1) : 1) : 0;
    uint64_t r = 1, x = uint64_t(a);
    for (uint64_t e = uint64_t(b); e; e >>= 1, x *= x)
      if (e & 1)
        r *= x;
    return T(r);
  } else {
    return std::pow(a, b);
  }
}

static double sigmoid(double x) {
  double e = std::exp(-std::abs(x));
  return x >= 0 ? 1 / (1 + e) : e / (1 + e);
}

/// The normal distribution function.
static double normal(double x) { return 0.5 * std::erfc(x * -0.7071067811865476); }

// ---- the table

namespace {
using Loop = void (*)(const void *const *in, void *out, int64_t n);

/// What a function's result is.
enum class Gives { Same, Truth, Float };

struct FunctionDef {
  const char *name;
  int args;
  Gives gives;
  Loop run[4] = {}; ///< by the operands' kind; nullptr: does not take it
};
enum Takes { Floats, Integers, Numbers, Truths, All };
} // namespace

template <int N, Takes K, auto F> static constexpr FunctionDef define(const char *name, Gives gives = Gives::Same) {
  FunctionDef d{name, N, gives};
  if constexpr (K == Floats || K == Numbers || K == All)
    d.run[0] = each<N, double, F>;
  if constexpr (K == Integers || K == Numbers || K == All) {
    d.run[1] = each<N, int64_t, F>;
    d.run[2] = each<N, uint64_t, F>;
  }
  if constexpr (K == Truths || K == All)
    d.run[3] = each<N, bool, F>;
  return d;
}

/// Operators under their signs; negation is "neg", "!" and "~" are themselves.
static constexpr FunctionDef kFunctions[] = {
    define<2, Numbers, [](auto a, auto b) { return decltype(a)(bits(a) + bits(b)); }>("+"),
    define<2, Numbers, [](auto a, auto b) { return decltype(a)(bits(a) - bits(b)); }>("-"),
    define<2, Numbers, [](auto a, auto b) { return decltype(a)(bits(a) * bits(b)); }>("*"),
    define<2, Numbers, [](auto a, auto b) { return divide(a, b); }>("/"),
    define<2, Numbers, [](auto a, auto b) { return a < b; }>("<", Gives::Truth),
    define<2, Numbers, [](auto a, auto b) { return a <= b; }>("<=", Gives::Truth),
    define<2, Numbers, [](auto a, auto b) { return b < a; }>(">", Gives::Truth),
    define<2, Numbers, [](auto a, auto b) { return b <= a; }>(">=", Gives::Truth),
    define<2, All, [](auto a, auto b) { return a == b; }>("==", Gives::Truth),
    define<2, All, [](auto a, auto b) { return a != b; }>("!=", Gives::Truth),
    define<2, Truths, [](bool a, bool b) { return a && b; }>("&&", Gives::Truth),
    define<2, Truths, [](bool a, bool b) { return a || b; }>("||", Gives::Truth),
    define<1, Truths, [](bool a) { return !a; }>("!", Gives::Truth),
    define<2, Integers, [](auto a, auto b) { return decltype(a)(a & b); }>("&"),
    define<2, Integers, [](auto a, auto b) { return decltype(a)(a | b); }>("|"),
    define<2, Integers, [](auto a, auto b) { return decltype(a)(a ^ b); }>("^"),
    define<1, Integers, [](auto a) { return decltype(a)(~a); }>("~"),
    define<2, Integers, [](auto a, auto b) { return bits(b) < 64 ? decltype(a)(bits(a) << b) : 0; }>("<<"),
    define<2, Integers,
           [](auto a, auto b) {
             if (std::is_unsigned_v<decltype(a)> && 63 < bits(b))
               return decltype(a)(0);
             return decltype(a)(a >> std::min(bits(b), bits(63)));
           }>(">>"),
    define<1, Numbers, [](auto a) { return decltype(a)(-bits(a)); }>("neg"),
    define<2, Numbers, [](auto a, auto b) { return b < a || a != a ? a : b; }>("max"),
    define<2, Numbers, [](auto a, auto b) { return a < b || a != a ? a : b; }>("min"),
    define<2, Numbers, [](auto a, auto b) { return power(a, b); }>("pow"),
    define<2, Numbers, [](auto a, auto b) { return modulo(a, b); }>("mod"),
    define<2, Numbers, [](auto a, auto b) { return cRemainder(a, b); }>("fmod"),
    define<1, Numbers, [](auto a) { return a == 0  ? decltype(a)(0)
                                           : a < 0 ? decltype(a)(-bits(a))
                                                   : a; }>("abs"),
    define<1, Numbers, [](auto a) { return a != a ? a : decltype(a)((a > 0) - (a < 0)); }>("sign"),
    define<1, Floats, [](double a) { return std::sqrt(a); }>("sqrt"),
    define<1, Floats, [](double a) { return 1 / std::sqrt(a); }>("rsqrt"),
    define<1, Floats, [](double a) { return std::exp(a); }>("exp"),
    define<1, Floats, [](double a) { return std::expm1(a); }>("expm1"),
    define<1, Floats, [](double a) { return std::log(a); }>("log"),
    define<1, Floats, [](double a) { return std::log1p(a); }>("log1p"),
    define<1, Floats, [](double a) { return std::sin(a); }>("sin"),
    define<1, Floats, [](double a) { return std::cos(a); }>("cos"),
    define<1, Floats, [](double a) { return std::tan(a); }>("tan"),
    define<1, Floats, [](double a) { return std::asin(a); }>("asin"),
    define<1, Floats, [](double a) { return std::acos(a); }>("acos"),
    define<1, Floats, [](double a) { return std::atan(a); }>("atan"),
    define<1, Floats, [](double a) { return std::sinh(a); }>("sinh"),
    define<1, Floats, [](double a) { return std::cosh(a); }>("cosh"),
    define<1, Floats, [](double a) { return std::asinh(a); }>("asinh"),
    define<1, Floats, [](double a) { return std::acosh(a); }>("acosh"),
    define<1, Floats, [](double a) { return std::atanh(a); }>("atanh"),
    define<1, Floats, [](double a) { return std::erf(a); }>("erf"),
    define<1, Floats, [](double a) { return std::tanh(a); }>("tanh"),
    define<1, Floats, [](double a) { return sigmoid(a); }>("sigmoid"),
    define<1, Floats, [](double a) { return sigmoid(a); }>("rough_sigmoid"),
    define<1, Floats, [](double a) { return normal(a); }>("rough_normal"),
    define<1, Floats, [](double a) { return normal(a) + a * (std::exp(a * a * -0.5) * 0.3989422804014327); }>("rough_gelu_slope"),
    define<1, Floats, [](double a) { return std::floor(a); }>("floor"),
    define<1, Floats, [](double a) { return std::ceil(a); }>("ceil"),
    define<1, Floats, [](double a) { return std::nearbyint(a); }>("round"),
    define<1, Floats, [](double a) { return std::isnan(a); }>("isnan", Gives::Truth),
    define<1, Floats, [](double a) { return std::isinf(a); }>("isinf", Gives::Truth),
    // Element `e` of a draw (ir/Philox.h).
    define<3, Integers,
           [](auto e, auto seed, auto stream) -> double {
             return philoxUniform(uint64_t(seed), uint64_t(e), uint32_t(uint64_t(stream) >> 32), uint32_t(stream));
           }>("uniform", Gives::Float),
    {"?", 3, Gives::Same, {choose<double>, choose<int64_t>, choose<uint64_t>, choose<int64_t>}},
};

static const FunctionDef *findFunction(const Scalar &s) {
  StringRef name = s.kind == Scalar::Unary && s.text == "-" ? "neg" : StringRef(s.text);
  for (const FunctionDef &d : kFunctions)
    if (name == d.name && d.args == int(s.args.size()))
      return &d;
  return nullptr;
}

// ---- compilation

ScalarKind zcc::scalarKind(Elem e) {
  if (isFloat(e))
    return ScalarKind::Float;
  return e == Elem::Bool ? ScalarKind::Bool : e == Elem::U64 ? ScalarKind::Unsigned : ScalarKind::Int;
}

static const char *scalarKindName(ScalarKind k) {
  static const char *const names[] = {"floating-point", "integer", "u64", "bool"};
  return names[int(k)];
}

class ScalarProgram::Compiler {
public:
  Compiler(ScalarProgram &p, llvm::ArrayRef<ScalarName> n) : program(p), names(n) {}
  /// The slot of `s`; numbers in it are of kind `wanted` where they meet nothing else.
  llvm::Expected<int> emit(const Scalar &s, ScalarKind wanted);
  /// The kind of `s`, or nullopt for what consists of numbers.
  llvm::Expected<std::optional<ScalarKind>> kindOf(const Scalar &s);

private:
  ScalarProgram &program;
  llvm::ArrayRef<ScalarName> names;
};

llvm::Expected<std::optional<ScalarKind>> ScalarProgram::Compiler::kindOf(const Scalar &s) {
  using Result = std::optional<ScalarKind>;
  if (s.kind == Scalar::Number)
    return Result();
  if (s.kind == Scalar::Name) {
    for (const ScalarName &n : names)
      if (n.name == s.text)
        return Result(n.kind);
    return error(llvm::Twine("there is no operand '") + s.text + "'");
  }
  const FunctionDef *f = findFunction(s);
  if (!f)
    return error(llvm::Twine("there is no function '") + s.text + "' of " + llvm::Twine(s.args.size()) + " operands");
  Result kind;
  for (size_t i = 0; i < s.args.size(); ++i) {
    auto k = kindOf(*s.args[i]);
    if (!k)
      return k;
    if (s.kind == Scalar::Ternary && i == 0) {
      if (*k != ScalarKind::Bool)
        return error("the condition of '?' must be bool");
      continue;
    }
    if (kind && *k && *kind != **k)
      return error(llvm::Twine("'") + s.text + "' meets " + scalarKindName(*kind) + " and " + scalarKindName(**k) + " operands");
    kind = kind ? kind : *k;
  }
  if (kind && !f->run[int(*kind)])
    return error(llvm::Twine("'") + f->name + "' does not take " + scalarKindName(*kind) + " operands");
  switch (f->gives) {
  case Gives::Truth:
    return Result(ScalarKind::Bool);
  case Gives::Float:
    return Result(ScalarKind::Float);
  case Gives::Same:
    break;
  }
  return kind;
}

llvm::Expected<int> ScalarProgram::Compiler::emit(const Scalar &s, ScalarKind wanted) {
  if (s.kind == Scalar::Name) {
    for (size_t i = 0; i < names.size(); ++i)
      if (names[i].name == s.text)
        return int(i);
    return error(llvm::Twine("there is no operand '") + s.text + "'");
  }
  if (s.kind == Scalar::Number) {
    program.constants_.push_back({program.slots_++, wanted, s.number});
    return program.constants_.back().slot;
  }
  const FunctionDef *f = findFunction(s);
  std::optional<ScalarKind> kind;
  for (size_t i = s.kind == Scalar::Ternary; i < s.args.size() && !kind; ++i) {
    auto k = kindOf(*s.args[i]);
    if (!k)
      return k.takeError();
    kind = *k;
  }
  ScalarKind k = kind ? *kind : f->gives == Gives::Truth || wanted == ScalarKind::Bool ? ScalarKind::Float : wanted;
  Step step{f->run[int(k)], {}, 0};
  for (size_t i = 0; i < s.args.size(); ++i) {
    bool isCondition = s.kind == Scalar::Ternary && i == 0;
    auto slot = emit(*s.args[i], isCondition ? ScalarKind::Bool : k);
    if (!slot)
      return slot;
    step.args[i] = *slot;
  }
  step.result = program.slots_++;
  program.steps_.push_back(step);
  return step.result;
}

llvm::Expected<ScalarProgram> ScalarProgram::compile(const Scalar &s, llvm::ArrayRef<ScalarName> names) {
  ScalarProgram p;
  p.operands_ = names.size();
  p.slots_ = int(names.size());
  Compiler c(p, names);
  auto kind = c.kindOf(s);
  if (!kind)
    return kind.takeError();
  p.result_ = kind->value_or(ScalarKind::Float);
  auto slot = c.emit(s, p.result_);
  if (!slot)
    return slot.takeError();
  p.value_ = *slot;
  return p;
}

// ---- execution

template <typename T> static void fill(std::byte *to, T v) {
  for (int64_t i = 0; i < ScalarProgram::kBlock; ++i)
    memcpy(to + i * sizeof v, &v, sizeof v);
}

void ScalarProgram::prepare() {
  blocks_.resize((slots_ - operands_) * kBlock * sizeof(double));
  for (const Constant &c : constants_) {
    std::byte *to = blocks_.data() + (c.slot - operands_) * kBlock * sizeof(double);
    if (c.kind == ScalarKind::Float)
      fill(to, c.value);
    else
      fill(to, int64_t(c.value));
  }
}

void ScalarProgram::run(llvm::ArrayRef<const void *> operands, void *out, int64_t n) {
  if (blocks_.empty())
    prepare();
  auto slot = [&](int i) -> const void * {
    return i < int(operands_) ? operands[i] : blocks_.data() + (i - operands_) * kBlock * sizeof(double);
  };
  for (const Step &s : steps_) {
    const void *in[3] = {slot(s.args[0]), slot(s.args[1]), slot(s.args[2])};
    s.run(in, s.result == value_ ? out : const_cast<void *>(slot(s.result)), n);
  }
  if (steps_.empty()) // a name or a number
    memcpy(out, slot(value_), n * sizeof(double));
}

template <typename T>
static llvm::Expected<T> evalOnce(const Scalar &s, ScalarKind kind, llvm::ArrayRef<std::pair<StringRef, T>> names) {
  std::vector<ScalarName> kinds;
  std::vector<const void *> operands;
  for (auto &[name, value] : names) {
    kinds.push_back({name, kind});
    operands.push_back(&value);
  }
  auto p = ScalarProgram::compile(s, kinds);
  if (!p)
    return p.takeError();
  if (p->resultKind() == ScalarKind::Float) {
    double r;
    p->run(operands, &r, 1);
    return T(r);
  }
  int64_t r;
  p->run(operands, &r, 1);
  return T(r);
}

llvm::Expected<double> zcc::evalScalar(const Scalar &s, llvm::ArrayRef<std::pair<StringRef, double>> names) {
  return evalOnce(s, ScalarKind::Float, names);
}

llvm::Expected<int64_t> zcc::evalScalarInt(const Scalar &s, llvm::ArrayRef<std::pair<StringRef, int64_t>> names) {
  return evalOnce(s, ScalarKind::Int, names);
}
