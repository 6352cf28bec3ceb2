// What only the first call of @micro in a step does: updates that the step before has left (DeferUpdates.cpp), and what the other
// calls find there (fuse/PackWeights.cpp).
#pragma once

#include "ir/Graph.h"
#include "llvm/ADT/DenseSet.h"

namespace zcc {

/// The nodes of @micro that nothing but such updates needs. A call that begins with none of them, where %late is 0, may leave
/// them out: what they would assign is what was there.
llvm::DenseSet<const Node *> lateNodes(const Module &m);
/// All that the first call of @micro in a step does and the others do not: those, and what is noted `once`.
llvm::DenseSet<const Node *> nodesOfFirstCall(const Module &m);

} // namespace zcc
