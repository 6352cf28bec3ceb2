// What operators take their inputs for: weights, running statistics, settings, or data.
#pragma once

#include "frontend/parameters/Evidence.h"

namespace zcc {

enum class InputRole {
  Data,      ///< may be anything, a weight too
  Weight,    ///< floating-point initializers there are weights
  Statistic, ///< BatchNormalization's running mean and variance
  Setting    ///< settles how the operator is computed, or is never trained in PyTorch: no weight
};

InputRole roleOf(const InitializerUse &use);

} // namespace zcc
