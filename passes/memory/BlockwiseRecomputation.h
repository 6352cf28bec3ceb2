// What to compute again so that the backward of no block needs much.
#pragma once

#include "passes/CostModel.h"
#include "passes/memory/ForwardBlocks.h"
#include <optional>

namespace zcc {

/// Sets of nodes, flags for `blocks.nodes`, of which at most half of all that may be kept is: each of them takes longer than the
/// one before and leaves less. A block computes what its backward reads for itself, from what is kept of the blocks before it.
/// `share`: how much counts of what the backward of a block needs beside what is kept, from 0 to 1; what that is, is only an
/// estimate.
std::vector<std::vector<bool>> blockwiseRecomputations(const ForwardBlocks &blocks, const Recomputable &allowed,
                                                       const Machine &machine, int ranks, double share);

/// What is kept beside `again` and need not be, by the numbers of the nodes that make it: those first of which a block that needs
/// much, or nearly, needs fewest bytes for the time.
std::vector<unsigned> furtherRecomputations(const ForwardBlocks &blocks, const Recomputable &allowed, const Machine &machine,
                                            int ranks, const std::vector<bool> &again);
/// `again`, and a node with what it is computed from and nothing else keeps; nothing where that is among it, or cannot be.
std::optional<std::vector<bool>> withRecomputed(const ForwardBlocks &blocks, const Recomputable &allowed, const Machine &machine,
                                                int ranks, const std::vector<bool> &again, unsigned node);

} // namespace zcc
