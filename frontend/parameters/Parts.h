// Parameters that an exporter's optimizer sliced, transposed or reshaped, and slices of them, as initializers of their own.
#pragma once

#include "frontend/onnx/OnnxFile.h"

namespace zcc {

/// How a tensor's elements lie in another: all of them, or a slice along one axis, or transposed (the last two axes), in any
/// shape.
struct Arrangement {
  bool isTransposed = false;
  int64_t axis = -1; ///< of the slice; -1: all of it
  int64_t first = 0, taken = 0;
};

/// The ways in which `whole` holds what `part` holds, bit for bit. At most two: more than one does not say which.
std::vector<Arrangement> arrangementsOf(const OnnxFile &file, const Initializer &part, const Initializer &whole);

/// Whether the exporter calls this value by an operator that only moves or selects elements: "slice_1", "unsqueeze".
bool isCalledMoved(llvm::StringRef initializer);

} // namespace zcc
