// A matrix product and what is computed from it row by row, as far as rows are wider than those of what the product reads: the
// logits up to their losses, the hidden layer of an MLP up to its output.
#pragma once

#include "ir/Builder.h"
#include "passes/Pass.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include <map>

namespace zcc {

/// Places of nodes in their function.
using NodeOrder = llvm::DenseMap<const Node *, unsigned>;
NodeOrder orderOf(const Function &f);

class RowRegion {
public:
  /// Follows the rows of the result of a matrix product.
  RowRegion(Node &seed, const NodeOrder &order);

  /// Why it cannot be computed a few rows at a time, or "".
  const std::string &whyNot() const { return why; }
  /// Results of the function that would have to be whole.
  const std::vector<unsigned> &returned() const { return results; }
  /// Whether a value is one of its wide ones.
  bool holds(const Value &v) const { return isWide(v); }
  bool contains(const Node &n) const { return members.contains(&n); }
  llvm::ArrayRef<Node *> all() const { return nodes; }
  int64_t rows() const { return spaces.back().rows; }
  /// Computes it in so many tiles, which get the note `tile`, with this number of a split.
  void split(int64_t count, int64_t number);
  /// The cross-entropy whose labels say which rows count, if all that leaves is its losses, which are 0 where a label is ignored,
  /// and what is read of rows with a label alone; else nullptr.
  const Node *rowLosses(const Module &m) const;
  /// Computes it for so many rows only: those whose label is not ignored, and the first others behind them.
  void keepLabelled(int64_t count, const Node &losses);

private:
  friend class RowTile;
  /// Rows, the product of a value's first axes; a slice along them makes others.
  struct Space {
    int64_t rows;
    const Node *slice = nullptr; ///< of the space before
  };
  /// Whose rows the first axes of a value are.
  struct Place {
    unsigned space, axes;
  };

  bool grow();
  void follow(Value &v);
  bool add(Node &n);
  void join(Node &n, Place at);
  void adoptOperands(Node &n);
  std::optional<Place> adopted(Value *v, Place reader) const;
  bool canAdopt(Value *v, Place reader, int depth) const;
  void adopt(Value *v, Place reader);
  bool bring(Value *v);
  std::optional<Place> placeOf(const Node &n);
  std::optional<Place> placeOfSlice(const Node &n, Place at);
  std::optional<unsigned> rowAxes(const Type &t, unsigned space) const;
  bool isWide(const Value &v) const;
  bool finish();

  Function &fn;
  Node &seed;
  const NodeOrder &order;
  int64_t width; ///< elements of a row of what the product reads
  std::string why;
  std::vector<unsigned> results;
  std::vector<Space> spaces;
  std::map<unsigned, Node *> pending; ///< by their places
  std::vector<Node *> nodes;          ///< at the end in order
  llvm::DenseSet<const Node *> members;
  llvm::DenseMap<Value *, Place> inside;
  llvm::DenseSet<const Value *> outside; ///< known to depend on nothing inside, as that is now
  std::vector<Value *> outputs;          ///< narrow, and read elsewhere
};

/// The label that a cross-entropy ignores.
int64_t ignoredBy(const Node &losses);

/// What would have to be whole is no result of the function any more; a remark says that it is `computed`.
void dropResults(Function &f, std::vector<unsigned> results, llvm::StringRef computed, PassContext &ctx);

} // namespace zcc
