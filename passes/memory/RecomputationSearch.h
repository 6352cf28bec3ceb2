// Which activations to compute again so that a step fits a budget of memory.
#pragma once

#include "passes/CostModel.h"
#include "passes/Pass.h"

namespace zcc {

/// Notes of one way to train: `recompute`, by a node's place in the function.
using RecomputeNotes = std::map<unsigned, int64_t>;
void note(Function &f, const RecomputeNotes &notes);

/// Ways to recompute more and more, the cheapest first: by what the backward need not keep for the time that computing it again
/// takes. They depend on the function and the machine, not on a budget.
std::vector<RecomputeNotes> recomputationLadder(const Function &f, const Machine &machine);

/// One way to train, carried out on a copy.
struct Trial {
  RecomputeNotes notes;
  int64_t bytes = 0;  ///< memoryOf() the planned module
  double seconds = 0; ///< of a step, predicted
};

struct RecomputationChoice {
  Trial plain;       ///< nothing is computed again
  Trial taken;       ///< takes the least time of what fits; where nothing fits, it needs the least
  int64_t least = 0; ///< bytes that all trials need
};

/// Of the ladder of @micro, what suits --memory. The rest of the pipeline runs on copies, so bytes are exact; since the trials do
/// not depend on the budget, a larger one never gives a slower step.
llvm::Expected<RecomputationChoice> searchRecomputation(const Module &m, PassContext &ctx);

} // namespace zcc
