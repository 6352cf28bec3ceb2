// Scalar expressions: the one source of what an elementwise operator computes. The interpreter evaluates them, the emitter prints
// them as C++, and gradient rules are written in the same language.
//
//   expr := expr ? expr : expr | expr OP expr | -expr | !expr | ~expr | (expr)
//         | name | number | call(expr, ...)
//   OP   := + - * / < <= > >= == != && || & | ^ << >>        (C's precedence)
//   call := exp expm1 log log1p sqrt rsqrt sin cos tan asin ... erf tanh sigmoid pow max min abs
//           floor ceil round sign isnan isinf fmod mod       (the table in ScalarProgram.cpp)
//           rough_sigmoid rough_normal rough_gelu_slope      (compiled, as exact as bfloat16 needs)
// A number takes the element type of what it meets; `inf` and `nan` are numbers. `max` and `min` propagate NaN, as PyTorch's do.
// Integers wrap; dividing them by zero gives 0. Truth values only meet == != ! && || and ?:.
#pragma once

#include "ir/Type.h"
#include "llvm/Support/Error.h"
#include <memory>
#include <string>
#include <vector>

namespace zcc {

struct Scalar {
  enum Kind { Name, Number, Unary, Binary, Ternary, Call } kind = Number;
  std::string text; ///< name, operator ("+", "-", "!", "?") or function
  double number = 0;
  std::vector<std::unique_ptr<Scalar>> args;
};

/// Parses; an error names the column. The result of a valid expression of the op table never fails.
llvm::Expected<std::unique_ptr<Scalar>> parseScalar(llvm::StringRef text);

/// What functions distinguish. Unsigned is u64 alone: narrower integers are computed as Int.
enum class ScalarKind : uint8_t { Float, Int, Unsigned, Bool };
ScalarKind scalarKind(Elem e);

/// A named operand of a program.
struct ScalarName {
  llvm::StringRef name;
  ScalarKind kind;
};

/// An expression compiled for the kinds of its operands. It works on blocks: a Float is a double,
/// an Int or a Bool an int64_t, an Unsigned a uint64_t.
class ScalarProgram {
public:
  static constexpr int64_t kBlock = 256;

  /// Errors: an unknown name or function, kinds that a function does not take or that do not fit
  /// together.
  static llvm::Expected<ScalarProgram> compile(const Scalar &s, llvm::ArrayRef<ScalarName> names);

  ScalarKind resultKind() const { return result_; }
  /// Computes n <= kBlock values. `operands[i]` points to n values of the i-th name. Not for two
  /// threads at once.
  void run(llvm::ArrayRef<const void *> operands, void *out, int64_t n);

private:
  using Function = void (*)(const void *const *in, void *out, int64_t n);
  struct Step {
    Function run;
    int args[3];
    int result;
  };
  struct Constant {
    int slot;
    ScalarKind kind;
    double value;
  };
  class Compiler;

  std::vector<Step> steps_;
  std::vector<Constant> constants_;
  int slots_ = 0; ///< operands, constants, results of steps
  int value_ = 0; ///< the slot of the whole expression
  unsigned operands_ = 0;
  ScalarKind result_ = ScalarKind::Float;
  std::vector<std::byte> blocks_; ///< of all slots but the operands
  void prepare();
};

/// Evaluates once, over floating-point operands.
llvm::Expected<double> evalScalar(const Scalar &s, llvm::ArrayRef<std::pair<llvm::StringRef, double>> names);
/// The same over integers (of 64 bits; division truncates).
llvm::Expected<int64_t> evalScalarInt(const Scalar &s, llvm::ArrayRef<std::pair<llvm::StringRef, int64_t>> names);

} // namespace zcc
