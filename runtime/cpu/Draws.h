// Uniform random numbers (ir/Philox.h) for emitted kernels: an element, or neighbours at once, of which four are a block.
// `stream` has the draw's id in its upper and the time in its lower 32 bits. Part of KernelMath.h.
#pragma once

#include "ir/Philox.h"
#include "runtime/cpu/VecMath.h"

ZCCVM float z_uniform(int64_t e, int64_t seed, int64_t stream) {
  return zcc::philoxUniform(uint64_t(seed), uint64_t(e), uint32_t(uint64_t(stream) >> 32), uint32_t(stream));
}

/// Blocks that are drawn side by side, elements of a run at most, and of its buffer.
constexpr int kZDrawLanes = 32;
constexpr int64_t kZDraws = 1024, kZDrawBuffer = kZDraws + 8 * kZDrawLanes;

/// Elements [first, first + n) of a draw, n at most kZDraws; returns where they begin in `buffer`, which has kZDrawBuffer
/// elements and gets whole blocks, kLanes at a time.
template <int kLanes = kZDrawLanes>
static inline __attribute__((always_inline)) float *z_uniform_blocks(float *buffer, int64_t first, int64_t n, int64_t seed,
                                                                     int64_t stream) {
  const int64_t skip = first % 4;
  for (int64_t b = 0; 4 * b < skip + n; b += kLanes) {
    // Words in 64 bits, as products have them: half the time of narrowing and widening them in each round.
    uint64_t c0[kLanes], c1[kLanes], c2[kLanes], c3[kLanes];
    for (int l = 0; l < kLanes; ++l) {
      c0[l] = uint64_t(first / 4 + b + l);
      c1[l] = c0[l] >> 32;
      c2[l] = uint64_t(stream) >> 32;
      c3[l] = uint64_t(stream);
    }
    uint32_t k0 = uint32_t(seed), k1 = uint32_t(uint64_t(seed) >> 32);
    for (int round = 0; round < zcc::kPhiloxRounds; ++round) {
      for (int l = 0; l < kLanes; ++l)
        zcc::philoxRound(c0[l], c1[l], c2[l], c3[l], k0, k1);
      k0 += zcc::kPhiloxKey0;
      k1 += zcc::kPhiloxKey1;
    }
    float *const y = buffer + 4 * b;
    for (int l = 0; l < kLanes; ++l) {
      y[4 * l] = zcc::philoxUnit(uint32_t(c0[l]));
      y[4 * l + 1] = zcc::philoxUnit(uint32_t(c1[l]));
      y[4 * l + 2] = zcc::philoxUnit(uint32_t(c2[l]));
      y[4 * l + 3] = zcc::philoxUnit(uint32_t(c3[l]));
    }
  }
  return buffer + skip;
}

/// The same, once in the code of a program's kernels; short ones, of strips of columns, without blocks that nobody reads.
__attribute__((noinline)) static inline const float *z_uniform_run(float *buffer, int64_t first, int64_t n, int64_t seed,
                                                                   int64_t stream) {
  const int64_t blocks = (first % 4 + n + 3) / 4;
  return blocks <= 8    ? z_uniform_blocks<8>(buffer, first, n, seed, stream)
         : blocks <= 16 ? z_uniform_blocks<16>(buffer, first, n, seed, stream)
                        : z_uniform_blocks(buffer, first, n, seed, stream);
}
