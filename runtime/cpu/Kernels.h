// The functions of the CPU's kernels, by Kernels.def; each file runtime/cpu/FAMILY.cpp defines its own.
#pragma once

#include "runtime/zccrt.h"

namespace zccrt::cpu {

#define ZCC_KERNEL(NAME, STEM, STRIDED) void STEM##Run(char *arena, const zccrt_call *c);
#define ZCC_KERNEL_SCRATCH(NAME, STEM, STRIDED)                                                                                  \
  ZCC_KERNEL(NAME, STEM, STRIDED)                                                                                                \
  int64_t STEM##Workspace(const zccrt_call *c);
#include "runtime/cpu/Kernels.def"
#undef ZCC_KERNEL
#undef ZCC_KERNEL_SCRATCH

} // namespace zccrt::cpu
