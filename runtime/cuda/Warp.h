// Reductions over the lanes of a warp: every lane gets the same bits, by halves in a fixed order.
#pragma once

#include "runtime/cpu/KernelMath.h"
#include "runtime/cuda/Cuda.h"

namespace zccrt::cuda {

template <typename T, typename Op> __device__ T warpReduce(T value, Op op) {
  for (int with = kWarp / 2; with; with /= 2)
    value = op(value, __shfl_xor_sync(kAllLanes, value, with));
  return value;
}

template <typename T> __device__ T warpSum(T value) {
  return warpReduce(value, [](T a, T b) { return T(a + b); });
}
template <typename T> __device__ T warpMax(T value) {
  return warpReduce(value, [](T a, T b) { return z_max(a, b); });
}

} // namespace zccrt::cuda
