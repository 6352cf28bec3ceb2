// CUDA's compiler and libraries on this machine.
#pragma once

#include "ir/Diag.h"
#include "llvm/ADT/ArrayRef.h"

namespace zcc {

/// The architectures that kernels can be for.
llvm::ArrayRef<llvm::StringRef> knownGpus();

/// The architecture that --march asks for: one of those, "native", or "" for the default, sm_80. Its programs run on that GPU
/// and, after the driver has translated them, on later ones.
llvm::Expected<std::string> gpuOf(llvm::StringRef march);

/// An error that says what is missing to compile and link programs for GPUs, and how to get it.
llvm::Error checkToolkit();
/// Whether there are library kernels that tell of their accesses (--check-kernels).
bool hasCheckedKernels();

/// The compiler and its flags, for an object; cudaLibraries: what the linker needs besides. After checkToolkit().
std::vector<std::string> nvccFor(llvm::StringRef gpu);
std::vector<std::string> cudaLibraries();

} // namespace zcc
