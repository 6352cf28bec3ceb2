// The numbered rules of ir/README.md.
#pragma once

#include "ir/Graph.h"

namespace zcc {

/// All violations, joined; each begins with its rule: "[V2] node ...: operand 'b' of 'matmul' is partitioned ...".
llvm::Error verify(const Module &m);

} // namespace zcc
