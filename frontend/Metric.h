// Metrics: what --metric has the program report beside the loss.
//
// A metric is a mean over what counts. @micro and @eval return the sum that it is made of as `metric.NAME` : f32[], and what it
// is divided by as `metric.NAME.weight` : f32[], the number of labels that are not ignored; without a weight, `metric.NAME` is
// the mean of the batch. Module attributes: `metrics`, the names in order, with blanks between; `metrics_exp`, those of them (by
// number) of which the exponential is shown: the perplexity, of the loss itself if there are no such results.
#pragma once

#include "frontend/Importer.h"
#include "frontend/Loss.h"

namespace zcc {

struct MetricSpec {
  enum Kind { Accuracy, Perplexity, AbsoluteError, SquareError } kind = Accuracy;
  std::string text;           ///< as the user wrote it
  std::string name;           ///< how it is shown: "top5"; where several would be called so, all of the text
  std::string output, target; ///< "": the loss
  int64_t top = 1;
  std::optional<int64_t> axis, ignore, shift;
};

/// Reads all --metric. Errors: an unknown metric or argument (the nearest is suggested), a wrong value, a repetition.
llvm::Expected<std::vector<MetricSpec>> parseMetrics(llvm::ArrayRef<std::string> texts);

/// The results of the importer's function that the metrics add, by name. Errors name the metric, and for a value that is not
/// there what the model has.
llvm::Error buildMetrics(GraphImporter &g, llvm::ArrayRef<MetricSpec> specs, const LossSpec &loss,
                         std::vector<std::pair<std::string, Val>> &results);

/// Notes them on the module.
void noteMetrics(Module &m, llvm::ArrayRef<MetricSpec> specs);

} // namespace zcc
