// Which models train in a higher precision than their files have.
#pragma once

#include "ir/Graph.h"

namespace zcc {

/// A trained weight that is a 16-bit float; nullptr if there is none, or the model brings a training algorithm of its own, which
/// computes in what it likes.
const GlobalValue *narrowWeight(const Module &m);

} // namespace zcc
