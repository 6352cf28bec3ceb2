// Index operands on the device: which row of the data each selects. An index outside of its axis is noted as a fault, and its row
// is -1.
#pragma once

#include "runtime/cuda/Each.h"

namespace zccrt::cuda {

struct Indices {
  const char *node;
  const void *data;
  bool isWide;
  Fault *fault;

  Indices(char *arena, const zccrt_call *c)
      : node(c->node), data(arena ? arena + operand(c, 1).offset : nullptr), isWide(operand(c, 1).elem == ZCCRT_I64),
        fault(faultMemory()) {}
  __device__ int64_t resolve(int64_t i, int64_t n) const {
    int64_t x = isWide ? static_cast<const int64_t *>(data)[i] : static_cast<const int32_t *>(data)[i];
    int64_t r = x < 0 ? x + n : x;
    if (r >= 0 && r < n)
      return r;
    fault->index = x;
    fault->axis = n;
    fault->node = node;
    fault->isSet = 1;
    return -1;
  }
};

/// gather and scatter_add: data[outer, axis, inner], selected[outer, indices, inner].
struct AxisRows {
  Indices index;
  int64_t axis, picks, inner, rows;

  AxisRows(char *arena, const zccrt_call *c) : index(arena, c) {
    const zccrt_tensor &x = operand(c, 0);
    int a = int(attrInt(c, "axis", 0));
    axis = x.dims[a];
    picks = count(operand(c, 1));
    inner = extent(x, a + 1, x.ndim);
    rows = extent(x, 0, a) * picks;
  }
  __device__ int64_t operator()(int64_t i) const {
    int64_t r = index.resolve(i % picks, axis);
    return r < 0 ? -1 : i / picks * axis + r;
  }
};

/// gather_elements and scatter_elements: rows of one element.
struct AxisElements {
  Indices index;
  int axisAt, ndim;
  int64_t inner = 1, rows, axis;
  int64_t dims[ZCCRT_MAX_DIMS], strides[ZCCRT_MAX_DIMS];

  AxisElements(char *arena, const zccrt_call *c)
      : index(arena, c), axisAt(int(attrInt(c, "axis", 0))), ndim(operand(c, 1).ndim), rows(count(operand(c, 1))) {
    const zccrt_tensor &x = operand(c, 0);
    axis = x.dims[axisAt];
    for (int i = 0; i < ndim; ++i) {
      dims[i] = operand(c, 1).dims[i];
      strides[i] = extent(x, i + 1, x.ndim);
    }
  }
  __device__ int64_t operator()(int64_t i) const {
    int64_t r = index.resolve(i, axis), row = r * strides[axisAt];
    for (int a = ndim - 1; a >= 0; --a) {
      if (a != axisAt)
        row += i % dims[a] * strides[a];
      i /= dims[a];
    }
    return r < 0 ? -1 : row;
  }
  /// Lines along the axis, and the number of the j-th index of line l.
  int64_t lines() const { return dims[axisAt] ? rows / dims[axisAt] : 0; }
  __device__ int64_t at(int64_t l, int64_t j) const {
    int64_t behind = 1;
    for (int a = axisAt + 1; a < ndim; ++a)
      behind *= dims[a];
    return l / behind * dims[axisAt] * behind + j * behind + l % behind;
  }
};

/// gather_nd and scatter_nd: tuples of indices into the axes behind `batch` shared ones.
struct TupleRows {
  Indices index;
  int64_t width, inner, rows, perBatch, batchRows = 1;
  int64_t dims[ZCCRT_MAX_DIMS];

  TupleRows(char *arena, const zccrt_call *c) : index(arena, c) {
    const zccrt_tensor &x = operand(c, 0), &t = operand(c, 1);
    int batch = int(attrInt(c, "batch", 0));
    width = t.dims[t.ndim - 1];
    inner = extent(x, int(batch + width), x.ndim);
    rows = extent(t, 0, t.ndim - 1);
    perBatch = std::max<int64_t>(1, extent(t, batch, t.ndim - 1));
    for (int64_t w = 0; w < width; ++w) {
      dims[w] = x.dims[batch + w];
      batchRows *= dims[w];
    }
  }
  __device__ int64_t operator()(int64_t i) const {
    int64_t row = 0;
    bool isInside = true;
    for (int64_t w = 0; w < width; ++w) {
      int64_t r = index.resolve(i * width + w, dims[w]);
      isInside &= r >= 0;
      row = row * dims[w] + r;
    }
    return isInside ? row + i / perBatch * batchRows : -1;
  }
};

} // namespace zccrt::cuda
