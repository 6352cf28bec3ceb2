// What to compute again so that the backward of no block needs much.
#pragma once

#include "passes/CostModel.h"
#include "passes/memory/ForwardBlocks.h"

namespace zcc {

/// Sets of nodes, flags for `blocks.nodes`, of which at most half of all that may be kept is: each of them takes longer than the
/// one before and leaves less. A block computes what its backward reads for itself, from what is kept of the blocks before it.
/// `share`: how much counts of what the backward of a block needs beside what is kept, from 0 to 1; what that is, is only an
/// estimate.
std::vector<std::vector<bool>> blockwiseRecomputations(const ForwardBlocks &blocks, const Recomputable &allowed,
                                                       const Machine &machine, int ranks, double share);

} // namespace zcc
