// What a step does for updates that the one before it has left (DeferUpdates.cpp).
#pragma once

#include "ir/Graph.h"
#include "llvm/ADT/DenseSet.h"

namespace zcc {

/// The nodes of @micro that nothing but such updates needs. A call that begins with none of them, where %late is 0, may leave
/// them out: what they would assign is what was there.
llvm::DenseSet<const Node *> lateNodes(const Module &m);

} // namespace zcc
