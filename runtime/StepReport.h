// What a step tells the log and the terminal.
#pragma once

#include "runtime/Metrics.h"
#include "runtime/comm/Comm.h"
#include "runtime/nvme/Nvme.h"
#include <cstdint>
#include <optional>

namespace zccrt {

/// Steps counted in rounds through the data, for people.
struct Epochs {
  double steps = 0;  ///< of one; 0: the data are the same for every step
  double before = 0; ///< what the data are ahead of the steps: those of an earlier run may have been of other ranks and batches
};

struct StepReport {
  int64_t step = 0;
  double loss = 0; ///< mean over ranks and micro-batches, before the update
  std::optional<double> lr, gradNorm, lossScale;
  bool last = false;           ///< of the run
  std::optional<bool> skipped; ///< in 16 bits: the gradients are not finite
  double seconds = 0;
  int64_t samples = 0; ///< over all ranks
  std::optional<double> evalLoss;
  std::span<const MetricValue> metrics, evalMetrics;
  Traffic sent;     ///< bytes that rank 0 sent in this step
  NvmeTraffic disk; ///< what rank 0 began to read from its swap file and to write there in this step
};

} // namespace zccrt
