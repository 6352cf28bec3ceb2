// Slices of parameters that an exporter's optimizer folded into initializers of their own.
#pragma once

#include "frontend/onnx/OnnxFile.h"

namespace zcc {

/// What a slice along one axis takes of a tensor.
struct Part {
  int64_t axis, first, taken;
};

/// The slices of `whole` that hold what `part` holds, bit for bit, axes of 1 aside. At most two: more than one does not say
/// which.
std::vector<Part> partsEqualTo(const OnnxFile &file, const Initializer &part, const Initializer &whole);

/// Whether the exporter calls this value a slice or a row: "slice_1", "select".
bool isCalledPart(llvm::StringRef initializer);

} // namespace zcc
