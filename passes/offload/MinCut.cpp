// The flow that goes along shortest ways until none is left (Edmonds and Karp, 1972) is as large as the cheapest cut.
#include "passes/offload/MinCut.h"
#include <algorithm>

using namespace zcc;

constexpr int64_t kNoLimit = int64_t(1) << 60;

int MinCut::addNode() {
  of_.emplace_back();
  return int(of_.size()) - 1;
}

void MinCut::addEdge(int from, int to, int64_t capacity) {
  of_[from].push_back(int(edges_.size()));
  edges_.push_back({to, capacity});
  of_[to].push_back(int(edges_.size()));
  edges_.push_back({from, 0});
}

void MinCut::addValue(int from, const std::vector<int> &to, int64_t bytes) {
  if (to.empty())
    return;
  int intoSource = addNode(), outOfSource = addNode();
  addEdge(intoSource, from, bytes);
  addEdge(from, outOfSource, bytes);
  for (int reader : to) {
    addEdge(reader, intoSource, kNoLimit);
    addEdge(outOfSource, reader, kNoLimit);
  }
}

/// Finds a shortest way, and takes what it lets through.
bool MinCut::augment() {
  by_.assign(of_.size(), -1);
  std::vector<int> reached = {kSource};
  auto isReached = [&](int n) { return n == kSource || by_[n] >= 0; };
  for (size_t i = 0; i < reached.size() && !isReached(kTarget); ++i)
    for (int e : of_[reached[i]])
      if (edges_[e].left > 0 && !isReached(edges_[e].to)) {
        by_[edges_[e].to] = e;
        reached.push_back(edges_[e].to);
      }
  if (!isReached(kTarget))
    return false;
  int64_t least = kNoLimit;
  for (int n = kTarget; n != kSource; n = edges_[by_[n] ^ 1].to)
    least = std::min(least, edges_[by_[n]].left);
  for (int n = kTarget; n != kSource; n = edges_[by_[n] ^ 1].to) {
    edges_[by_[n]].left -= least;
    edges_[by_[n] ^ 1].left += least;
  }
  return true;
}

std::vector<bool> MinCut::sourceSide() {
  while (augment())
    ;
  std::vector<bool> side(of_.size());
  for (size_t n = 0; n < side.size(); ++n)
    side[n] = n == kSource || by_[n] >= 0;
  return side;
}
