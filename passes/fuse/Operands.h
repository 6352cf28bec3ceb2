// What the passes on the way to kernels share about operands.
#pragma once

#include "ir/Graph.h"

namespace zcc {

/// The constant of equal elements that `v` is, maybe behind views and broadcasts, or nullptr.
Node *splatConstant(Value *v);
/// A copy of `v` before `before` (at the end if null).
Value *copyOf(Function &f, Node *before, Value *v);

} // namespace zcc
