// Copies from the device's memory to a block's shared memory that go on while the block computes, in groups. GPUs that have none
// make them at once; the emulation at the last moment, and until then there are NaNs.
#pragma once

#include "runtime/cuda/Cuda.h"

namespace zccrt::cuda {

struct alignas(16) Sixteen {
  unsigned char bytes[16];
};

__device__ inline void copySixteen(void *to, const void *from) {
  Sixteen x = {};
  if (from)
    x = *static_cast<const Sixteen *>(from);
  *static_cast<Sixteen *>(to) = x;
}

/// 16 bytes, from a multiple of 16 to one; or zeros, when nothing is read.
__device__ inline void copyLater(void *to, const void *from, bool isThere) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(unsigned(__cvta_generic_to_shared(to))), "l"(from),
               "r"(isThere ? 16 : 0)
               : "memory");
#elif defined(__CUDACC__)
  copySixteen(to, isThere ? from : nullptr);
#else
  Sixteen unknown;
  for (unsigned char &b : unknown.bytes)
    b = 0xff;
  copySixteen(to, &unknown);
  emulate::addLateCopy({to, isThere ? from : nullptr});
#endif
}

/// What a thread has copied since its last group is one.
__device__ inline void endGroup() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#elif !defined(__CUDACC__)
  emulate::endLateGroup();
#endif
}

/// Until all but the newest kLeft groups of the thread are there; of other threads behind a barrier.
template <int kLeft> __device__ void waitForCopies() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
#elif !defined(__CUDACC__)
  for (const emulate::LateCopy &c : emulate::lateCopies(kLeft))
    copySixteen(c.to, c.from);
#endif
}

} // namespace zccrt::cuda
