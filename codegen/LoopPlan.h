// The loops of one kernel as data: what they step through, which passes run over them, what each pass sums, keeps and stores.
// There is no text of any language in it; LoopEmitter prints it as C++.
#pragma once

#include "passes/fuse/KernelShape.h"
#include <map>
#include <string>
#include <vector>

namespace zcc {

/// One way an operand, iota or result is stepped through.
struct LoopAccess {
  enum Kind { Operand, Result, Iota } kind; ///< an iota's value is its offset
  unsigned number;                          ///< of the operand or result
  const Value *value;
  Dims strides; ///< over the plan's axes
  bool operator==(const LoopAccess &) const = default;
  /// Of truth values, which are bytes in memory.
  bool isTruth() const { return value->type.elem == Elem::Bool; }
};

/// What one run of the innermost loops computes.
struct LoopPass {
  std::vector<const Node *> before;   ///< values of the row or column as a whole, to be computed before
  std::vector<const Node *> sums;     ///< reductions, whose results are there after it
  std::vector<const Node *> columns;  ///< Rows: reductions over all rows, whose results are there after the last row
  std::vector<const Value *> buffers; ///< kept for later passes over the same row
  std::vector<unsigned> results;      ///< stored
  std::vector<unsigned> steady; ///< accesses that the innermost axis does not move, to be loaded before: stores might alias them
  std::vector<unsigned> moving; ///< accesses that the innermost axis moves, of what is read
  std::vector<const Node *> angles; ///< sines and the like, which want to know whether an argument is large
  std::vector<const Node *> draws;  ///< random numbers of neighbours along the innermost axis, which are drawn together
  bool empty() const { return sums.empty() && columns.empty() && buffers.empty() && results.empty(); }
};

struct LoopPlan {
  enum Form {
    Elementwise, ///< one pass, the last axis innermost
    Tiled,       ///< the same in square tiles of the last axis and `tiledAxis`, along which an operand is contiguous
    Rows,        ///< for each row, passes over the reduced axes; then what follows from sums over the rows
    Columns,     ///< for each strip of the last axis, passes over the reduced axes, then what follows from the sums
    Total        ///< sums of units in parallel, added in order; then what follows from them
  } form = Elementwise;
  const Function *kernel = nullptr;
  KernelShape shape;
  std::vector<const Node *> members; ///< in order of definition
  Dims dims;                         ///< the domain, with axes merged that all accesses step through together
  std::vector<bool> reduced;         ///< per axis
  std::vector<size_t> keptAxes, reducedAxes;
  std::vector<LoopAccess> accesses;
  std::map<std::pair<const Node *, unsigned>, unsigned> accessOf; ///< (user, operand) -> access
  std::vector<unsigned> resultAccess;                             ///< result -> access
  std::vector<LoopPass> passes;
  /// A select whose condition is the same for a whole row, or for all that the innermost loop runs over: where it does not hold,
  /// all that is stored there is zero, and so is what is added to sums over rows. Nothing else need be computed then. nullptr:
  /// none.
  const Node *guard = nullptr;

  int64_t parts = 1;       ///< so many times over other operands; if not 1, there is one kept or one reduced axis
  int threads = 1;         ///< 1: no parallel loop
  int64_t lanes = 1;       ///< sums side by side along the innermost axis, or along the last reduced axes as if they were one
  bool isTurning = false;  ///< the innermost axis' elements begin at the lane at which those before them ended
  int64_t chunk = 0;       ///< Elementwise over one axis, Total: elements of a piece; 0: not in pieces. Of a grid: what a unit
                           ///< sums of a row, of a column, of all
  size_t tiledAxis = 0;    ///< Tiled
  int64_t tile = 0;        ///< Tiled: the side of a tile
  int64_t rowElements = 1; ///< Rows: of a buffer
  int64_t stripWidth = 0;  ///< Columns
  int64_t rowBlock = 0;    ///< sums over rows: rows whose sums are added before they join the others; 0: all
  int64_t units = 0;       ///< Total; sums over rows: blocks of rows that threads share, 0: they share strips; of a grid Rows and
                           ///< Columns whose sums several blocks share, 0: a block has its own

  size_t innermost() const { return dims.size() - 1; }
  /// The last of the reduced axes with no other between them. A sum runs over them as over one axis, whether or not operands lie
  /// so that they could be merged: its order is the same in any kernel.
  llvm::ArrayRef<size_t> rowAxes() const;
  /// Which elements of all a draw's are.
  const LoopAccess &counterOf(const Node &draw) const { return accesses[accessOf.at({&draw, draw.numOperands() - 1})]; }
  /// Whether a member's value is one of a row (or column), not of an element.
  bool isReduced(const Node *n) const { return shape.extents.lookup(n) == Extent::Reduced; }
  bool isFull(const Node *n) const { return shape.extents.lookup(n) == Extent::Full; }
  int64_t elementsOf(llvm::ArrayRef<size_t> axes) const;
  int64_t keptElements() const { return elementsOf(keptAxes); }
  int64_t reducedElements() const { return elementsOf(reducedAxes); }
  /// Sums over rows: the axes along which strips of them lie.
  llvm::ArrayRef<size_t> columnAxes() const {
    return shape.hasColumns ? llvm::ArrayRef(reducedAxes) : llvm::ArrayRef(keptAxes).take_back();
  }
  /// Bytes for the sums of units, of one part.
  int64_t scratchBytes() const { return scratchOf(nullptr); }
  /// Where in them a reduction's are: by unit, then by row or column.
  int64_t scratchOf(const Node *sum) const;
};

/// In the place of a number of threads: loops are the grids of a GPU.
constexpr int kGrid = 0;
/// Blocks of a grid that share sums over rows have so many of them.
constexpr int64_t kGridRows = 128;
constexpr int64_t kWarp = 32; ///< threads
/// Fewer blocks are too little for a hundred processors of eight blocks each.
constexpr int64_t kManyBlocks = 512;
/// Threads share blocks of rows (kColumnBlock) where each has so many.
constexpr int64_t kBlocksOfThread = 4;

/// `strides[i]`: of operand i over its own dims, in elements. `threads`: what large loops may use. `parts`: of a fused node.
LoopPlan planLoops(const Function &kernel, llvm::ArrayRef<Dims> strides, int threads, int64_t parts = 1);

/// The plan for the reader, a line for each access and pass.
std::string describe(const LoopPlan &plan);

} // namespace zcc
