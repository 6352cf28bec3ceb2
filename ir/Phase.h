// Names of phases, and what the text of a module leaves out of them.
#pragma once

#include "ir/Graph.h"
#include "llvm/ADT/DenseMap.h"

namespace zcc {

llvm::StringRef phaseName(Phase p);
std::optional<Phase> phaseFromName(llvm::StringRef name);

/// The phases that nodes of a function have unless their text says otherwise: in @update all are of the update; in a
/// differentiated @micro, what the loss needs is of the forward, and of the update are other assignments, shards and sums over
/// ranks, what else reads a state, and what follows from those; the rest is of the backward behind the loss, of the forward
/// before it.
llvm::DenseMap<const Node *, Phase> usualPhases(const Function &f);

} // namespace zcc
