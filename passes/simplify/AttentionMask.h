// Masks of attention: what several of them amount to.
#pragma once

#include "passes/simplify/Simplify.h"

namespace zcc {

/// One mask of the scores.
struct MaskTerm {
  enum Kind {
    Added,  ///< scores + value
    Kept,   ///< select(value, scores, low)
    Dropped ///< select(value, low, scores)
  } kind;
  Value *value;
  double low;  ///< Kept, Dropped: what masked scores are
  Dims scores; ///< the shape of the scores it applies to: [B, H, S, T], [B*H, S, T] or [S, T]
};

struct CombinedMask {
  Value *value = nullptr; ///< bool or of the scores' element, four axes; nullptr if there is none
  bool causal = false;
};

/// The mask operand and the causal flag that all terms together are, for scores [B, H, S, T];
/// nullopt if they are neither.
std::optional<CombinedMask> combineMasks(Rewriter &r, Builder &b, llvm::ArrayRef<MaskTerm> terms, const Dims &scores, Elem elem);

/// Whether something holds for a float value that `v` is computed from, or for `v`.
bool anyBehind(Value *v, llvm::function_ref<bool(Value *)> holds);
/// Whether a gradient of `v` would reach a trained parameter.
bool dependsOnTrained(Value *v);

} // namespace zcc
