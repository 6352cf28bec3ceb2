// Lines along one axis, for operators that are no plain reductions.
#pragma once

#include "runtime/cpu/Call.h"
#include "runtime/cpu/Number.h"

namespace zccrt::cpu {

/// A tensor seen as [outer, n, inner].
struct Lines {
  int64_t outer, n, inner;
  explicit Lines(const zccrt_call *c) {
    const zccrt_tensor &x = operand(c, 0);
    int axis = int(attrInt(c, "axis", 0));
    outer = extent(x, 0, axis);
    n = x.dims[axis];
    inner = extent(x, axis + 1, x.ndim);
  }
  int64_t count() const { return outer * inner; }
  /// The first element of line i of a tensor with so many on each; the next ones are `inner` apart.
  ZCC_ANYWHERE int64_t first(int64_t i, int64_t length) const { return i / inner * length * inner + i % inner; }
};

/// NaN counts as larger than everything, as in PyTorch, both for maxima and (first of all) minima.
template <typename S> ZCC_ANYWHERE bool wins(S a, S b, bool largest) {
  if (b != b)
    return false;
  return a != a || (largest ? a > b : a < b);
}
/// Whether `a` stands for a line rather than `b` in front of it; `last`: of equal ones the last does.
template <typename S> ZCC_ANYWHERE bool replaces(S a, S b, bool largest, bool last) {
  return wins(a, b, largest) || (last && (a == b || (a != a && b != b)));
}

/// What running sums are held in.
template <typename T> struct WideOf {
  using type = Sum<T>;
};
template <> struct WideOf<float> {
  using type = double;
};

} // namespace zccrt::cpu
