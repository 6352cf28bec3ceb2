// Which bytes are taken at which time: intervals of offsets, each for an interval of nodes.
#pragma once

#include "llvm/ADT/SmallVector.h"
#include <cstdint>
#include <utility>
#include <vector>

namespace zcc {

/// A segment tree over time. A query looks at a logarithmic number of sets of disjoint, merged intervals, however much lies
/// beside one another at a time, from where the bytes from 0 on are all taken at one of its times: what lives ever shorter, as
/// what a forward keeps for a backward does, stands on that.
class OccupiedMemory {
public:
  /// Times are 0 .. times - 1.
  explicit OccupiedMemory(int times);
  /// Takes [begin, end) from time `first` to `last`, both included.
  void add(int first, int last, int64_t begin, int64_t end);
  /// The lowest offset at which `bytes` are free all the time from `first` to `last`.
  int64_t lowestFree(int first, int last, int64_t bytes);

private:
  /// Disjoint intervals that do not touch, in order, begin and end: few, since what lies side by side is one.
  using Intervals = llvm::SmallVector<std::pair<int64_t, int64_t>, 0>;
  struct Segment {
    Intervals always; ///< taken at all times of the segment
    Intervals ever;   ///< taken at some of them
    /// At each time all bytes below some offset are taken: the greatest of these offsets. What raises it for a whole segment
    /// raises all times that have it; the halves are told when they are looked at.
    int64_t filled = 0;
  };

  int times_;
  std::vector<Segment> segments_; ///< a heap: the halves of segment i are 2 * i and 2 * i + 1

  static void insert(Intervals &set, int64_t begin, int64_t end);
  void add(unsigned segment, int from, int to, int first, int last, int64_t begin, int64_t end);
  void tellHalves(unsigned segment);
  void fill(unsigned segment, int from, int to, int first, int last, int64_t begin, int64_t end);
  int64_t filled(unsigned segment, int from, int to, int first, int last);
  void collect(unsigned segment, int from, int to, int first, int last, std::vector<const Intervals *> &out) const;
};

} // namespace zcc
