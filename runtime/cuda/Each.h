// Kernels with a thread for each element, and what they share: tensors as kernels get them, indices.
#pragma once

#include "runtime/cpu/Call.h"
#include "runtime/cpu/Number.h"
#include "runtime/cuda/Cuda.h"
#include "runtime/cuda/Faults.h"

namespace zccrt::cuda {

using cpu::at;
using cpu::attrAxis;
using cpu::attrFloat;
using cpu::attrInt;
using cpu::attrString;
using cpu::count;
using cpu::extent;
using cpu::hasOperand;
using cpu::operand;
using cpu::result;
using cpu::scratchAt;

template <typename I, typename F> __global__ void eachKernel(I n, F f) {
  for (I i = I(firstIndex()); i < n; i += I(indexStep()))
    f(i);
}

/// Queues f(i) for each i in [0, n).
template <typename F> void eachOn(int stream, int64_t n, F f) {
  if (n > 0)
    ZCC_LAUNCH_ON(stream, (eachKernel<int64_t, F>), blocksFor(n), kBlock, n, f);
}
template <typename F> void each(int64_t n, F f) { eachOn(kComputeStream, n, f); }

/// Whether indices below n, and a step of a grid beyond, have room in 32 bits.
inline bool areShort(int64_t n) { return n < int64_t(1) << 31; }

/// The same for f that takes indices of any type: they have 32 bits where those suffice, as a division of 64 takes a hundred
/// instructions.
template <typename F> void eachIndex(int64_t n, F f) {
  if (n > 0 && areShort(n))
    ZCC_LAUNCH((eachKernel<unsigned, F>), blocksFor(n), kBlock, unsigned(n), f);
  else
    each(n, f);
}

/// The position along an axis whose window reads position i with a tap; -1: none.
template <typename I> __device__ I readerOf(I i, I tap, I stride, I dilation, I lo, I out) {
  const I from = i + lo - tap * dilation;
  return from >= 0 && from % stride == 0 && from / stride < out ? from / stride : -1;
}

/// Dims and strides, for kernels.
struct Axes {
  int ndim;
  int64_t dims[ZCCRT_MAX_DIMS], strides[ZCCRT_MAX_DIMS];

  Axes(const int64_t *d, const int64_t *s, int n) : ndim(n) {
    for (int i = 0; i < n; ++i) {
      dims[i] = d[i];
      strides[i] = s[i];
    }
  }
  explicit Axes(const zccrt_tensor &t) : Axes(t.dims, t.strides, t.ndim) {}
  /// Where element i in row-major order lies.
  template <typename I> ZCC_ANYWHERE int64_t offset(I i) const {
    int64_t o = 0;
    for (int a = ndim - 1; a >= 0; --a) {
      o += int64_t(i % I(dims[a])) * strides[a];
      i /= I(dims[a]);
    }
    return o;
  }
};

/// Copies elements between strides over the same dims.
void copyStrided(char *to, const int64_t *toStrides, const char *from, const int64_t *fromStrides, const int64_t *dims, int ndim,
                 int64_t elemBytes);
/// Bytes to where they do not overlap.
void copyBytes(char *to, const char *from, int64_t bytes);
void fillBytes(char *to, int byte, int64_t bytes);

} // namespace zccrt::cuda
