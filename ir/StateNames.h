// The names of states that passes add and look up, and that the runtime sets or reads.
#pragma once

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

namespace zcc {

/// Of those that the runtime sets in each step, or that are of a step alone.
inline bool isStepStateName(llvm::StringRef name) {
  constexpr llvm::StringLiteral kNames[] = {"step",  "micro",    "seed",         "lr",       "grad_norm",
                                            "beta1", "overflow", "grad_squares", "eval_rows"};
  return llvm::is_contained(kNames, name);
}

/// Of any of them: no weight of a model is called so.
inline bool isStateName(llvm::StringRef name) {
  return isStepStateName(name) || name == "late" || name == "skipped" || name == "loss_scale";
}

/// Whether a state is the gradient of a parameter, by the name that it gets: with a number where something else has that.
inline bool isGradientName(llvm::StringRef name, llvm::StringRef param) {
  return name.consume_front(param) && name.consume_front(".grad") &&
         (name.empty() || (name.consume_front(".") && !name.empty() && llvm::all_of(name, llvm::isDigit)));
}

} // namespace zcc
