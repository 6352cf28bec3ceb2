// Where a library has several ways to compute a kernel, which one is fastest differs from CPU to CPU. zcc --calibrate measures
// them on samples; a call takes the way of the sample that is most like it, which the compiler writes into the call as its
// attribute "way". Without one, a kernel goes by its own rule.
#pragma once

#include "runtime/zccrt.h"
#include <optional>
#include <string>
#include <vector>

namespace zccrt::cpu {

/// What the choice rests on: two calls of the same kind differ by their extents alone.
struct WayCase {
  std::string kind; ///< "conv_grad_input f32 points"
  std::vector<int64_t> extents;
};

/// `kernel`: its name; nullopt: there is one way. Of products: rows, columns, terms. Of convolutions: filters, channels, pixels
/// of the result; where they are no products of matrices, pixels of the window, too; where channels are in blocks, pixels of all
/// images.
std::optional<WayCase> wayCase(const char *kernel, const zccrt_call *c);

/// The ways there are for cases of a kind.
std::vector<std::string> waysOf(const std::string &kind);

} // namespace zccrt::cpu
