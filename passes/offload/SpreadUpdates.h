// Where updates of states that live elsewhere stand in the backward.
#pragma once

#include "passes/CostModel.h"

namespace zcc {

/// What is live on the device at each node of a function, where all that is transferred is there only as long as it is read.
struct DeviceBytes {
  std::vector<int64_t> all, own; ///< own: but for what is transferred
};

/// Updates move behind where their gradients are there, to where what moves states would be idle otherwise; gradients stay for
/// them as long as nowhere more is live than where most is. Afterwards `bytes.own` is that of the new order. Returns whether any
/// update has moved. Of a function before anything is started.
bool spreadUpdates(Function &f, DeviceBytes &bytes, const Machine &machine, int ranks);

} // namespace zcc
