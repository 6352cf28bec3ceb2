#include "test/unit/BadKernels.h"
#include "runtime/cuda/AsyncCopy.h"
#include "runtime/cuda/Loops.h"
#include <cstring>

namespace {

constexpr int kThreads = 64;

/// Every thread gets the number of the one behind it, through shared memory.
template <bool barrierBefore, bool barrierBehind> __global__ void rotate(float *x) {
  __shared__ float all[kThreads];
  for (int round = 0; round < 2; ++round) {
    all[threadIdx.x] = x[threadIdx.x];
    if (barrierBefore)
      __syncthreads();
    x[threadIdx.x] = all[(threadIdx.x + 1) % kThreads];
    if (barrierBehind)
      __syncthreads();
  }
}

/// The same within a warp.
template <bool waits> __global__ void rotateInWarp(float *x) {
  __shared__ float all[kThreads];
  all[threadIdx.x] = x[threadIdx.x];
  if (waits)
    __syncwarp();
  x[threadIdx.x] = all[threadIdx.x / 32 * 32 + (threadIdx.x + 1) % 32];
}

/// A barrier of a warp for what another one wrote.
__global__ void acrossWarps(float *x) {
  __shared__ float all[kThreads];
  all[threadIdx.x] = x[threadIdx.x];
  __syncwarp();
  x[threadIdx.x] = all[(threadIdx.x + 32) % kThreads];
}

__global__ void unwritten(float *x) {
  __shared__ float all[kThreads];
  if (threadIdx.x)
    all[threadIdx.x] = 1;
  __syncthreads();
  x[threadIdx.x] = all[threadIdx.x / 2];
}

__global__ void acrossBlocks(float *x) { x[threadIdx.x] = float(blockIdx.x); }
__global__ void neighbour(float *x) { x[threadIdx.x] = x[threadIdx.x + 1]; }
__global__ void everySecond(float *x) { x[2 * threadIdx.x] = x[2 * threadIdx.x + 1]; }
__global__ void behind(float *x) { x[4 * threadIdx.x + 16] = 0; }
__global__ void longIndex(float *x) {
  float own[4] = {};
  for (unsigned i = 0; i <= threadIdx.x; ++i)
    own[i] = x[i];
  x[128 + threadIdx.x] = own[0];
}
__global__ void sums(float *x) {
  x[threadIdx.x] = blockReduce(x[threadIdx.x], [](float a, float b) { return a + b; });
}

/// Every thread turns four numbers round, which it copies to shared memory in two groups, the second of which has two of them.
template <int kLeft> __global__ void turnFours(float *x) {
  __shared__ float all[4 * kThreads + 4];
  float *const own = all + 4 * threadIdx.x;
  zccrt::cuda::copyLater(own, x + 4 * threadIdx.x, true);
  zccrt::cuda::endGroup();
  if (!threadIdx.x)
    zccrt::cuda::copyLater(all + 4 * kThreads, x, false);
  zccrt::cuda::endGroup();
  zccrt::cuda::waitForCopies<kLeft>();
  for (int i = 0; i < 4; ++i)
    x[4 * threadIdx.x + i] = own[3 - i];
}

} // namespace

void kerneltest::queueBadKernel(const char *name, float *x) {
  auto is = [&](const char *other) { return !strcmp(name, other); };
  if (is("rotate"))
    ZCC_LAUNCH((rotate<true, true>), 1, kThreads, x);
  else if (is("no barrier before"))
    ZCC_LAUNCH((rotate<false, true>), 1, kThreads, x);
  else if (is("no barrier behind"))
    ZCC_LAUNCH((rotate<true, false>), 1, kThreads, x);
  else if (is("rotate in warp"))
    ZCC_LAUNCH(rotateInWarp<true>, 1, kThreads, x);
  else if (is("no barrier in warp"))
    ZCC_LAUNCH(rotateInWarp<false>, 1, kThreads, x);
  else if (is("across warps"))
    ZCC_LAUNCH(acrossWarps, 1, kThreads, x);
  else if (is("unwritten"))
    ZCC_LAUNCH(unwritten, 1, kThreads, x);
  else if (is("across blocks"))
    ZCC_LAUNCH(acrossBlocks, 2, kThreads, x);
  else if (is("neighbour"))
    ZCC_LAUNCH(neighbour, 1, kThreads, x);
  else if (is("every second"))
    ZCC_LAUNCH(everySecond, 1, kThreads, x);
  else if (is("behind"))
    ZCC_LAUNCH(behind, 1, kThreads, x);
  else if (is("long index"))
    ZCC_LAUNCH(longIndex, 1, kThreads, x);
  else if (is("sums"))
    ZCC_LAUNCH(sums, 1, kThreads, x);
  else if (is("copied"))
    ZCC_LAUNCH(turnFours<1>, 1, kThreads, x);
  else if (is("not waited for"))
    ZCC_LAUNCH(turnFours<2>, 1, kThreads, x);
  else if (is("large block"))
    ZCC_LAUNCH(acrossBlocks, 1, 1025, x);
  else if (is("high grid"))
    ZCC_LAUNCH(acrossBlocks, dim3(1, 65536), kThreads, x);
  else if (is("no block"))
    ZCC_LAUNCH(acrossBlocks, 0, kThreads, x);
}
