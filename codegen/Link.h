// Compiles emitted sources with the build's C++ compiler and links them with libzccrt.
#pragma once

#include "codegen/EmitProgram.h"

namespace zcc {

/// What the CPU must have for code of an architecture (-march): names of cpuid features ("avx2
/// fma"), separated by blanks; empty where the compiler's macros name none. An error if the
/// compiler does not know the architecture.
llvm::Expected<std::string> isaOf(llvm::StringRef march, llvm::StringRef option = "--march");

enum class Output { Program, Text, Folder };
/// An error if `path` (and its .weights) cannot be written; creates nothing. A device or a pipe would be replaced by a file;
/// a text may go to /dev/null.
llvm::Error checkWritable(llvm::StringRef path, Output kind);

/// Writes the executable `path`, and `path`.weights if the program has one: first beside them, then
/// renamed together, so that no half-written file is left and an error leaves what was there. What the compiler says is an
/// internal error of ours; its folder is then kept and named.
llvm::Error link(const EmittedProgram &program, llvm::StringRef march, llvm::StringRef path);

/// Makes the folder `path` with the program, called like it, and all files that it needs, as link() does.
llvm::Error bundle(const EmittedProgram &program, llvm::StringRef march, llvm::StringRef path);

} // namespace zcc
