// What the forward of a function makes and may keep for the backward.
#pragma once

#include "ir/Graph.h"
#include "llvm/ADT/DenseSet.h"

namespace zcc {

/// Behind views; nullptr stays.
Value *behindViews(Value *v);
/// Whether a node makes values of its own: no view, constant or write.
bool holdsActivation(const Node &n);
/// A cast of 16 bits to 32: free in the loops that read it.
bool widens(const Node &n);

/// Nodes of the function that depend on globals and constants only, but for random draws.
llvm::DenseSet<const Node *> fixedNodes(const Function &f);
/// Globals that the function writes: running statistics, gradients.
llvm::DenseSet<const Value *> writtenGlobals(const Function &f);
/// Why a node cannot be computed again in the backward, or nullptr.
const char *whyKept(const Node &n, const llvm::DenseSet<const Node *> &fixed, const llvm::DenseSet<const Value *> &written);

} // namespace zcc
