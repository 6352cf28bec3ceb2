// What is printed instead of compiling: --help and the tables.
#pragma once

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringRef.h"

namespace zcc {

/// Whether --help is given, for printHelp().
bool noteHelp(int argc, const char *const *argv, llvm::StringRef overview);
/// Prints the help and returns true if --help is given. `inGroups`: zcc's options under their titles.
bool printHelp(bool inGroups);
/// --help, --help-ops, --help-passes: prints them and returns true if one is given; `afterOps` adds to the table of operators.
bool printTables(llvm::function_ref<void()> afterOps = [] {});

} // namespace zcc
