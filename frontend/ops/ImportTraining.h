// The training step that a file brings, as a function of the module.
#pragma once

#include "frontend/Importer.h"
#include "frontend/onnx/TrainingGraph.h"

namespace zcc {

/// Imports the algorithm into the importer's function, `@algorithm`. Errors: trained initializers
/// that are none, updates of another type.
llvm::Error importAlgorithm(GraphImporter &g, const TrainingAlgorithm &t);

/// What the initialization graph sets. The importer's function is only scratch.
llvm::Expected<std::vector<InitialValue>> initialValues(GraphImporter &g);

} // namespace zcc
