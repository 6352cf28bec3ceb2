// How fast this machine runs loops as the compiler generates them.
#pragma once

#include "passes/CostModel.h"

namespace zcc {

struct LoopRate {
  Rate rate;
  double (*measure)(int threads, double seconds);
};
llvm::ArrayRef<LoopRate> loopRates();

} // namespace zcc
