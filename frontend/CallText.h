// An option's value that reads like a call: NAME(ARGUMENT, ..., KEY=VALUE, ...).
#pragma once

#include "ir/Diag.h"

namespace zcc {

struct CallText {
  std::string name;
  bool hasParentheses = false;
  std::vector<std::string> arguments;                       ///< not empty
  std::vector<std::pair<std::string, std::string>> options; ///< KEY=VALUE
};

/// Errors begin with the option's name: `option` is "--loss".
llvm::Expected<CallText> parseCall(llvm::StringRef option, llvm::StringRef text);

/// "; did you mean 'x'?", or all that there are.
std::string suggestionOf(llvm::StringRef name, const std::vector<std::string> &names);

} // namespace zcc
