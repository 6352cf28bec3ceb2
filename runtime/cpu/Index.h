// Index operands on the CPU: one that is outside of its axis ends the program.
#pragma once

#include "runtime/cpu/IndexRows.h"

namespace zccrt::cpu {

/// An i64 or i32 index tensor; negative values count from the end.
struct Indices {
  const char *node;
  const void *data;
  bool wide;

  /// Without an arena (a question for the workspace) only sizes are looked at.
  Indices(char *arena, const zccrt_call *c, const zccrt_tensor &t)
      : node(c->node), data(arena ? arena + t.offset : nullptr), wide(t.elem == ZCCRT_I64) {}
  /// Index number i into an axis of n; ends the program if it is outside.
  int64_t resolve(int64_t i, int64_t n) const {
    int64_t x = wide ? static_cast<const int64_t *>(data)[i] : static_cast<const int32_t *>(data)[i];
    int64_t r = x < 0 ? x + n : x;
    if (r < 0 || r >= n)
      zccrt_fail(node, "index %lld is outside of an axis of %lld", (long long)x, (long long)n);
    return r;
  }
};

using AxisRows = AxisRowsOf<Indices>;
using AxisElements = AxisElementsOf<Indices>;
using TupleRows = TupleRowsOf<Indices>;

} // namespace zccrt::cpu
