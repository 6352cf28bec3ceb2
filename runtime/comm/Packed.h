// The tensors of a bucket as one sequence of elements, for collectives that move it in chunks.
#pragma once

#include "runtime/comm/Comm.h"
#include <algorithm>

namespace zccrt {

/// The tensors one behind the other; `length(part)` says how many elements each has here (whole, or
/// one rank's piece).
template <class Length> class Packed {
public:
  Packed(Parts parts, Length length) : parts(parts), length(length) {
    for (const Part &p : parts)
      total += length(p);
  }

  int64_t total = 0;

  /// Calls f(part, offset in it, elements, position behind `begin`) for what lies in [begin, end).
  template <class F> void each(int64_t begin, int64_t end, F f) const {
    int64_t first = 0;
    for (const Part &p : parts) {
      int64_t last = first + length(p), lo = std::max(begin, first), hi = std::min(end, last);
      if (lo < hi)
        f(p, lo - first, hi - lo, lo - begin);
      if (last >= end)
        return;
      first = last;
    }
  }

private:
  Parts parts;
  Length length;
};

inline const char *from(const Part &p, int64_t bytes) { return static_cast<const char *>(p.in) + bytes; }
inline char *to(const Part &p, int64_t bytes) { return static_cast<char *>(p.out) + bytes; }

} // namespace zccrt
