// The part of the exported ONNX graph that computes one value, for --outputs-of: which bytes of the whole file it keeps.
#pragma once

#include "runtime/zccrt.h"
#include <string>
#include <utility>
#include <vector>

namespace zccrt {

/// The model in front of the graph, `header`, the ranges of the whole file, `output`.
struct GraphPart {
  std::string value;               ///< what it computes
  std::vector<std::string> inputs; ///< from what
  int64_t modelBytes = 0;
  std::string header, output;
  std::vector<std::pair<int64_t, int64_t>> ranges; ///< begin and end, in order
  int64_t bytes() const;
  /// Whether a byte of the whole file is in a range.
  bool keeps(int64_t at) const;
};

/// The part up to a value, to a node's or a module's result, or ("auto") to what the loss compares with the labels. Throws a
/// Failure, which suggests the nearest name.
GraphPart graphPart(const zccrt_program &p, const std::string &name);

} // namespace zccrt
