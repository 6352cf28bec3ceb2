// The CPU behind the interface of targets.
#pragma once

#include "passes/Target.h"

namespace zcc {

/// `isa`: features of the CPU, as isaOf gives them; `threads` of each rank. Its rates are from measurements on AVX-512 and AVX2
/// cores.
std::unique_ptr<Target> cpuTarget(llvm::StringRef isa, int threads);

} // namespace zcc
