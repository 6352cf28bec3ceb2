// The command-line options that zcc and zcc-opt share: what steers the passes, what is dumped, and the tables.
#pragma once

#include "passes/PassManager.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace llvm::cl {
class OptionCategory;
}

namespace zcc {

/// The category of all our options; a tool puts its own there, too. Everything else is hidden from
/// --help.
llvm::cl::OptionCategory &optionCategory();
/// What goes behind "unknown option '--NAME'", given the names that there are; or "".
using OptionHint = llvm::function_ref<std::string(const std::string &name, const std::vector<std::string> &known)>;
/// "; did you mean '--NEAREST'?".
std::string nearestOption(const std::string &name, const std::vector<std::string> &known);
/// Parses the command line; prints one error (with the hint) and returns false if it is wrong.
bool parseCommandLine(int argc, const char *const *argv, llvm::StringRef overview, OptionHint hint = nearestOption);
/// Whether --help is given, for printTables().
bool noteHelp(int argc, const char *const *argv, llvm::StringRef overview);
/// --help, --help-ops, --help-passes: prints them and returns true if one is given; `afterOps` adds to the table of operators.
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
