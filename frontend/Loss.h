// The loss: an output of the model, or one that --loss adds to it.
#pragma once

#include "frontend/Importer.h"

namespace zcc {

struct LossSpec {
  enum Kind { Default, Output, CrossEntropy, CrossEntropyShifted, MeanSquare, BinaryCrossEntropy } kind = Default;
  std::string output; ///< of the model
  std::string target; ///< an input; added if the model has none of that name
  std::optional<int64_t> axis;
  int64_t ignore = -100;
  double smoothing = 0;
  std::string reduction = "mean";
  bool isAdded() const { return kind >= CrossEntropy; }
};

/// Reads --loss. Errors: an unknown loss or argument (the nearest is suggested), a wrong value.
llvm::Expected<LossSpec> parseLoss(llvm::StringRef text);

/// The loss as a value of the importer's function; "only scalar float output" by default. `name`:
/// what it is called.
llvm::Expected<Val> buildLoss(GraphImporter &g, const LossSpec &spec, std::string &name);

} // namespace zcc
