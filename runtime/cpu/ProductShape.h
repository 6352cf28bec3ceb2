// How the tensors of a batched matrix product lie: leading dimensions, which are transposed, which batches are one larger matrix.
// Of every target, whatever multiplies.
#pragma once

#include "runtime/cpu/Call.h"
#include <vector>

namespace zccrt::cpu {

/// The last two axes of a tensor as BLAS sees them: row-major with a leading dimension, or its
/// transpose.
struct Matrix {
  bool transposed = false;
  int64_t ld = 0;
  bool packed = false; ///< no such layout: copied to scratch first
};

inline Matrix matrixOf(const zccrt_tensor &t) {
  int64_t rows = t.dims[t.ndim - 2], cols = t.dims[t.ndim - 1];
  int64_t down = t.strides[t.ndim - 2], right = t.strides[t.ndim - 1];
  if ((right == 1 || cols == 1) && (rows == 1 || down >= std::max<int64_t>(1, cols)))
    return {false, rows == 1 ? std::max<int64_t>(1, cols) : down};
  if ((down == 1 || rows == 1) && (cols == 1 || right >= std::max<int64_t>(1, rows)))
    return {true, cols == 1 ? std::max<int64_t>(1, rows) : right};
  return {false, std::max<int64_t>(1, cols), true};
}

/// The factor that has a row for each term, 2 KiB or a multiple apart: these share few sets of a cache, and without AVX-512
/// oneDNN 2.6 reads them at half speed where the product has fewer than some 300 rows or columns, which it does not pack
/// (nocopy_checker_avx2 of its gemm_driver.cpp). Of two the one with the wider rows.
enum class Aliased { None, A, B };
inline Aliased aliased(const Matrix &a, const Matrix &b) {
  constexpr int64_t kFloats = 512;
  int64_t left = a.transposed && a.ld % kFloats == 0 ? a.ld : 0, right = !b.transposed && b.ld % kFloats == 0 ? b.ld : 0;
  return !left && !right ? Aliased::None : left >= right ? Aliased::A : Aliased::B;
}

/// Operands behind those that are no factor: a sum that the product is added to.
inline const zccrt_tensor &factor(const zccrt_call *c, int i) { return operand(c, c->nin - 2 + i); }
inline bool isSum(const zccrt_call *c) { return c->nin == 3; }

inline void makeDense(zccrt_tensor &t) {
  int64_t s = 1;
  for (int i = t.ndim - 1; i >= 0; --i) {
    t.strides[i] = s;
    s *= t.dims[i];
  }
}

/// Offset of the i-th matrix of y's batch axes in a tensor that broadcasts to them.
inline int64_t batchOffset(const zccrt_tensor &t, const zccrt_tensor &y, int64_t i) {
  int64_t offset = 0;
  for (int axis = y.ndim - 3; axis >= 0; --axis) {
    int64_t index = i % y.dims[axis];
    i /= y.dims[axis];
    int own = axis - (y.ndim - t.ndim);
    if (own >= 0 && t.dims[own] != 1)
      offset += index * t.strides[own];
  }
  return offset;
}

inline bool oneMatrix(const zccrt_tensor &t) {
  for (int i = 0; i + 2 < t.ndim; ++i)
    if (t.dims[i] != 1 && t.strides[i] != 0)
      return false;
  return true;
}

/// Whether the batch axes and the rows of t are one axis of rows, ld apart.
inline bool rowsMerge(const zccrt_tensor &t, const Matrix &x, int64_t batches) {
  if (x.transposed || count(t) != batches * t.dims[t.ndim - 2] * t.dims[t.ndim - 1])
    return false;
  int64_t next = t.dims[t.ndim - 2] * (t.dims[t.ndim - 2] == 1 ? 0 : x.ld);
  for (int i = t.ndim - 3; i >= 0; --i) {
    if (t.dims[i] == 1)
      continue;
    if (next == 0) // matrices of one row: the axis above gives the leading dimension
      next = t.strides[i];
    else if (t.strides[i] != next)
      return false;
    next = next * t.dims[i];
  }
  return true;
}

/// The distance of merged rows.
inline int64_t mergedLd(const zccrt_tensor &t, const Matrix &x) {
  if (t.dims[t.ndim - 2] != 1)
    return x.ld;
  for (int i = t.ndim - 3; i >= 0; --i)
    if (t.dims[i] != 1)
      return t.strides[i];
  return x.ld;
}

/// The step from batch to batch, if there is one; -1 if it varies.
inline int64_t stepOf(const std::vector<int64_t> &at) {
  int64_t step = at.size() > 1 ? at[1] - at[0] : 0;
  for (size_t i = 1; i < at.size(); ++i)
    if (at[i] - at[i - 1] != step)
      return -1;
  return step;
}

/// Whether a product does not end in oneDNN's sgemm, by itself or behind a primitive, which has memory of its own besides the
/// workspace.
bool avoidsSgemm(const zccrt_call *c);

} // namespace zccrt::cpu
