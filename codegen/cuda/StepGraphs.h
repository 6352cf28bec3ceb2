// Whether a device gets the launches of a step as graphs (runtime/StepGraphs.h).
#pragma once

#include "ir/Graph.h"

namespace zcc {

/// What forbids it; "": nothing.
std::string whyNoGraph(const Module &m);
/// Of a program's record: what computes ("": the host, and there are none), why it gets no graphs, and what
/// collectives need that go by way of the host.
std::string deviceFields(const Module &m, llvm::StringRef device);

} // namespace zcc
