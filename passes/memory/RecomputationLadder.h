// Ways to compute activations again, from nothing to all.
#pragma once

#include "passes/CostModel.h"
#include <map>
#include <optional>

namespace zcc {

/// Of a node that is computed again: attributes `recompute` and `recompute_shared`.
struct RecomputeNote {
  int64_t number = 0;    ///< nodes of one number are computed together
  bool isShared = false; ///< its result is for those of other numbers, too
};
/// Notes of one way to train, by a node's place in the function.
using RecomputeNotes = std::map<unsigned, RecomputeNote>;
void note(Function &f, const RecomputeNotes &notes);

/// Where a ladder ends.
enum class LadderEnd {
  Segments, ///< each way is meant to need less than the one before
  Blocks,   ///< behind these stand others that go block by block, from few to many once more
};
/// Ways to recompute more and more, the cheapest first: by what the backward need not keep for the time that computing it again
/// takes; the first is nothing. They depend on the function and the machine, not on a budget.
std::vector<RecomputeNotes> recomputationLadder(const Function &f, const Machine &machine, LadderEnd end);
/// Ways between the one of this number and the one before it, in the same order; none where these are not a step apart.
std::vector<RecomputeNotes> recomputationsBefore(const Function &f, const Machine &machine, LadderEnd end, unsigned number);

/// Where the ladder goes block by block: ways that keep what one node makes besides, of which keeping it saves most time for its
/// bytes; and those that share what one node makes, of which most others are computed.
std::vector<RecomputeNotes> keepingOneMore(const Function &f, const RecomputeNotes &some, const Machine &machine);
/// There, too, numbers of nodes whose result may be kept no longer, the best first; and the way in which one of them is not:
/// nothing where it is not kept, or has to be.
std::vector<unsigned> keptBeside(const Function &f, const RecomputeNotes &some, const Machine &machine);
std::optional<RecomputeNotes> keepingOneLess(const Function &f, const RecomputeNotes &some, unsigned number,
                                             const Machine &machine);

/// Every set of what can be computed again; none where these are more than `most`.
std::vector<RecomputeNotes> allRecomputations(const Function &f, size_t most);

} // namespace zcc
