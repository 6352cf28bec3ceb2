// Kernel, strides, padding and dilations of convolution and pooling nodes, resolved to numbers per spatial axis.
#pragma once

#include "frontend/Importer.h"

namespace zcc {

struct Windows {
  std::vector<int64_t> kernel, strides, dilations, lo, hi;
  /// What ceil_mode adds behind `hi`, so that the last, partial window counts.
  std::vector<int64_t> ceiled;

  /// Reads strides, dilations, pads or auto_pad (and ceil_mode) for a kernel over the spatial axes
  /// of x.
  static Windows from(NodeImport &n, const Val &x, llvm::ArrayRef<int64_t> kernel);
  /// Extent of the result along spatial axis `a`.
  int64_t outputs(const Val &x, size_t a) const {
    return (x.dim(int64_t(a) + 2) + lo[a] + hi[a] + ceiled[a] - dilations[a] * (kernel[a] - 1) - 1) / strides[a] + 1;
  }
  /// strides, pads_lo, pads_hi and dilations.
  Attrs attrs() const;
};

/// An attribute of `count` integers, `otherwise` where it is left out. Refused: another count, and integers below
/// `least` or so large that products of two would overflow.
std::vector<int64_t> windowInts(NodeImport &n, const char *name, size_t count, int64_t otherwise, int64_t least);
/// kernel_shape says again what the weight [M, C, ...] has; refused where it says something else.
void checkKernelShape(NodeImport &n, const Val &weight);

} // namespace zcc
