// The table of the CPU's kernels, by OpDef::kernel.
#include "runtime/cpu/Kernels.h"
#include <iterator>

using namespace zccrt::cpu;


const zccrt_kernel_def zccrt_cpu_kernels[] = {
    {"matmul", matmulRun, matmulWorkspace, 0b111},
    {"attention", attentionRun, attentionWorkspace, 0b011111},
    {"attention_grad", attentionGradRun, attentionGradWorkspace, 0b1110111111},
};
const int zccrt_cpu_kernel_count = int(std::size(zccrt_cpu_kernels));
