// The kernels of the CPU table; each file runtime/cpu/FAMILY.cpp defines its own. NAMERun is the kernel, NAMEWorkspace its bytes
// of scratch.
#pragma once

#include "runtime/zccrt.h"

namespace zccrt::cpu {

void matmulRun(char *arena, const zccrt_call *c);
int64_t matmulWorkspace(const zccrt_call *c);
void convRun(char *arena, const zccrt_call *c);
int64_t convWorkspace(const zccrt_call *c);
void convGradInputRun(char *arena, const zccrt_call *c);
int64_t convGradInputWorkspace(const zccrt_call *c);
void convGradWeightRun(char *arena, const zccrt_call *c);
int64_t convGradWeightWorkspace(const zccrt_call *c);
void maxPoolRun(char *arena, const zccrt_call *c);
void maxPoolGradRun(char *arena, const zccrt_call *c);
void avgPoolRun(char *arena, const zccrt_call *c);
void avgPoolGradRun(char *arena, const zccrt_call *c);
void attentionRun(char *arena, const zccrt_call *c);
int64_t attentionWorkspace(const zccrt_call *c);
void attentionGradRun(char *arena, const zccrt_call *c);
int64_t attentionGradWorkspace(const zccrt_call *c);
void gatherRun(char *arena, const zccrt_call *c);
void scatterAddRun(char *arena, const zccrt_call *c);
int64_t scatterAddWorkspace(const zccrt_call *c);
void gatherElementsRun(char *arena, const zccrt_call *c);
void scatterElementsRun(char *arena, const zccrt_call *c);
void gatherNdRun(char *arena, const zccrt_call *c);
void scatterNdRun(char *arena, const zccrt_call *c);
void argmaxRun(char *arena, const zccrt_call *c);
void argminRun(char *arena, const zccrt_call *c);
void cumsumRun(char *arena, const zccrt_call *c);
void topkRun(char *arena, const zccrt_call *c);
int64_t topkWorkspace(const zccrt_call *c);
void randomUniformRun(char *arena, const zccrt_call *c);
void randomNormalRun(char *arena, const zccrt_call *c);
void concatRun(char *arena, const zccrt_call *c);
void padRun(char *arena, const zccrt_call *c);

} // namespace zccrt::cpu
