// What row of the data each index operand selects. Indices: an index tensor with resolve(i, n), index number i into an axis of n,
// which is below 0 where it is outside and the program goes on; so is the row then.
#pragma once

#include "runtime/cpu/Call.h"
#include "runtime/cpu/KernelMath.h"
#include <functional>
#include <numeric>

namespace zccrt::cpu {

/// gather and scatter_add: data[outer, axis, inner], selected[outer, indices, inner].
template <typename Indices> struct AxisRowsOf {
  Indices index;
  int64_t axis, picks, inner;
  int64_t rows; ///< outer * picks
  /// Parts of the data, and as many of the indices one after the other, each of which selects in its part alone.
  int64_t slices() const { return picks ? rows / picks : 1; }

  AxisRowsOf(char *arena, const zccrt_call *c) : index(arena, c, operand(c, 1)) {
    const zccrt_tensor &x = operand(c, 0);
    int a = int(attrInt(c, "axis", 0));
    axis = x.dims[a];
    picks = count(operand(c, 1));
    inner = extent(x, a + 1, x.ndim);
    rows = extent(x, 0, a) * picks;
  }
  /// The row of the data, of `inner` elements, that selected row i is.
  ZCC_ANYWHERE int64_t operator()(int64_t i) const {
    int64_t r = index.resolve(i % picks, axis);
    return r < 0 ? -1 : i / picks * axis + r;
  }
};

/// gather_elements and scatter_elements: rows of one element.
template <typename Indices> struct AxisElementsOf {
  Indices index;
  int axisAt;
  int64_t inner = 1, rows;
  int ndim;
  int64_t dims[ZCCRT_MAX_DIMS], strides[ZCCRT_MAX_DIMS], axis;
  int64_t slices() const { return std::accumulate(dims, dims + axisAt, int64_t(1), std::multiplies<>()); }

  AxisElementsOf(char *arena, const zccrt_call *c)
      : index(arena, c, operand(c, 1)), axisAt(int(attrInt(c, "axis", 0))), rows(count(operand(c, 1))), ndim(operand(c, 1).ndim) {
    const zccrt_tensor &x = operand(c, 0);
    axis = x.dims[axisAt];
    for (int i = 0; i < ndim; ++i) {
      dims[i] = operand(c, 1).dims[i];
      strides[i] = extent(x, i + 1, x.ndim);
    }
  }
  ZCC_ANYWHERE int64_t operator()(int64_t i) const {
    int64_t r = index.resolve(i, axis), row = r * strides[axisAt];
    for (int a = ndim - 1; a >= 0; --a) {
      if (a != axisAt)
        row += i % dims[a] * strides[a];
      i /= dims[a];
    }
    return r < 0 ? -1 : row;
  }
};

/// gather_nd and scatter_nd: tuples of indices into the axes behind `batch` shared ones.
template <typename Indices> struct TupleRowsOf {
  Indices index;
  int64_t width, inner, rows, perBatch, batchRows = 1;
  int64_t dims[ZCCRT_MAX_DIMS];
  int64_t slices() const { return rows / perBatch; }

  TupleRowsOf(char *arena, const zccrt_call *c) : index(arena, c, operand(c, 1)) {
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
  ZCC_ANYWHERE int64_t operator()(int64_t i) const {
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

} // namespace zccrt::cpu
