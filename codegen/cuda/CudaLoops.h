// The CUDA C++ of one kernel: the plan of its loops (LoopPlan.h) as grids of blocks, and the functions of the host that launch
// them.
#pragma once

#include "codegen/LoopValues.h"

namespace zcc {

class CudaLoops : public LoopValues {
public:
  explicit CudaLoops(const LoopPlan &plan, std::string casts) : LoopValues(plan), casts(std::move(casts)) {}
  /// The kernels and the function that queues them, as KernelText has them.
  std::string definition();

private:
  std::string casts;    ///< typed pointers made of the parameters
  std::string kernels;  ///< definitions so far
  std::string launches; ///< of the host's function
  unsigned kernelCount = 0;
  std::string buffered; ///< index of the element in a thread's part of a row

  void finishKernel(const std::string &grid, const std::string &block);
  void finishKernelOfParts(const std::string &grid, const std::string &block);
  std::string product(llvm::ArrayRef<size_t> axes);
  void splitIndex(const std::string &index, llvm::ArrayRef<size_t> axes);
  void declareSums(const LoopPass &w);
  void reduceSums(const LoopPass &w, const std::string &function);
  std::string rowIndex() const override { return buffered; }

  void elementwise() override;
  void tiles() override { elementwise(); }
  void rows() override;
  void rowPass(const LoopPass &w);
  void columns() override;
  void total() override;
};

} // namespace zcc
