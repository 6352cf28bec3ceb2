// What kernels are written in: CUDA C++ as nvcc compiles it, and the same text for the emulation as the host's compiler does.
// Kernels are launched on the stream Compute, where nothing else is said; sums have an order that depends on extents alone.
#pragma once

#ifdef __CUDACC__
#include "runtime/cuda/real/Launch.h"
#else
#include "runtime/cuda/emulate/Emulate.h"
#endif

#define ZCC_LAUNCH(kernel, grid, block, ...) ZCC_LAUNCH_ON(zccrt::cuda::kComputeStream, kernel, grid, block, __VA_ARGS__)

namespace zccrt::cuda {

constexpr int kComputeStream = 0; ///< Device::Compute

constexpr int kWarp = 32;
constexpr unsigned kAllLanes = 0xffffffffu;
constexpr int kBlock = 256; ///< threads of a block where nothing else decides

/// Blocks for n elements, one a thread; grids stay below what every device takes, so kernels go on in strides of the grid.
inline unsigned blocksFor(int64_t n, int64_t perBlock = kBlock) {
  constexpr int64_t kMost = 1 << 20;
  int64_t blocks = (n + perBlock - 1) / perBlock;
  return unsigned(blocks < 1 ? 1 : blocks < kMost ? blocks : kMost);
}

/// The first of a thread's elements of a grid of one axis, and how far the next one is.
__device__ inline int64_t firstIndex() { return int64_t(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ inline int64_t indexStep() { return int64_t(gridDim.x) * blockDim.x; }

} // namespace zccrt::cuda
