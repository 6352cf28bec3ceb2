// GPUs behind the interface of targets.
#pragma once

#include "codegen/Profile.h"
#include "passes/Target.h"
#include <optional>

namespace zcc {

/// Checked: an emulated one that looks at every access of kernels.
enum class CudaDevice { Gpu, Emulated, Checked };

/// `arch`: "sm_90". `host`: the CPU that it hangs on, with the threads of each rank. Its rates are the profile's; what that has
/// not, or without one, is what the vendor publishes. `tf32`: it multiplies f32 in TF32.
std::unique_ptr<Target> cudaTarget(llvm::StringRef arch, CudaDevice device, std::unique_ptr<Target> host,
                                   std::optional<Profile> profile = std::nullopt, bool tf32 = false);

} // namespace zcc
