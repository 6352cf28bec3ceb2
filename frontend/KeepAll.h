// What drops in training keeps all in evaluation.
#pragma once

#include "ir/Graph.h"

namespace zcc {

/// Dropout of whole channels and stochastic depth, which PyTorch's exporter writes out as what draws numbers below `p` and is
/// divided by `p`: each such factor becomes 1, as model.eval() has it. Whether there was one.
bool keepAll(Function &f);

} // namespace zcc
