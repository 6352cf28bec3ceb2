// Index operands: what row of the data each selects.
#pragma once

#include "runtime/cpu/Call.h"

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

/// gather and scatter_add: data[outer, axis, inner], selected[outer, indices, inner].
struct AxisRows {
  Indices index;
  int64_t axis, picks, inner;
  int64_t rows; ///< outer * picks

  AxisRows(char *arena, const zccrt_call *c) : index(arena, c, operand(c, 1)) {
    const zccrt_tensor &x = operand(c, 0);
    int a = int(attrInt(c, "axis", 0));
    axis = x.dims[a];
    picks = count(operand(c, 1));
    inner = extent(x, a + 1, x.ndim);
    rows = extent(x, 0, a) * picks;
  }
  /// The row of the data, of `inner` elements, that selected row i is.
  int64_t operator()(int64_t i) const { return i / picks * axis + index.resolve(i % picks, axis); }
};

/// gather_elements and scatter_elements: rows of one element.
struct AxisElements {
  Indices index;
  int axisAt;
  int64_t inner = 1, rows;
  int ndim;
  int64_t dims[ZCCRT_MAX_DIMS], strides[ZCCRT_MAX_DIMS], axis;

  AxisElements(char *arena, const zccrt_call *c)
      : index(arena, c, operand(c, 1)), axisAt(int(attrInt(c, "axis", 0))), rows(count(operand(c, 1))), ndim(operand(c, 1).ndim) {
    const zccrt_tensor &x = operand(c, 0);
    axis = x.dims[axisAt];
    for (int i = 0; i < ndim; ++i) {
      dims[i] = operand(c, 1).dims[i];
      strides[i] = extent(x, i + 1, x.ndim);
    }
  }
  int64_t operator()(int64_t i) const {
    int64_t row = index.resolve(i, axis) * strides[axisAt];
    for (int a = ndim - 1; a >= 0; --a) {
      if (a != axisAt)
        row += i % dims[a] * strides[a];
      i /= dims[a];
    }
    return row;
  }
};

/// gather_nd and scatter_nd: tuples of indices into the axes behind `batch` shared ones.
struct TupleRows {
  Indices index;
  int64_t width, inner, rows, perBatch, batchRows = 1;
  int64_t dims[ZCCRT_MAX_DIMS];

  TupleRows(char *arena, const zccrt_call *c) : index(arena, c, operand(c, 1)) {
    const zccrt_tensor &x = operand(c, 0), &t = operand(c, 1);
    int batch = int(attrInt(c, "batch", 0));
    width = t.dims[t.ndim - 1];
    inner = extent(x, int(batch + width), x.ndim);
    rows = extent(t, 0, t.ndim - 1);
    perBatch = extent(t, batch, t.ndim - 1);
    for (int64_t w = 0; w < width; ++w) {
      dims[w] = x.dims[batch + w];
      batchRows *= dims[w];
    }
  }
  int64_t operator()(int64_t i) const {
    int64_t row = 0;
    for (int64_t w = 0; w < width; ++w)
      row = row * dims[w] + index.resolve(i * width + w, dims[w]);
    return row + i / std::max<int64_t>(1, perBatch) * batchRows;
  }
};

} // namespace zccrt::cpu
