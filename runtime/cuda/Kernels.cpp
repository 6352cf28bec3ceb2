// The table of a GPU's kernels.
#include "runtime/cuda/Kernels.h"
#include <iterator>

using namespace zccrt::cuda;

const zccrt_kernel_def zccrt_cuda_kernels[] = {
#define ZCC_KERNEL(NAME, STEM, STRIDED) {#NAME, STEM##Run, nullptr, STRIDED},
#define ZCC_KERNEL_SCRATCH(NAME, STEM, STRIDED) {#NAME, STEM##Run, STEM##Workspace, STRIDED},
#include "runtime/cuda/Kernels.def"
#undef ZCC_KERNEL
#undef ZCC_KERNEL_SCRATCH
};
const int zccrt_cuda_kernel_count = int(std::size(zccrt_cuda_kernels));
