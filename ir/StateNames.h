// The names of states that passes add and look up, and that the runtime sets or reads.
#pragma once

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringRef.h"

namespace zcc {

/// Whether such a state is called so: no weight of a model is.
inline bool isStateName(llvm::StringRef name) {
  constexpr llvm::StringLiteral kNames[] = {"step",     "seed",    "micro", "lr",        "grad_norm",    "late",
                                            "overflow", "skipped", "beta1", "eval_rows", "grad_squares", "loss_scale"};
  return llvm::is_contained(kNames, name);
}

} // namespace zcc
