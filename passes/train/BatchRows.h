// How the values of a function depend on the rows of its batch: whether one comes of each row alone, or adds up over them.
#pragma once

#include "ir/Graph.h"
#include "passes/simplify/ConstantValue.h"
#include "llvm/ADT/DenseMap.h"

namespace zcc {

struct RowKind {
  enum Kind {
    Same,  ///< depends on no row
    Rows,  ///< [outer][batch][inner], row-major: each element of row b comes of row b alone
    Sum,   ///< a sum over the rows of something that comes of each alone
    Floor, ///< a scalar, such a sum or a constant, whichever is more
    Ratio, ///< a scalar, such a sum by another, or by a Floor: a weighted mean
    Mixed  ///< anything else
  } kind = Same;
  int64_t outer = 1;       ///< of Rows
  Value *weight = nullptr; ///< of Ratio: the sum it is divided by; of Floor: the sum
  double floor = 0;        ///< of both: the constant, above 0; 0: there is none

  bool operator==(const RowKind &o) const { return kind == o.kind && outer == o.outer && weight == o.weight && floor == o.floor; }
};
/// Anything else.
inline const RowKind kMixed{RowKind::Mixed};

/// A batch is the first axis of the function's first argument that has one; arguments with another first axis are taken
/// for the same in every batch.
class BatchRows {
public:
  explicit BatchRows(const Function &f);

  int64_t batch() const { return batch_; } ///< 0: no argument has an axis
  RowKind of(const Value *v) const { return kinds.lookup(v); }
  /// The axis of a value of kind Rows that holds the batch, in its whole or its leading part; nullopt if it is split.
  std::optional<unsigned> axisOf(const Value *v) const;
  /// The first node on the way to `v` that mixes rows.
  const Node *mixing(const Value *v) const;
  /// Whether a node that mixes rows does so only by adding means whose weights differ.
  bool addsMeans(const Node &n) const;

private:
  /// Of a body of `outside`, by the kinds of its arguments.
  BatchRows(const Function &body, const BatchRows &outside, llvm::ArrayRef<RowKind> args);

  void addNodes(const Function &f);
  void addScan(const Node &n);
  RowKind kindOf(const Node &n) const;
  RowKind elementwise(const Node &n) const;
  RowKind ofSums(const Node &n) const;
  bool scales(const Node &n, unsigned operand) const;
  RowKind total(const Node &n) const;
  RowKind atLeast(const Node &n) const;
  RowKind rowsAt(const Value *result, unsigned axis) const;
  RowKind matmul(const Node &n) const;
  RowKind gather(const Node &n) const;
  RowKind gatherNd(const Node &n) const;
  RowKind scatterNd(const Node &n) const;
  bool counts(const Value *index, unsigned axis, int64_t component) const;
  RowKind reduction(const Node &n) const;
  RowKind alongAxes(const Node &n) const;
  RowKind samplewise(const Node &n) const;

  int64_t batch_ = 0;
  llvm::DenseMap<const Value *, RowKind> kinds;
  mutable ConstantValues constants;
};

} // namespace zcc
