// Example operands for each operator of the table, for the tests that every record goes through.
#pragma once

#include "ir/Op.h"
#include <random>

namespace zcc::test {

struct OpCase {
  const char *op;
  /// Types, separated by ", ". "i64[4]<7": values in [0, 7); "i64[4]<-3..7": in [-3, 7); "_": left
  /// out. Distinct floats lie in [lo, hi).
  const char *operands;
  Attrs attrs = {};
  double lo = -1, hi = 1;
  /// Bit i: result i takes part in the loss, if it is floating point.
  unsigned results = ~0u;
  /// NaN, infinities and zeros are among the floats.
  bool special = false;
};

/// Whether it is a convolution of what has its channels in blocks, and so an axis more than the weight.
bool hasBlocks(const OpCase &c);

/// One at least for every operator with a gradient. Where the environment has ZCC_OP, only the cases of the operator of that
/// name, here and in otherCases().
llvm::ArrayRef<OpCase> opCases();
/// Operators without one, integers, and floats that have no finite difference.
llvm::ArrayRef<OpCase> otherCases();
/// "matmul f32[2x3], f32[3x4]", for messages.
std::string describe(const OpCase &c);

/// An operand of a case: its type, and values (of a float: as doubles, otherwise integers).
struct Operand {
  bool present = false;
  Type type;
  std::vector<double> f;
  std::vector<int64_t> i;
};
/// The operands with values drawn from `random`; no two floats of an operand are closer than a
/// finite difference.
std::vector<Operand> drawOperands(const OpCase &c, std::mt19937 &random);

} // namespace zcc::test
