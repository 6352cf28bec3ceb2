// Operators over the slices of all iterations of a scan at once: each value gains an axis of iterations in front.
#pragma once

#include "ir/Builder.h"

namespace zcc {

/// What an iteration's value is outside its scan.
struct Outside {
  Value *value = nullptr;
  bool isStacked = false; ///< [trips, ...]; else it is the same in all iterations
};

/// Whether a node of a body can be computed for all iterations at once; `isStacked`: of each operand.
bool canStack(const Node &n, llvm::ArrayRef<bool> isStacked);

/// The result of such a node for all iterations, of its operands outside.
Value *stacked(Builder &b, const Node &n, llvm::ArrayRef<Outside> operands, int64_t trips);

} // namespace zcc
