// Index operands on the device: which row of the data each selects. An index outside of its axis is noted as a fault, and its row
// is -1.
#pragma once

#include "runtime/cpu/IndexRows.h"
#include "runtime/cuda/Each.h"

namespace zccrt::cuda {

struct Indices {
  const char *node;
  const void *data;
  bool isWide;
  Fault *fault;

  Indices(char *arena, const zccrt_call *c, const zccrt_tensor &t)
      : node(c->node), data(arena ? arena + t.offset : nullptr), isWide(t.elem == ZCCRT_I64), fault(faultMemory()) {}
  ZCC_ANYWHERE int64_t resolve(int64_t i, int64_t n) const {
    int64_t x = isWide ? static_cast<const int64_t *>(data)[i] : static_cast<const int32_t *>(data)[i];
    int64_t r = x < 0 ? x + n : x;
    if (r >= 0 && r < n)
      return r;
    if (*static_cast<volatile int *>(&fault->isSet))
      return -1; // the first is told
    fault->index = x;
    fault->axis = n;
    fault->node = node;
    fault->isSet = 1;
    return -1;
  }
};

using AxisRows = cpu::AxisRowsOf<Indices>;
using TupleRows = cpu::TupleRowsOf<Indices>;

struct AxisElements : cpu::AxisElementsOf<Indices> {
  using cpu::AxisElementsOf<Indices>::AxisElementsOf;
  /// Lines along the axis, and the number of the j-th index of line l.
  int64_t lines() const { return dims[axisAt] ? rows / dims[axisAt] : 0; }
  __device__ int64_t at(int64_t l, int64_t j) const {
    int64_t behind = 1;
    for (int a = axisAt + 1; a < ndim; ++a)
      behind *= dims[a];
    return l / behind * dims[axisAt] * behind + j * behind + l % behind;
  }
};

} // namespace zccrt::cuda
