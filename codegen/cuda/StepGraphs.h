// Whether a device gets the launches of a step as graphs (runtime/StepGraphs.h).
#pragma once

#include "ir/Graph.h"
#include "passes/Target.h"

namespace zcc {

/// What forbids it; "": nothing.
std::string whyNoGraph(const Module &m);
/// Of a program's record: what computes (none where the host does), why it gets no graphs, what collectives need that go by way
/// of the host, and how it multiplies.
std::string deviceFields(const Module &m, const Target &target);

} // namespace zcc
