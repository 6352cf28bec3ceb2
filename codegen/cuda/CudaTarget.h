// GPUs behind the interface of targets.
#pragma once

#include "codegen/Profile.h"
#include "passes/Target.h"
#include <optional>

namespace zcc {

/// Checked: an emulated one that looks at every access of kernels.
enum class CudaDevice { Gpu, Emulated, Checked };

/// `arch`: "sm_90". `threads`: of the host, of each rank. Its rates are the profile's; what that has not, or without one, is what
/// the vendor publishes.
std::unique_ptr<Target> cudaTarget(llvm::StringRef arch, CudaDevice device, int threads,
                                   std::optional<Profile> profile = std::nullopt);

} // namespace zcc
