// Scalar expressions: the one source of what an elementwise operator computes. The interpreter evaluates
// them, the emitter prints them as C++, and gradient rules are written in the same language.
//
//   expr := expr ? expr : expr | expr OP expr | -expr | !expr | name | number | call(expr, ...) | (expr)
//   OP   := + - * / % < <= > >= == != && || & | ^ << >>      (C's precedence)
//   call := exp expm1 log log1p sqrt rsqrt sin cos tan asin ... erf tanh pow max min abs floor ceil round
//           sign isnan isinf fmod mod cast ...               (the table in Scalar.cpp)
// A number takes the element type of what it meets. `max` and `min` propagate NaN, as PyTorch's do.
#pragma once

#include "ir/Type.h"
#include "llvm/Support/Error.h"
#include <memory>
#include <string>
#include <vector>

namespace zcc {

struct Scalar {
  enum Kind { Name, Number, Unary, Binary, Ternary, Call } kind = Number;
  std::string text;  ///< name, operator ("+", "-", "!", "?") or function
  double number = 0;
  std::vector<std::unique_ptr<Scalar>> args;
};

/// Parses; an error names the column. The result of a valid expression of the op table never fails.
llvm::Expected<std::unique_ptr<Scalar>> parseScalar(llvm::StringRef text);

/// Evaluates with floating-point operands in T (float or double).
template <typename T>
T evalScalar(const Scalar &s, llvm::ArrayRef<std::pair<llvm::StringRef, T>> names);
/// The same over integers (i64 arithmetic; division truncates).
int64_t evalScalarInt(const Scalar &s, llvm::ArrayRef<std::pair<llvm::StringRef, int64_t>> names);

} // namespace zcc
