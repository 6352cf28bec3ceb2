// CUDA C++: the arena is the device's memory, kernels and copies are queued. The schedule itself is the host's.
#pragma once

#include "codegen/CpuPrinter.h"

namespace zcc {

class CudaPrinter : public CpuPrinter {
public:
  CudaPrinter(const Module &m, llvm::ArrayRef<Space> spaces, const Target &t);

  std::string copy(Place to, Place from, int64_t bytes) const override;
  std::string choose(Place condition, llvm::StringRef then, llvm::StringRef otherwise) const override;
};

} // namespace zcc
