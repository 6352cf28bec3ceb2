// What --export writes, as the emitter takes it: the pieces of ONNX files and the tensors of a state_dict.
#pragma once

#include "codegen/EmitProgram.h"
#include "frontend/Import.h"

namespace zcc {

/// Fills what `info` says of exports from what the frontend found. A module in text marks itself what is exported.
llvm::Error addExports(const Module &m, const ImportReport &imported, ProgramInfo &info);

} // namespace zcc
