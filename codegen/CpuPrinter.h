// C++ for the CPU: an arena is the host's memory, kernels are functions.
#pragma once

#include "codegen/CodePrinter.h"
#include "codegen/EmitKernels.h"
#include "passes/Target.h"

namespace zcc {

class CpuPrinter : public CodePrinter {
public:
  CpuPrinter(const Module &m, llvm::ArrayRef<Space> spaces, const Target &t)
      : CpuPrinter(t, KernelEmitter(m, spaces, printForCpu(t.threads()), sourceHeadForCpu(m))) {}

  llvm::Expected<std::string> kernelCall(const Node &fused, llvm::function_ref<Place(const Value *)> placeOf) override;
  std::vector<std::string> kernelSources() const override { return kernels.sources(); }
  std::string kernelDeclarations() const override { return kernels.declarations(); }

  std::string includes() const override;
  std::string functionHead(llvm::StringRef symbol, bool isBody) const override;
  std::string copy(Place to, Place from, int64_t bytes) const override;
  std::string libraryCall(llvm::StringRef kernel, unsigned call) const override;
  std::string repeat(llvm::StringRef body, int64_t slices, bool reverse) const override;
  std::string choose(Place condition, llvm::StringRef then, llvm::StringRef otherwise) const override;

protected:
  CpuPrinter(const Target &t, KernelEmitter k) : kernels(std::move(k)), target(t) {}
  /// "A + 4096": the address of element 0; in a body run for slice t, "A + 4096 + 64 * t".
  static std::string address(Place p);

private:
  KernelEmitter kernels;
  const Target &target;
};

} // namespace zcc
