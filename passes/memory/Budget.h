// What a rank's process takes, for --memory.
#pragma once

#include "ir/Graph.h"

namespace zcc {

class Target;

/// Of a planned module on a machine whose device and host are one: the arenas of both, the buffer through which
/// checkpoints are saved, and what libraries take besides.
int64_t memoryOf(const Module &m, const Target *target);

} // namespace zcc
