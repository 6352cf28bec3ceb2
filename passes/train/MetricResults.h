// The results by which @micro and @eval return metrics (frontend/Metric.h).
#pragma once

#include "ir/Graph.h"

namespace zcc {

struct MetricResults {
  std::string name;
  bool isExponential = false;
  Value *sum = nullptr, *weight = nullptr; ///< without weight: the mean; without both: the loss's
};

/// Those of a function, in the order of the module's note.
std::vector<MetricResults> metricsOf(const Module &m, const Function &f);
/// Whether a result of that name is such a one, and no output of the model.
bool isMetricResult(const Module &m, llvm::StringRef name);

} // namespace zcc
