// The command-line options that zcc and zcc-opt share: what steers the passes, what is dumped, and
// the tables.
#pragma once

#include "passes/PassManager.h"

namespace llvm::cl {
class OptionCategory;
}

namespace zcc {

/// The category of all our options; a tool puts its own there, too. Everything else is hidden from
/// --help.
llvm::cl::OptionCategory &optionCategory();
/// Parses the command line; prints one error (with the nearest name) and returns false if it is
/// wrong.
bool parseCommandLine(int argc, const char *const *argv, llvm::StringRef overview);
/// --help-ops, --help-passes: prints them and returns true if one is given; `afterOps` adds to the table of operators.
bool printTables(llvm::function_ref<void()> afterOps = [] {});

/// From the parsed command line; an error names the option.
llvm::Expected<Options> passOptions();
DumpOptions dumpOptions();
/// Whether --ranks is on the command line: otherwise a .zir file's own number counts.
bool ranksGiven();
/// Whether --optimizer was given.
bool optimizerGiven();

/// The options as flags, each with a space before it; those at their default are left out.
std::string flagsOf(const Options &o);

} // namespace zcc
