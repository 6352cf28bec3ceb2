// What zcc is told: its own options, those of frontend and passes, and DeepSpeed's configuration.
#pragma once

#include "frontend/Import.h"
#include "passes/options/Config.h"
#include "passes/options/PassOptions.h"
#include <optional>

namespace zcc {

/// zcc's own options (passes/options/Options.def).
struct ToolOptions {
#define ZCC_TOOL_OPTION(NAME, TYPE, FIELD, OTHERWISE, ...) TYPE FIELD = OTHERWISE;
#include "passes/options/Options.def"
};

/// The command line, and what --config sets where it is silent.
struct Request {
  std::string model; ///< "": none, "-": standard input
  FlagValues given;
  std::optional<Config> config;
  std::string compileLine; ///< the command without --ranks: with that, it is what a program under another number of ranks says
  ToolOptions tool;
};

/// Declares all options of zcc.
void declareZccOptions();
/// Refuses options that the design names and that do not work yet by name, before the parser calls them unknown.
llvm::Error refuseMissing(int argc, const char *const *argv);

/// What the parsed command line says beside the values of options.
Request readRequest(int argc, const char *const *argv);
/// --config's file, "" without one.
std::string configFile();
/// Sets the options that the configuration means; prints what a user of DeepSpeed should know.
llvm::Error readConfig(Request &r);
llvm::Error readToolOptions(Request &r);
llvm::Expected<ImportOptions> importOptions(const Request &r);
/// As passOptions(); an error about an option that the configuration set says so.
llvm::Expected<Options> readPassOptions(const Request &r);

} // namespace zcc
