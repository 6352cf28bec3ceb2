// The families of operators in ImportRegion.cpp and ImportSearch.cpp.
#pragma once

#include "frontend/Importer.h"

namespace zcc {
llvm::ArrayRef<OnnxOp> regionOps();
llvm::ArrayRef<OnnxOp> searchOps();
} // namespace zcc
