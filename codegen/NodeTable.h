// The table of what the functions of an emitted program consist of, for traces.
#pragma once

#include "passes/TimedSchedule.h"

namespace zcc {

class NodeTable {
public:
  /// `schedule`: what is predicted of the nodes; nullptr: nothing.
  explicit NodeTable(const TimedSchedule *schedule);
  /// Adds a node and returns its number.
  unsigned add(const Node &n);
  size_t size() const { return nodes_.size(); }
  /// `nodes`.
  void print(llvm::raw_ostream &os) const;

private:
  llvm::DenseMap<const Node *, std::pair<double, double>> times_; ///< when its first span begins, and its last one ends
  std::vector<const Node *> nodes_;
};

} // namespace zcc
