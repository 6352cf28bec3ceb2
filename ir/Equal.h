// Whether two modules, or attributes, say the same, and whether a module still says what it did.
#pragma once

#include "ir/Graph.h"

namespace zcc {

/// Whether two modules have the same text, but for locations.
bool areEqual(const Module &a, const Module &b);

/// Whether attributes are the same bits: 0 is not -0, and NaN is itself.
bool areEqual(const Attr &a, const Attr &b);
bool areEqual(const Attrs &a, const Attrs &b);

/// Equal ones have equal hashes.
uint64_t hashOf(const Attr &a);
uint64_t hashOf(const Attrs &a);
uint64_t hashOf(const Type &t);

/// A hash of all that areEqual() compares, but for the properties.
uint64_t hashOf(const Module &m);

} // namespace zcc
