// Parts a small graph of computations between two places so that the values read in both take the fewest bytes.
#pragma once

#include <cstdint>
#include <vector>

namespace zcc {

class MinCut {
public:
  static constexpr int kSource = 0, kTarget = 1; ///< what is fixed in the one place, or in the other

  int addNode();
  /// A value made by one node and read by others: its bytes count once if any of them is on the other side.
  void addValue(int from, const std::vector<int> &to, int64_t bytes);
  /// Which nodes belong to the source: of all cheapest parts the smallest.
  std::vector<bool> sourceSide();

private:
  struct Edge {
    int to;
    int64_t left; ///< of its capacity
  };
  void addEdge(int from, int to, int64_t capacity);
  bool augment();

  std::vector<Edge> edges_;                  ///< each behind its reverse or in front of it
  std::vector<std::vector<int>> of_{{}, {}}; ///< edges by node
  std::vector<int> by_;                      ///< the edge by which a node is reached; -1: it is not
};

} // namespace zcc
