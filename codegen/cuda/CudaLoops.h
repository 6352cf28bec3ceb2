// The CUDA C++ of one kernel: the plan of its loops (LoopPlan.h) as grids of blocks, and the functions of the host that launch
// them.
#pragma once

#include "codegen/LoopValues.h"

namespace zcc {

/// How many kernels a plan is, one launched behind the other.
int64_t gridsOf(const LoopPlan &plan);

/// Of the loop, in order.
std::vector<size_t> allAxes(const LoopPlan &p);

class CudaLoops : public LoopValues {
public:
  CudaLoops(const LoopPlan &plan, std::string casts);
  /// The kernels and the function that queues them, as KernelText has them.
  std::string definition();

private:
  std::string casts;    ///< typed pointers made of the parameters
  std::string kernels;  ///< definitions so far
  std::string launches; ///< of the host's function
  int64_t kernelCount = 0;
  int64_t together = 1; ///< neighbours of which the text is printed now
  bool isFlat = false;  ///< they are so along all axes of the loop, not only along the last one
  llvm::DenseMap<const LoopAccess *, std::string> vectors; ///< what a thread reads or writes of them at once
  std::vector<const LoopAccess *> touched;                 ///< which these are, in order
  llvm::DenseMap<const LoopAccess *, std::string> turned;  ///< their elements in a block's tile, while that is computed
  std::string buffered;                                    ///< index of the element in a thread's part of a row

  void finishKernel(const std::string &grid, const std::string &block, const std::string &bounds = "");
  void finishKernelOfParts(const std::string &grid, const std::string &block);
  void declareSums(llvm::ArrayRef<const Node *> sums, int64_t n = 1);
  void reduceSums(llvm::ArrayRef<const Node *> sums, const std::string &function, const std::string &each = "");
  std::string rowIndex() const override { return buffered; }
  std::string element(const LoopAccess &a) override;
  int64_t vectorLength();
  bool isVector(const LoopAccess &a) const;
  void neighbours(const LoopPass &w, int64_t n, const std::string &first, llvm::ArrayRef<size_t> axes, const std::string &there,
                  const std::string &lane = "");

  void elementwise() override;
  void tiles() override;
  bool isOfTile(size_t axis) const;
  std::string beginOf(size_t axis);
  std::string tilesOf(size_t axis);
  void eachOfTile(size_t across, size_t along, llvm::function_ref<void()> inTile);
  void rows() override;
  void row();
  void rowPass(const LoopPass &w);
  bool isLong() const;
  std::string rowsBlock() const;
  int64_t rowStep() const;
  int64_t ofThread() const;
  void openRowLoop(const std::string &i, const std::string &e, const std::string &count);
  void rowsAndSums();
  void sumsOverRows(llvm::ArrayRef<const Node *> sums);
  void sharedRows();
  /// The threads of a block that sum together.
  struct Team {
    std::string first, threads; ///< which of how many a thread is
    std::string reduce;         ///< the function for their sums
    std::string within;         ///< "i1 < 768 && ", where blocks have threads for more rows or columns than there are
    std::string block;          ///< its shape
    int64_t slice = 0;          ///< elements of a unit that a thread has one behind the other; 0: every so many
    int64_t columns = 1;        ///< side by side, that a thread has of a unit
  };
  std::string units() { return open.mark({index, num(p.units)}); }
  std::string part(const Node &sum);
  void sumUnit(const LoopPass &w, const Team &t);
  void addParts(llvm::ArrayRef<const Node *> sums, const Team &t);
  void sharedSums(const Team &t, llvm::function_ref<std::string(int64_t columns)> blocks,
                  llvm::function_ref<void(const std::string &block, int64_t columns)> place);
  int64_t columnsOfThread();
  void columns() override;
  void total() override { sharedRows(); }
};

} // namespace zcc
