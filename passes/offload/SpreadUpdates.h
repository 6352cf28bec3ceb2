// Where updates of states that live elsewhere stand in the backward.
#pragma once

#include "passes/CostModel.h"

namespace zcc {

/// Updates move behind where their gradients are there, to where what moves states would be idle otherwise; gradients stay for
/// them as long as nowhere more than `most` bytes is live on the device. `own`: what is live there at each node but for what is
/// transferred; afterwards that of the new order. Of a function before anything is started.
void spreadUpdates(Function &f, std::vector<int64_t> &own, int64_t most, const Machine &machine, int ranks);

} // namespace zcc
