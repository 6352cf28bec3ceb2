// The groups that become kernels, and an order of groups and other nodes that keeps every dependence.
#pragma once

#include "passes/KernelShape.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include <memory>
#include <vector>

namespace zcc {

/// A set of nodes that run together, or one node that is not generated.
struct FuseGroup {
  std::vector<Node *> nodes; ///< in order of definition
  bool isKernel = false;
  std::optional<KernelShape> shape; ///< if isKernel
  size_t position = 0;              ///< in FuseGroups' order

  bool contains(const Node *n) const;
  /// The members, and the reshapes that lead from one member to another.
  std::vector<Node *> withReshapes() const;
  /// Members' values that something outside reads.
  std::vector<Value *> outputs() const;
  /// Values that members read and that no member or inner reshape makes.
  std::vector<Value *> inputs() const;
};

class FuseGroups {
public:
  explicit FuseGroups(Function &f);
  /// Joins each operator with the groups of its producers where they share loops.
  void grow();
  /// Joins reductions that read the same tensor in the same loops.
  void joinSiblings();
  /// Clones cheap members into the groups that read them, where that saves storing their value.
  void recomputeCheap();
  /// Brings the function's nodes into the groups' order and returns it.
  std::vector<FuseGroup *> order();

private:
  Function &f;
  std::vector<std::unique_ptr<FuseGroup>> groups;
  std::vector<FuseGroup *> sequence; ///< a topological order
  llvm::DenseMap<const Node *, FuseGroup *> groupOf;
  llvm::DenseMap<const Node *, unsigned> index;
  llvm::DenseMap<const Node *, std::vector<Node *>> after; ///< dependences through memory
  llvm::DenseMap<const Value *, Node *> firstWrite; ///< of what is written: the node that may overwrite it first

  void addMemoryDependences();
  FuseGroup *single(Node *n);
  bool hasForward(const FuseGroup &g) const;
  bool join(FuseGroup *a, FuseGroup *b);
  void dependences(const FuseGroup &g, llvm::SmallVectorImpl<FuseGroup *> &out) const;
  bool recomputeInto(Value *v, const std::vector<FuseGroup *> &readers);
};

} // namespace zcc
