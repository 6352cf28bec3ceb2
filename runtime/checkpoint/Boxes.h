// Where elements of a tensor are: a run of the elements of a box of it, in row-major order.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace zccrt {

/// A box of a tensor, of any number of axes.
struct Box {
  std::vector<int64_t> start, shape;

  static Box whole(const std::vector<int64_t> &dims) { return {std::vector<int64_t>(dims.size()), dims}; }
  int64_t elements() const;
  bool operator==(const Box &) const = default;
};

/// Elements [begin, begin + count) of a box.
struct Run {
  Box box;
  int64_t begin = 0, count = 0;
};

/// Calls both(i, j, n) for all that two runs of one tensor have in common: elements [i, i + n) of the first run are elements
/// [j, j + n) of the second. `dims`: of the tensor.
void forEachCommon(const std::vector<int64_t> &dims, const Run &a, const Run &b,
                   const std::function<void(int64_t i, int64_t j, int64_t n)> &both);

} // namespace zccrt
