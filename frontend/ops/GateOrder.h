// The order of gates in a recurrent cell's weights.
#pragma once

#include "frontend/Emitter.h"

namespace zcc {

/// Weights [gates * hidden, ...] that a model keeps with their gates in another order than ONNX has them.
struct KeptGates {
  Val weights;
  std::vector<int64_t> block; ///< of each gate in ONNX' order: which block of `hidden` rows is its
};

/// Exporters join slices of what the model keeps, for each step anew; looks through that. nullopt: the weights are no such joint.
std::optional<KeptGates> keptGates(const Val &weights, int64_t hidden);

/// Gates of a bias [gates * hidden] as they are kept.
Val asKept(Emitter &e, const Val &bias, llvm::ArrayRef<int64_t> block, int64_t hidden);

} // namespace zcc
