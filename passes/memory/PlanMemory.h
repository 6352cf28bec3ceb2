// Offsets for who asks only what is live where.
#pragma once

#include "passes/Pass.h"

namespace zcc {

/// As plan-memory, but in entries only what is written over one another shares memory: what is live at a node takes the same
/// bytes, and nothing is looked for. An error where lifetimes cannot be told.
llvm::Error planApart(Module &m, const PassContext &ctx);

} // namespace zcc
