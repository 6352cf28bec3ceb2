// The functions of Kernels.def: they run on the host and queue launches on the stream Compute. `arena` is an address of the
// device.
#pragma once

#include "runtime/zccrt.h"

namespace zccrt::cuda {

#define ZCC_KERNEL(NAME, STEM, STRIDED) void STEM##Run(char *arena, const zccrt_call *c);
#define ZCC_KERNEL_SCRATCH(NAME, STEM, STRIDED)                                                                                  \
  ZCC_KERNEL(NAME, STEM, STRIDED)                                                                                                \
  int64_t STEM##Workspace(const zccrt_call *c);
#include "runtime/cuda/Kernels.def"
#undef ZCC_KERNEL
#undef ZCC_KERNEL_SCRATCH

} // namespace zccrt::cuda
