// Files that appear whole or not at all.
#pragma once

#include "ir/Diag.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace zcc {

/// Writes a file; what keeps it from being whole.
std::error_code writeFile(llvm::StringRef path, llvm::StringRef bytes);
/// Lets `write` make a file beside `out`, on the same file system, and gives it that name; an error names `out`, and leaves
/// nothing. `mode`: its permissions, before umask.
llvm::Error replaceFile(llvm::StringRef out, unsigned mode, llvm::function_ref<std::error_code(llvm::StringRef path)> write);
/// The same of bytes; "-" is standard output, and /dev/null stays what it is.
llvm::Error writeWhole(llvm::StringRef out, llvm::StringRef bytes);

} // namespace zcc
