// Copies from the device's memory to a block's shared memory that go on while the block computes, in groups; under emulation, and
// on GPUs that have none, they are made at once.
#pragma once

#include "runtime/cuda/Cuda.h"

namespace zccrt::cuda {

struct alignas(16) Sixteen {
  unsigned char bytes[16];
};

/// 16 bytes, from a multiple of 16 to one; or zeros, when nothing is read.
__device__ inline void copyLater(void *to, const void *from, bool isThere) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(unsigned(__cvta_generic_to_shared(to))), "l"(from),
               "r"(isThere ? 16 : 0)
               : "memory");
#else
  Sixteen x = {};
  if (isThere)
    x = *static_cast<const Sixteen *>(from);
  *static_cast<Sixteen *>(to) = x;
#endif
}

/// What a thread has copied since its last group is one.
__device__ inline void endGroup() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

/// Until all but the newest kLeft groups of the thread are there; of other threads behind a barrier.
template <int kLeft> __device__ void waitForCopies() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
#endif
}

} // namespace zccrt::cuda
