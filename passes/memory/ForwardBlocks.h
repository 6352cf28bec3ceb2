// The forward as chains of blocks, between which little is kept.
#pragma once

#include "passes/memory/Activations.h"

namespace zcc {

/// What the loss needs and has memory of its own, in the function's order, and blocks of it.
struct ForwardBlocks {
  std::vector<Node *> nodes;
  std::vector<int64_t> crossing; ///< bytes made before node i that a node from i on reads in the forward
  std::vector<int> last;         ///< the last node that reads each of the nodes, or the node itself

  /// Blocks that follow one another, each from one of these nodes up to the next of them.
  struct Chain {
    std::vector<unsigned> cuts;
    bool isRepeated = false; ///< equal blocks
  };
  std::vector<Chain> chains; ///< in order
};

/// Repeated isomorphic stretches of nodes, the longest first; between them, the stretches between single values. What is behind
/// the last such value, the loss, is in no block.
ForwardBlocks findBlocks(const Function &f);

/// What the backward needs again of the nodes from `begin` to `end`, in order, if of them only what nodes behind read is kept.
std::vector<unsigned> neededInside(const ForwardBlocks &b, unsigned begin, unsigned end, const Recomputable &allowed);

} // namespace zcc
