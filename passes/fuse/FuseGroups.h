// The groups that become kernels, and an order of groups and other nodes that keeps every dependence.
#pragma once

#include "passes/fuse/GroupOrder.h"
#include "passes/fuse/KernelShape.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/SetVector.h"
#include <memory>
#include <vector>

namespace zcc {

/// A set of nodes that run together, or one node that is not generated.
struct FuseGroup {
  std::vector<Node *> nodes; ///< in order of definition
  bool isKernel = false;
  std::optional<KernelShape> shape; ///< if isKernel
  /// While groups are joined: inputs(), once they have been asked for; whether a member widens 16-bit values that the forward
  /// keeps for the backward (save-narrow).
  std::vector<Value *> reads;
  bool readsKept = false;
  Trunks::Contact contact{};
  uint64_t label = 0; ///< of GroupOrder, with the neighbours
  FuseGroup *prev = nullptr, *next = nullptr;
  FuseGroup *place = nullptr; ///< an empty group of the order, farther down, where it will stand
  unsigned waits = 0;         ///< while groups are ordered anew: for so many dependences

  bool contains(const Node *n) const;
  /// The members, and the reshapes that lead from one member to another.
  std::vector<Node *> withReshapes() const;
  /// Members' values that something outside reads.
  std::vector<Value *> outputs() const;
  /// Values that members read and that no member or inner reshape makes.
  std::vector<Value *> inputs() const;
};

/// A kernel's code should stay within the instruction cache, and its pointers within reason.
constexpr size_t kMostNodes = 128, kMostInputs = 32;
/// Of a tensor with many readers, so many are looked at.
constexpr size_t kMostLooks = 256;

class FuseGroups {
public:
  explicit FuseGroups(Function &f);
  /// Joins each operator with the groups of its producers where they share loops.
  void grow();
  /// Joins reductions that read the same tensor in the same loops.
  void joinSiblings();
  /// Lets kernels pass over strips of columns more than once (KernelShape).
  void allowStrips() { mayPassOverStrips = true; }
  /// Joins kernels of at least so many rows with sums over the same rows: gradients of norms' weights and of biases need no pass
  /// of their own.
  void joinColumns(int64_t leastRows);
  /// Clones cheap members into the groups that read them, where that saves storing their value, or reading it, if
  /// `insteadOfReads`.
  void recomputeCheap(bool insteadOfReads);
  /// Joins kernels of the backward without reductions that have two whole tensors to read in common: each is read once.
  void joinReaders();
  /// Brings the function's nodes into the groups' order and returns it.
  std::vector<FuseGroup *> order();
  /// Puts copies of what several reductions would read across its layout into the order.
  void copyForReductions(std::vector<FuseGroup *> &order);

private:
  Function &f;
  std::vector<std::unique_ptr<FuseGroup>> groups;
  GroupOrder sequence; ///< a topological order
  /// What is known of a node of the function.
  struct Member {
    FuseGroup *group = nullptr;
    unsigned index = 0; ///< its place in the function at first; of a clone, that of what it was put before
    /// Dependences through memory, and the same from the other end.
    std::vector<Node *> after = {}, followers = {};
  };
  std::vector<Member> members; ///< by Node::number
  std::vector<const Node *> byIndex;
  llvm::DenseSet<const Value *> results; ///< of the function
  std::unique_ptr<Trunks> trunks;
  bool mayPassOverStrips = false;
  bool isSettled = false;                           ///< nothing has been joined since settle()
  llvm::DenseMap<const Value *, Node *> firstWrite; ///< of what is written: the node that may overwrite it first

  /// What is known of a node of the function, and its group; nullptr for a node of another.
  Member &of(const Node *n) { return members[n->number]; }
  const Member &of(const Node *n) const { return members[n->number]; }
  FuseGroup *groupOf(const Node *n) const { return n && n->parent() == &f && n->number < members.size() ? of(n).group : nullptr; }
  unsigned index(const Node *n) const { return of(n).index; }
  void addMemoryDependences();
  void addPlaces();
  void dependOn(Node *n, Node *earlier);
  void findTrunks();
  FuseGroup *single(Node *n);
  bool hasForward(const FuseGroup &g) const;
  bool fits(const KernelShape &s) const { return mayPassOverStrips || !s.passesOverStrips(); }
  bool join(FuseGroup *a, FuseGroup *b, bool joinsColumns = false);
  std::optional<bool> append(FuseGroup *a, FuseGroup *b);
  void settleJoined(FuseGroup *a, FuseGroup *b);
  bool isSeenBetween(const FuseGroup &a, const FuseGroup &b) const;
  const FuseGroup *rootOf(Value *v) const;
  void forReaders(const FuseGroup &g, llvm::function_ref<void(FuseGroup *reader, const FuseGroup *root)> visit) const;
  void forSources(const FuseGroup &g, llvm::function_ref<void(FuseGroup *source, const FuseGroup *root)> visit) const;
  FuseGroup *joinSibling(FuseGroup *g, size_t &looks, llvm::function_ref<bool(const FuseGroup &)> suits);
  bool bringTogether(FuseGroup *a, FuseGroup *b);
  void settle();

  struct Cone;
  struct Readers {
    llvm::SetVector<FuseGroup *> kernels;
    bool isStored;
  };
  Readers kernelsThatRead(const Value *v) const;
  bool isKept(const Value *v) const;
  bool follow(Value *x, Cone &c) const;
  bool isReadFrom(const Value *v, const FuseGroup &reader) const;
  bool followDear(Cone &c, llvm::ArrayRef<FuseGroup *> readers) const;
  bool isOverwritten(const Value *leaf, const FuseGroup *reader) const;
  size_t extraReads(const FuseGroup &reader, const Cone &c) const;
  bool canTake(const FuseGroup &reader, const Cone &c) const;
  std::vector<Node *> cloneInto(const FuseGroup &reader, const Cone &c);
  bool recomputeIn(FuseGroup &reader, const Cone &c);
  void recomputeInto(Value *v, llvm::ArrayRef<FuseGroup *> readers);
  void recomputeFromRead(Value *v, FuseGroup &reader);
};

} // namespace zcc
