// The loops that a group of elementwise operators and reductions can share: one iteration domain, one set of reduced axes or, of
// rows and sums over them, two. Fuse asks whether a group has such loops; the emitter prints them.
#pragma once

#include "ir/Graph.h"
#include "llvm/ADT/DenseMap.h"
#include <optional>

namespace zcc {

/// How a value of the kernel depends on the domain: an element of it each; one of a row (of a column, of all), where axes are
/// reduced; one of each element of a row, beside rows that are reduced.
enum class Extent { Full, Reduced, Column };

/// Columns are summed in blocks of this many rows, for accuracy. Threads may share the blocks where the sums of one, of as many
/// columns, stay in a cache.
constexpr int64_t kColumnBlock = 64, kWidestColumns = 4096;
/// Columns of a narrow strip, over which kernels may pass more than once: kZStrip of runtime/cpu/KernelMath.h.
constexpr int64_t kStrip = 16;

struct KernelShape {
  /// Pointwise: no reduction. Row: the innermost axis is reduced. Column: it is kept. Total: everything is reduced. Of rows, and
  /// of columns that lie in narrow strips, what follows from a reduction may be computed for each of their elements, too.
  enum Form { Pointwise, Row, Column, Total } form = Pointwise;
  Dims dims;                 ///< the domain: the common refinement of all members' shapes, without axes of 1
  std::vector<bool> reduced; ///< per axis
  bool hasColumns = false;   ///< Row: other members sum over all axes that are not reduced
  llvm::SmallDenseMap<const Node *, Extent, 2> extents; ///< of each member's results
  /// The pass over the row in which a member can first be computed: 0, or one behind the reductions it needs.
  llvm::SmallDenseMap<const Node *, int, 2> phases;

  int64_t count() const { return elementCount(dims); }
  int64_t keptCount() const;
  int64_t rowCount() const { return count() / keptCount(); }
  /// Whether strips of columns are passed over more than once.
  bool passesOverStrips() const;
};

/// Whether a node's code is generated: elementwise, a reduction, or a reshape inside a group.
bool isGenerated(const Node &n);
/// The dims a member iterates over: its result's, or a reduction's operand's; of a shard what this rank holds.
Dims iterationDims(const Node &n);

/// The shared loops of `nodes` (in order of definition), or nullopt if there are none.
std::optional<KernelShape> kernelShape(llvm::ArrayRef<Node *> nodes);

/// Adds nodes (in order of definition) that no member reads, or that only `readers` of the members read, if it is seen at once
/// that they have the same loops; false, and nothing is changed, leaves the question to kernelShape().
bool extend(KernelShape &s, llvm::ArrayRef<Node *> more, llvm::ArrayRef<Node *> readers = {});
/// Takes back what extend() has added.
void withdraw(KernelShape &s, llvm::ArrayRef<Node *> nodes);

/// Strides over the domain with which `user` (a member) reads an operand whose elements lie at `strides` over `dims`;
/// nullopt if they do not exist.
std::optional<Dims> domainStrides(const KernelShape &s, const Node &user, llvm::ArrayRef<int64_t> dims,
                                  llvm::ArrayRef<int64_t> strides);
/// Strides over the domain of a dense tensor that holds a member's result.
Dims resultStrides(const KernelShape &s, const Node &member);

} // namespace zcc
