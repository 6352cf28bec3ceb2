// The C++ of one kernel: its loops (LoopPlan.h) and the values computed in them.
#pragma once

#include "codegen/LoopValues.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include <map>

namespace zcc {

/// In front of a loop that stores nothing that it reads elsewhere.
constexpr const char *kNoAlias = "#pragma GCC ivdep\n";

/// Prints the plan of a kernel's loops as C++.
class LoopEmitter : public LoopValues {
public:
  /// `pointers`: typed ones made of the parameters (EmitKernels.h).
  explicit LoopEmitter(const LoopPlan &plan, std::string pointers) : LoopValues(plan), pointers(std::move(pointers)) {}
  /// The function's body, with marks of open numbers.
  std::string body();

private:
  const std::string pointers;
  std::map<unsigned, std::string> arrays; ///< that have an access' elements for now: a strip's narrow ones, a tile
  std::string place;                      ///< of the element that the loops are at in them: a strip's column, or in a tile
  Names ofColumns;                        ///< arrays of what later passes over a strip know of its columns
  std::string turn;                       ///< the variable that has the lane of the innermost axis' first element, if lanes turn

  bool isOfParts() const { return p.parts > 1; }
  void openParts();
  void pointToPart();
  void parallel(size_t collapse);
  void openLoop(size_t axis);
  void openLoops(llvm::ArrayRef<size_t> axes);
  void closeLoops(size_t count);
  void declareSums(llvm::ArrayRef<const Node *> sums, int64_t lanes);
  void combineLanes(const LoopPass &w);
  std::string element(const LoopAccess &a) override;
  bool isNarrow() const;
  std::string wideTypeOf(unsigned access) const;
  void widen(const LoopPass &w, const std::string &first);
  void narrow(const LoopPass &w, const std::string &first);
  void atColumn(const std::string &first, llvm::function_ref<void()> print);
  bool takesBlocks(const LoopPass &w) const;
  void rowBlocks(const LoopPass &w);
  void block(const LoopPass &w, const std::string &first, int64_t width, int64_t known);
  void loadSteady(const LoopPass &w);
  void guardAngles(const LoopPass &w, llvm::function_ref<void()> openLoop, llvm::function_ref<void()> loops);
  void lanesLoops(const LoopPass &w, int64_t lanes, const std::string &lo, const std::string &hi);
  void startLanes();
  void turnLanes(const std::string &count);
  void fillDraws(const LoopPass &w, const std::string &first, const std::string &count);
  void innerLoop(const LoopPass &w, int64_t lanes, const std::string &lo, const std::string &hi);
  void plainInnerLoop(const LoopPass &w, int64_t lanes, const std::string &lo, const std::string &hi);

  void elementwise() override;
  void tiles() override;
  void turnOperands(llvm::function_ref<std::string(size_t)> end);
  void rows() override;
  void row();
  void rowPass(const LoopPass &w);
  void rowsInBlocks();
  void columns() override;
  void columnPasses(const std::string &width);
  void nameColumns(const LoopPass *last, const LoopPass &next, const std::string &width);
  void columnSums(const LoopPass &w, const std::string &width);
  void columnRow(const LoopPass &w, const std::string &first, const std::string &width);
  std::string openStrip(const std::string &first, const std::string &width);
  void strips(llvm::ArrayRef<const Node *> sums, Extent extent, llvm::function_ref<void(const std::string &width)> add);
  void blocks(llvm::ArrayRef<size_t> axes, llvm::function_ref<void()> begin, llvm::function_ref<void()> row);
  void blocksApart(llvm::ArrayRef<const Node *> sums, llvm::ArrayRef<size_t> axes, llvm::function_ref<void()> row);
  void addBlocks(llvm::ArrayRef<const Node *> sums, const std::string &width);
  void join(const Node &sum, const std::string &width, const std::string &more);
  std::string apart(const Node &sum, const std::string &block) const;
  void piecesOfRows(const LoopPass &w);
  void total() override;
};

} // namespace zcc
