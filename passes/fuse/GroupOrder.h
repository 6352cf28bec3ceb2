// A topological order of groups that stays one while groups are joined, at a cost that follows what a join moves, and quick
// answers to what lies on a path between two groups.
#pragma once

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include <cstdint>
#include <vector>

namespace zcc {

struct FuseGroup;

/// A linked list with labels: `a` stands before `b` if its label is smaller. Bender and others, "Two simplified algorithms
/// for maintaining order in a list", 2002.
class GroupOrder {
public:
  void append(FuseGroup *g);
  void remove(FuseGroup *g);
  /// Puts groups that stand elsewhere right behind `at` (first if null), in this order.
  void moveBehind(FuseGroup *at, llvm::ArrayRef<FuseGroup *> groups);
  /// All, in order.
  std::vector<FuseGroup *> all() const;

private:
  FuseGroup *first_ = nullptr, *last_ = nullptr;
  void insertBehind(FuseGroup *at, FuseGroup *g, uint64_t label);
  void makeRoom(FuseGroup *at);
};

/// A few long paths through a graph. Most of what joining must know of a deep network is seen on them: whatever reaches a
/// node of such a path reaches all that the path's later nodes reach.
class Trunks {
public:
  static constexpr unsigned kCount = 4;
  /// Where a group meets the paths: the first place that it reaches, and the last that it is reached from.
  struct Contact {
    int reaches[kCount], reachedFrom[kCount];
    void merge(const Contact &o);
  };

  /// `before[i]`: the nodes, of smaller numbers, that node i depends on. Reshapes (`isPassive`) lead on but do not count.
  Trunks(llvm::ArrayRef<llvm::SmallVector<unsigned, 3>> before, const std::vector<bool> &isPassive);

  const Contact &contact(unsigned node) const { return contacts_[node]; }
  /// Nodes of trunk `t` that are reached from `a` and reach `b`; empty if none is seen.
  llvm::ArrayRef<unsigned> between(unsigned t, const Contact &a, const Contact &b) const;

private:
  std::vector<unsigned> paths_[kCount]; ///< nodes that count, in order
  std::vector<Contact> contacts_;
};

} // namespace zcc
