// First values of initializers that have no data in the file.
#pragma once

#include "frontend/parameters/Parameters.h"

namespace zcc {

/// --init: gives every parameter without data PyTorch's default distribution for the operator that
/// reads it, or normal:STD. Errors: an unknown --init; something without data that is no weight.
llvm::Error drawMissing(const OnnxFile &file, const ImportOptions &options, const Parameters &parameters, Module &module);

} // namespace zcc
