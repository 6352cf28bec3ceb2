// Whether a device gets the launches of a step as graphs (runtime/StepGraphs.h).
#pragma once

#include "ir/Graph.h"

namespace zcc {

/// What forbids it; "": nothing.
std::string whyNoGraph(const Module &m);

} // namespace zcc
