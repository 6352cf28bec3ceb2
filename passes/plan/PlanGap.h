// Why a plan takes longer than what no plan avoids.
#pragma once

#include "passes/Pass.h"

namespace zcc {

/// Of a planned module: what each engine that moves something does in the forward, in the backward and behind it, and how long
/// compute waits for it there; `left`: bytes of the budget for memory that the plan leaves, below 0: there is none.
std::vector<std::string> gapsOf(const Module &m, const PassContext &ctx, int64_t left);

} // namespace zcc
