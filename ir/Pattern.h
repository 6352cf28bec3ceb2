// Regular expressions that users give.
#pragma once

#include "llvm/Support/Error.h"
#include "llvm/Support/Regex.h"

namespace zcc {

/// The regular expression, or an error that says what is wrong with it; also with one whose repetitions multiply so that
/// memory would end before it is read: "((a{255}){255}){255}".
llvm::Expected<llvm::Regex> readPattern(llvm::StringRef text);

} // namespace zcc
