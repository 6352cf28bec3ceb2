// The command line's flags by name, and setting one as if it were given.
#pragma once

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include <map>
#include <string>
#include <vector>

namespace zcc {

/// Flags by name (without dashes) and their values; a switch is "on".
using FlagValues = std::map<std::string, std::string>;

/// What is given on a command line. A flag that is given twice has its last value.
FlagValues givenFlags(int argc, const char *const *argv);
/// The names of all flags that there are.
std::vector<std::string> flagNames();
/// Sets a flag that there is; "on" or "off" for a switch.
llvm::Error setFlag(llvm::StringRef name, llvm::StringRef value);

} // namespace zcc
