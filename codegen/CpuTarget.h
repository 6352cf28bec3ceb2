// The CPU behind the interface of targets.
#pragma once

#include "codegen/Profile.h"
#include "passes/Target.h"
#include <optional>

namespace zcc {

/// `isa`: features of the CPU, as isaOf gives them; `threads` of each of so many ranks. Its rates are the profile's; what that
/// has not, or without one, is from measurements on AVX-512 and AVX2 cores.
std::unique_ptr<Target> cpuTarget(llvm::StringRef isa, int threads, std::optional<Profile> profile = std::nullopt, int ranks = 1);

} // namespace zcc
