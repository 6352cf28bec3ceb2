// The schedule that a program is compiled with, checked before there is a program.
#pragma once

#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/Error.h"
#include <string>
#include <utility>

namespace zcc {

/// What the program would refuse, all at once.
llvm::Error checkSchedule(llvm::StringRef name, llvm::ArrayRef<std::pair<std::string, std::string>> params);

} // namespace zcc
