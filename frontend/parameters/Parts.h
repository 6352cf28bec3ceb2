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

/// A tensor that is looked for in others. Its bytes are read once, when one has a shape that fits.
class Part {
public:
  Part(const OnnxFile &file, const Initializer &part) : file_(file), part_(part) {}
  /// The ways in which `whole` holds what it holds, bit for bit. At most two: more than one does not say which.
  std::vector<Arrangement> arrangementsIn(const Initializer &whole);

private:
  const OnnxFile &file_;
  const Initializer &part_;
  std::optional<std::string> bytes_;
};

/// Whether the exporter calls this value by an operator that only moves or selects elements: "slice_1", "unsqueeze".
bool isCalledMoved(llvm::StringRef initializer);

} // namespace zcc
