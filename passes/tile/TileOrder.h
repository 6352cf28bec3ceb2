// The order of nodes by what they need.
#pragma once

#include "ir/Graph.h"
#include "llvm/ADT/DenseSet.h"

namespace zcc {

/// Moves what stands behind a reader of it in front of that; all else keeps its place.
void sortByUse(Function &f);

/// Moves nodes that are not in `done`, and all that they need that is not, in front of `before`, and adds them to it.
/// `moved` is told of each.
void moveNeeded(Node &n, Node &before, llvm::DenseSet<const Node *> &done, llvm::function_ref<void(Node &)> moved);

} // namespace zcc
