// The command line of a tool: options as LLVM's library has them, declared from rows, and what is given of them.
#pragma once

#include "ir/Diag.h"
#include "passes/options/OptionRow.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/Support/Error.h"
#include <map>
#include <vector>

namespace llvm::cl {
class OptionCategory;
}

namespace zcc {

/// The category of all our options; a tool puts its own there, too. Everything else is hidden from --help.
llvm::cl::OptionCategory &optionCategory();

/// A tool declares its options before it parses.
void declareOptions(llvm::ArrayRef<OptionRow> rows);
/// The names of all options that are declared.
std::vector<std::string> optionNames();

/// What goes behind "unknown option '--NAME'", given the names that there are; or "".
using OptionHint = llvm::function_ref<std::string(const std::string &name, const std::vector<std::string> &known)>;
/// "; did you mean '--NEAREST'?".
std::string nearestOption(const std::string &name, const std::vector<std::string> &known);
/// Parses the command line; prints one error (with the hint) and returns false if it is wrong.
bool parseCommandLine(int argc, const char *const *argv, llvm::StringRef overview, OptionHint hint = nearestOption);

/// Options by name (without dashes) and their values; a switch is "on".
using FlagValues = std::map<std::string, std::string>;
/// What is given on a command line. An option that is given twice has its last value.
FlagValues givenFlags(int argc, const char *const *argv);
/// Sets an option that there is, as if it were given; "on" or "off" for a switch.
llvm::Error setFlag(llvm::StringRef name, llvm::StringRef value);
/// The texts that an option was given or set; none: it has its default.
std::vector<std::string> textsOf(llvm::StringRef name);

/// Reads an option into its field, which keeps its default where the option is not given.
template <class Rule, class T> llvm::Error readOption(llvm::StringRef name, const Rule &rule, T &to) {
  for (const std::string &text : textsOf(name))
    if (llvm::Error e = rule.read(name, text, to))
      return e;
  return llvm::Error::success();
}

/// A word as the shell reads it back.
std::string shellWord(llvm::StringRef word);

} // namespace zcc
