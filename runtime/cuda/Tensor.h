// Products by a warp of tiles of 16-bit floats, summed in f32 in registers whose layout is known: a GPU's tensor cores; under
// emulation, and where a GPU has none for the element, loops. All lanes of a warp take part.
#pragma once

#include "runtime/cpu/Number.h"
#include "runtime/cuda/Cuda.h"

namespace zccrt::cuda {

constexpr int kPiece = 16;  ///< rows of a left factor, and columns, which are rows of a right one
constexpr int kColumns = 8; ///< of a piece of sums

__device__ inline int laneNumber() { return int(threadIdx.x) % kWarp; }
/// Of a piece: the first of a lane's rows, the other one is 8 further; the first of its columns, the other one is beside it.
__device__ inline int laneRow() { return laneNumber() / 4; }
__device__ inline int laneColumn() { return laneNumber() % 4 * 2; }

/// 16 rows of 8 sums: of a lane's first row the two columns, then of its other one.
struct Sums {
  float at[4] = {};
};

/// Two elements side by side.
template <typename T> __device__ uint32_t pairOf(float low, float high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  uint32_t pair;
  if constexpr (std::is_same_v<T, cpu::Bf16>)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
#else
  return T(low).bits | uint32_t(T(high).bits) << 16;
#endif
}
template <typename T> __device__ float lowOf(uint32_t pair) {
  T x;
  x.bits = uint16_t(pair);
  return x;
}
template <typename T> __device__ float highOf(uint32_t pair) { return lowOf<T>(pair >> 16); }

#ifdef __CUDA_ARCH__
template <typename T> constexpr bool kHasCores = __CUDA_ARCH__ >= 800 || std::is_same_v<T, cpu::F16>;

/// Four matrices of 8x8, whose rows begin where eight lanes each say; across: columns become rows.
template <bool kAcross> __device__ void loadMatrices(uint32_t (&to)[4], const void *row) {
  const unsigned place = unsigned(__cvta_generic_to_shared(row));
  if constexpr (kAcross)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(place)
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(place)
                 : "memory");
}

#define ZCC_MULTIPLY_16(ELEM)                                                                                                    \
  asm("mma.sync.aligned.m16n8k16.row.col.f32." ELEM "." ELEM ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "               \
      "{%0, %1, %2, %3};"                                                                                                        \
      : "+f"(s.at[0]), "+f"(s.at[1]), "+f"(s.at[2]), "+f"(s.at[3])                                                               \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(low), "r"(high))
#define ZCC_MULTIPLY_8(A0, A1, B)                                                                                                \
  asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"                     \
      : "+f"(s.at[0]), "+f"(s.at[1]), "+f"(s.at[2]), "+f"(s.at[3])                                                               \
      : "r"(A0), "r"(A1), "r"(B))
template <typename T> __device__ void multiply(Sums &s, const uint32_t (&a)[4], uint32_t low, uint32_t high) {
#if __CUDA_ARCH__ >= 800
  if constexpr (std::is_same_v<T, cpu::Bf16>)
    ZCC_MULTIPLY_16("bf16");
  else
    ZCC_MULTIPLY_16("f16");
#else
  ZCC_MULTIPLY_8(a[0], a[1], low);
  ZCC_MULTIPLY_8(a[2], a[3], high);
#endif
}
#undef ZCC_MULTIPLY_16
#undef ZCC_MULTIPLY_8
#else
template <typename T> constexpr bool kHasCores = false;
#endif

/// A piece of 16x16 as the left factor: of a lane's two rows its two columns, then those 8 further.
template <typename T> struct Left {
  uint32_t pairs[4];

  Left() = default;
  /// Rounds the sums of two pieces side by side.
  __device__ Left(const Sums &a, const Sums &b)
      : pairs{pairOf<T>(a.at[0], a.at[1]), pairOf<T>(a.at[2], a.at[3]), pairOf<T>(b.at[0], b.at[1]),
              pairOf<T>(b.at[2], b.at[3])} {}
  /// Of rows in shared memory, `ld` elements from one to the next, each at a multiple of 16 bytes.
  __device__ void load(const T *from, int ld) {
#ifdef __CUDA_ARCH__
    loadMatrices<false>(pairs, from + laneNumber() % kPiece * ld + laneNumber() / kPiece * 8);
#else
    for (int i = 0; i < 4; ++i)
      std::memcpy(&pairs[i], from + (laneRow() + i % 2 * 8) * ld + laneColumn() + i / 2 * 8, sizeof pairs[i]);
#endif
  }
  /// Adds to a lane's part of the products of its two rows with another's.
  __device__ void dot(const Left &with, float (&sums)[2]) const {
    for (int i = 0; i < 4; ++i) {
      sums[i % 2] += lowOf<T>(pairs[i]) * lowOf<T>(with.pairs[i]);
      sums[i % 2] += highOf<T>(pairs[i]) * highOf<T>(with.pairs[i]);
    }
  }
};

/// The same without tensor cores: rows of the left factor go from lane to lane.
template <bool kAcross, int kM, int kN, typename T>
__device__ void multiplyInLoops(Sums (&sums)[kM][kN], const Left<T> (&a)[kM], const T *b, int ld) {
  for (int m = 0; m < kM; ++m)
    for (int i = 0; i < 16; ++i) {
      const int part = i / 4, k = part / 2 * 8 + i % 4 * 2;
      const uint32_t pair = __shfl_sync(kAllLanes, a[m].pairs[part], laneNumber() / 4 * 4 + i % 4);
      const float low = lowOf<T>(pair), high = highOf<T>(pair);
      for (int n = 0; n < kN; ++n)
        for (int j = 0; j < 2; ++j) {
          const int column = n * kColumns + laneColumn() + j;
          float &sum = sums[m][n].at[part % 2 * 2 + j];
          sum += low * float(kAcross ? b[column * ld + k] : b[k * ld + column]);
          sum += high * float(kAcross ? b[column * ld + k + 1] : b[(k + 1) * ld + column]);
        }
    }
}

/// sums += a b, of kM pieces of rows and kN of columns, an even number. `b` lies in shared memory: its 16 rows, `ld` elements
/// from one to the next, each at a multiple of 16 bytes; across: its columns.
template <bool kAcross, int kM, int kN, typename T>
__device__ void addProduct(Sums (&sums)[kM][kN], const Left<T> (&a)[kM], const T *b, int ld) {
#ifdef __CUDA_ARCH__
  if constexpr (kHasCores<T>) {
    const int lane = laneNumber(), half = lane / 8 % 2 * 8, row = lane % 8, other = lane / kPiece * 8;
    const T *const mine = kAcross ? b + (other + row) * ld + half : b + (half + row) * ld + other;
#pragma unroll
    for (int n = 0; n < kN; n += 2) {
      uint32_t x[4];
      loadMatrices<!kAcross>(x, kAcross ? mine + n * kColumns * ld : mine + n * kColumns);
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        multiply<T>(sums[m][n], a[m].pairs, x[0], x[1]);
        multiply<T>(sums[m][n + 1], a[m].pairs, x[2], x[3]);
      }
    }
    return;
  }
#endif
  multiplyInLoops<kAcross>(sums, a, b, ld);
}

} // namespace zccrt::cuda
