// GPUs behind the interface of targets.
#pragma once

#include "codegen/Profile.h"
#include "passes/Target.h"
#include <optional>

namespace zcc {

enum class CudaDevice { Gpu, Emulated };

/// `arch`: "sm_90". `threads`: of the host, of each rank. Its rates are the profile's; what that has not, or without one, is what
/// the vendor publishes.
std::unique_ptr<Target> cudaTarget(llvm::StringRef arch, CudaDevice device, int threads,
                                   std::optional<Profile> profile = std::nullopt);

} // namespace zcc
