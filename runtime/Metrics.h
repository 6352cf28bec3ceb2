// Metrics: means over what counts, of all micro-batches and ranks of a step, or of all samples of an evaluation.
#pragma once

#include "runtime/Arena.h"
#include "runtime/comm/Comm.h"
#include "runtime/zccrt.h"
#include <span>
#include <vector>

namespace zccrt {

/// A part of a mean: values times their weights.
struct Weighted {
  double sum = 0, weight = 0;
  Weighted &operator+=(const Weighted &o) {
    sum += o.sum;
    weight += o.weight;
    return *this;
  }
};

struct MetricValue {
  const char *name;
  double value; ///< not a number where nothing counts
};

class Metrics {
public:
  Metrics(const zccrt_program &p, Comm &comm);

  /// Takes those of a micro-batch that @micro has just computed, the one in `slot` of those that a call takes.
  void addMicro(const Arena &arena, int64_t slot);
  /// Takes those of a batch that @eval has just computed, of which so many rows count; `counted`: the rows by which @eval
  /// divides; 0: those that there are.
  void addEval(const Arena &arena, int64_t rows, int64_t counted);
  /// The values over all that was taken since the last call, on all ranks. Every rank calls it. `loss`: over the same. They stay
  /// until the next call.
  std::span<const MetricValue> finish(double loss);

private:
  const zccrt_program &p;
  Comm &comm;
  std::vector<Weighted> parts, gathered; ///< one a metric; of every rank
  std::vector<MetricValue> values;
};

} // namespace zccrt
