// The table of the CPU's kernels, by OpDef::kernel: run, scratch, and which tensors (a bit each, operands then results) may be
// strided. Attention wants a unit stride in the last axis of all but the mask.
#include "runtime/cpu/Kernels.h"
#include <iterator>

using namespace zccrt::cpu;

static constexpr int32_t kAll = -1;

const zccrt_kernel_def zccrt_cpu_kernels[] = {
    {"matmul", matmulRun, matmulWorkspace, 0b111},
    {"conv", convRun, convWorkspace, 0},
    {"conv_grad_input", convGradInputRun, convGradInputWorkspace, 0},
    {"conv_grad_weight", convGradWeightRun, convGradWeightWorkspace, 0},
    {"max_pool", maxPoolRun, nullptr, 0},
    {"max_pool_grad", maxPoolGradRun, nullptr, 0},
    {"avg_pool", avgPoolRun, nullptr, 0},
    {"avg_pool_grad", avgPoolGradRun, nullptr, 0},
    {"attention", attentionRun, attentionWorkspace, 0b011111},
    {"attention_grad", attentionGradRun, attentionGradWorkspace, 0b1110111111},
    {"gather", gatherRun, nullptr, 0},
    {"scatter_add", scatterAddRun, scatterAddWorkspace, 0},
    {"gather_elements", gatherElementsRun, nullptr, 0},
    {"scatter_elements", scatterElementsRun, nullptr, 0},
    {"gather_nd", gatherNdRun, nullptr, 0},
    {"scatter_nd", scatterNdRun, nullptr, 0},
    {"argmax", argmaxRun, nullptr, 0},
    {"argmin", argminRun, nullptr, 0},
    {"cumsum", cumsumRun, nullptr, 0},
    {"topk", topkRun, topkWorkspace, 0},
    {"random_uniform", randomUniformRun, nullptr, 0},
    {"random_normal", randomNormalRun, nullptr, 0},
    {"concat", concatRun, nullptr, kAll},
    {"pad", padRun, nullptr, 0b01},
};
const int zccrt_cpu_kernel_count = int(std::size(zccrt_cpu_kernels));
