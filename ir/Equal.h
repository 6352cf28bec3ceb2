// Whether two modules say the same.
#pragma once

#include "ir/Graph.h"

namespace zcc {

/// Whether two modules have the same text, but for locations.
bool areEqual(const Module &a, const Module &b);

} // namespace zcc
