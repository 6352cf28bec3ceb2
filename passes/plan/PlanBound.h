// What no plan avoids.
#pragma once

#include "passes/plan/Trials.h"

namespace zcc {

/// Within the budgets of `ctx`: `computeNs` is the least that any trial computes. What of the model does not fit beside the
/// largest operator has to live elsewhere, and to be brought and taken back once a step.
llvm::Expected<PlanBound> boundOf(const Module &m, const PassContext &ctx, int64_t computeNs);

} // namespace zcc
