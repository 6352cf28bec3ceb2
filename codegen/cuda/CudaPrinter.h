// CUDA C++: the arena is the device's memory, kernels and copies are queued. The schedule itself is the host's.
#pragma once

#include "codegen/CpuPrinter.h"
#include "codegen/cuda/CudaTarget.h"

namespace zcc {

class CudaPrinter : public CpuPrinter {
public:
  CudaPrinter(const Module &m, llvm::ArrayRef<Space> spaces, const Target &t, CudaDevice device);

  llvm::Expected<std::string> kernelCall(const Node &fused, llvm::function_ref<Place(const Value *)> placeOf) override;
  std::string includes() const override;
  std::string copy(Place to, Place from, int64_t bytes) const override;
  std::string libraryCall(llvm::StringRef kernel, unsigned call) const override;
  std::string choose(Place condition, llvm::StringRef then, llvm::StringRef otherwise) const override;

private:
  const bool isChecked; ///< what kernels may touch is said in front of them (runtime/cuda/emulate/Watch.h)
};

} // namespace zcc
