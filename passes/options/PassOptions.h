// The options that zcc and zcc-opt share: what steers the passes, and what is dumped and checked.
#pragma once

#include "passes/PassManager.h"
#include "passes/options/CommandLine.h"
#include "passes/options/OptionRules.h"

namespace zcc {

/// The rows of both, and of the tables, to be declared.
std::vector<OptionRow> sharedOptions();

/// From the parsed command line; an error names the option.
llvm::Expected<Options> passOptions();
/// Of the options that are given on the command line, those that change nothing beside the others, and why: a line each.
std::vector<std::string> idleOptions(const Options &o, const FlagValues &given);
llvm::Expected<DumpOptions> dumpOptions();

/// The options as flags, each with a blank before it; those at their default are left out.
std::string flagsOf(const Options &o);

} // namespace zcc
