// What a step costs: floating-point operations, bytes moved, a predicted time.
#pragma once

#include "ir/Graph.h"
#include "passes/Pass.h"

namespace zcc {

/// Rates of the machine that computes, of one rank.
struct Machine {
  double flopsPerSecond;     ///< of matrix products
  double bytesPerSecond;     ///< between cores and memory
  double linkBytesPerSecond; ///< of collectives, for each byte that a rank sends
  double diskBytesPerSecond; ///< of @nvme, read and written at once
  double hostBytesPerSecond; ///< of copies between device and host, each way
};

/// One node, once.
struct NodeCost {
  double flops = 0;
  double bytes = 0; ///< read and written
  double sent = 0;  ///< by this rank in a collective
  double disk = 0;  ///< read from or written to a disk
  double host = 0;  ///< copied to or from the host
  double seconds(const Machine &m) const;
};
NodeCost costOf(const Node &n, int ranks);

/// A step: `grad_accum` times @micro, then @update; of a program for inference, @eval.
struct StepCost {
  double flops = 0;
  std::map<std::string, double> sent; ///< bytes a rank sends or transfers, by collective and by "FROM to TO"
  double seconds = 0;
  std::string boundBy; ///< "compute", "memory" or "communication", "disk" or "host copies": what takes most of the time
};
StepCost costOfStep(const Module &m, const Options &o, const Machine &machine);

} // namespace zcc
