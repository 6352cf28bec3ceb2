// Whether two modules say the same, and whether one still says what it did.
#pragma once

#include "ir/Graph.h"

namespace zcc {

/// Whether two modules have the same text, but for locations.
bool areEqual(const Module &a, const Module &b);

/// A hash of all that areEqual() compares, but for the properties.
uint64_t hashOf(const Module &m);

} // namespace zcc
