// The naive interpreter: every operator as plain loops, in fp32 or fp64. The oracle for gradients, kernels and passes, and what
// folds constants.
#pragma once

#include "ir/Tensor.h"
#include <map>

namespace zcc {

/// Fills `dst` with the elements `offset + sum(i * stride)` of `src`.
void copyStrided(const Tensor &src, int64_t offset, llvm::ArrayRef<int64_t> strides, Tensor &dst);

/// Evaluates one node on given operands (nullptr for one left out).
llvm::Expected<std::vector<Tensor>> evalNode(Node &n, llvm::ArrayRef<const Tensor *> in, Compute c = Compute::F32);

/// Values of globals over calls: `assign` writes them.
using Memory = std::map<const Value *, Tensor>;
/// Runs a function. Globals not in `memory` are taken from their Init (files read, zero, splat;
/// random inits drawn). Collectives need ranks == 1, where they are copies.
llvm::Expected<std::vector<Tensor>> runFunction(Function &f, llvm::ArrayRef<Tensor> args, Memory &memory,
                                                Compute c = Compute::F32);

} // namespace zcc
