// The table of the CPU's kernels.
#include "runtime/cpu/Kernels.h"
#include <iterator>

using namespace zccrt::cpu;

const zccrt_kernel_def zccrt_cpu_kernels[] = {
#define ZCC_KERNEL(NAME, STEM, STRIDED) {#NAME, STEM##Run, nullptr, STRIDED},
#define ZCC_KERNEL_SCRATCH(NAME, STEM, STRIDED) {#NAME, STEM##Run, STEM##Workspace, STRIDED},
#include "runtime/cpu/Kernels.def"
#undef ZCC_KERNEL
#undef ZCC_KERNEL_SCRATCH
};
const int zccrt_cpu_kernel_count = int(std::size(zccrt_cpu_kernels));
