// A profile as a file that measurements are added to.
#pragma once
#include "codegen/Profile.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace zcc {

/// Adds what `measure` returns, to three digits, to the profile at `path`, or makes one of it: what was measured before, of other
/// numbers of threads or of the disk, stays. Returns the new text. What cannot be read or written is known before `measure` runs;
/// that may throw zccrt::Failure, of which an error is made, too.
llvm::Expected<std::string> updateProfile(const std::string &path, llvm::function_ref<Profile()> measure);

} // namespace zcc
