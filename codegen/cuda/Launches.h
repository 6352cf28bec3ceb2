// How often a GPU is given work.
#pragma once

#include "passes/Target.h"

namespace zcc {

/// For a node of a planned function that computes or copies in the device's memory: launches, products of the library, copies.
int64_t launchesOf(const Node &n, const Target &target);

} // namespace zcc
