// The page of --report: memory over the step, the schedule by engine, rooflines, blocks, decisions and their reasons.
#pragma once

#include "codegen/Plan.h"

namespace zcc {

/// A self-contained page about the plan of a module that is planned.
llvm::Expected<std::string> planPage(const Plan &p, const Module &m, const Options &o);

} // namespace zcc
