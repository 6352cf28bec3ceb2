// The order of the passes.
#pragma once

#include "passes/PassManager.h"

namespace zcc {

/// Adds the passes that take a module from the frontend to what is emitted.
void buildPipeline(PassManager &pm, const Options &o);

/// Adds those behind choose-plan.
void buildBehindPlan(PassManager &pm, const Options &o);

} // namespace zcc
