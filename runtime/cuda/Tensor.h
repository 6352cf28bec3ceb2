// Products by a warp of tiles of 16-bit floats, or of f32 whose factors are rounded to TF32, summed in f32 in registers whose
// layout is known: a GPU's tensor cores; under emulation, and where a GPU has none for the element, loops. All lanes of a warp
// take part.
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

/// The nearest number of 10 bits behind the point, of two the one further from zero: what tensor cores read of an f32.
__device__ inline float roundedToTf32(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return __uint_as_float(bits);
#elif defined(__CUDA_ARCH__)
  return x; // no tensor core reads it
#else
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  if ((bits & 0x7f800000) != 0x7f800000) // neither infinite nor NaN
    bits = (bits + 0x1000) & ~0x1fffu;
  std::memcpy(&x, &bits, sizeof x);
  return x;
#endif
}

/// Two numbers that are read and written at once.
struct alignas(8) Two {
  float first, second;
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

/// Of 8 terms, `a`'s in the order of Sums; a lane's first column of `b` has `x`, its second `y`.
__device__ inline void multiplyTf32(Sums &s, const float *a, float x, float y) {
#if __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(s.at[0]), "+f"(s.at[1]), "+f"(s.at[2]), "+f"(s.at[3])
      : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[2])), "r"(__float_as_uint(a[1])), "r"(__float_as_uint(a[3])),
        "r"(__float_as_uint(x)), "r"(__float_as_uint(y)));
#endif
}
#else
template <typename T> constexpr bool kHasCores = false;
#endif

/// A piece of 16x16 as the left factor: of a lane's two rows its two columns, then those 8 further. A register has kEach of them.
template <typename T> struct Left {
  static constexpr int kEach = 2;
  uint32_t parts[4];

  Left() = default;
  /// Rounds the sums of two pieces side by side.
  __device__ Left(const Sums &a, const Sums &b)
      : parts{pairOf<T>(a.at[0], a.at[1]), pairOf<T>(a.at[2], a.at[3]), pairOf<T>(b.at[0], b.at[1]),
              pairOf<T>(b.at[2], b.at[3])} {}
  /// Of rows in shared memory, `ld` elements from one to the next, each at a multiple of 16 bytes.
  __device__ void load(const T *from, int ld) {
#ifdef __CUDA_ARCH__
    loadMatrices<false>(parts, from + laneNumber() % kPiece * ld + laneNumber() / kPiece * 8);
#else
    for (int i = 0; i < 4; ++i)
      std::memcpy(&parts[i], from + (laneRow() + i % 2 * 8) * ld + laneColumn() + i / 2 * 8, sizeof parts[i]);
#endif
  }
  /// Of a register, the i-th.
  static __device__ float valueOf(uint32_t part, int i) { return i ? highOf<T>(part) : lowOf<T>(part); }
};

/// The same of f32, rounded to TF32.
template <> struct Left<float> {
  static constexpr int kEach = 1;
  float parts[8];

  Left() = default;
  __device__ Left(const Sums &a, const Sums &b) {
    for (int i = 0; i < 4; ++i) {
      parts[i] = roundedToTf32(a.at[i]);
      parts[4 + i] = roundedToTf32(b.at[i]);
    }
  }
  __device__ void load(const float *from, int ld) {
    fill([&](int row, int column) { return from[row * ld + column]; });
  }
  /// Of f(row, column).
  template <typename F> __device__ void fill(F f) {
#pragma unroll
    for (int i = 0; i < 8; ++i)
      parts[i] = roundedToTf32(f(laneRow() + i / 2 % 2 * 8, laneColumn() + i % 2 + i / 4 * 8));
  }
  static __device__ float valueOf(float part, int) { return part; }
};

/// Adds to a lane's part of the products of its two rows with another's.
template <typename T> __device__ void addDots(const Left<T> &a, const Left<T> &b, float (&sums)[2]) {
  constexpr int kEach = Left<T>::kEach;
#pragma unroll
  for (int i = 0; i < 8; ++i)
    sums[i / 2 % 2] += Left<T>::valueOf(a.parts[i / kEach], i % kEach) * Left<T>::valueOf(b.parts[i / kEach], i % kEach);
}

__device__ inline float factorOf(float x) { return roundedToTf32(x); }
template <typename T> __device__ float factorOf(T x) { return float(x); }

/// The same without tensor cores: rows of the left factor go from lane to lane.
template <bool kAcross, int kM, int kN, typename T>
__device__ void multiplyInLoops(Sums (&sums)[kM][kN], const Left<T> (&a)[kM], const T *b, int ld) {
  constexpr int kEach = Left<T>::kEach;
  for (int m = 0; m < kM; ++m)
    for (int from = 0; from < 32; from += kEach) {
      const int first = from / 4 / kEach * kEach, lane = from / kEach % 4;
      const auto part = __shfl_sync(kAllLanes, a[m].parts[first / kEach], laneNumber() / 4 * 4 + lane);
      for (int i = first; i < first + kEach; ++i) {
        const int k = i / 4 * 8 + lane * 2 + i % 2;
        const float value = Left<T>::valueOf(part, i - first);
        for (int n = 0; n < kN; ++n)
          for (int j = 0; j < 2; ++j) {
            const int column = n * kColumns + laneColumn() + j;
            sums[m][n].at[i / 2 % 2 * 2 + j] += value * factorOf(kAcross ? b[column * ld + k] : b[k * ld + column]);
          }
      }
    }
}

#ifdef __CUDA_ARCH__
/// The same of f32 by tensor cores, which take 8 terms at once, in any order that both factors have: a lane gives those of its
/// columns.
template <bool kAcross, int kM, int kN>
__device__ void multiplyInTf32(Sums (&sums)[kM][kN], const Left<float> (&a)[kM], const float *b, int ld) {
#pragma unroll
  for (int n = 0; n < kN; ++n)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int k = half * 8 + laneColumn(), column = n * kColumns + laneRow();
      Two x;
      if constexpr (kAcross)
        x = *reinterpret_cast<const Two *>(b + column * ld + k);
      else
        x = {b[k * ld + column], b[(k + 1) * ld + column]};
      x = {roundedToTf32(x.first), roundedToTf32(x.second)};
#pragma unroll
      for (int m = 0; m < kM; ++m)
        multiplyTf32(sums[m][n], a[m].parts + half * 4, x.first, x.second);
    }
}
#endif

/// sums += a b, of kM pieces of rows and kN of columns, an even number. `b` lies in shared memory: its 16 rows, `ld` elements
/// from one to the next, each at a multiple of 16 bytes; across: its columns.
template <bool kAcross, int kM, int kN, typename T>
__device__ void addProduct(Sums (&sums)[kM][kN], const Left<T> (&a)[kM], const T *b, int ld) {
#ifdef __CUDA_ARCH__
  if constexpr (kHasCores<T> && std::is_same_v<T, float>)
    return multiplyInTf32<kAcross>(sums, a, b, ld);
  if constexpr (kHasCores<T> && !std::is_same_v<T, float>) {
    const int lane = laneNumber(), half = lane / 8 % 2 * 8, row = lane % 8, other = lane / kPiece * 8;
    const T *const mine = kAcross ? b + (other + row) * ld + half : b + (half + row) * ld + other;
#pragma unroll
    for (int n = 0; n < kN; n += 2) {
      uint32_t x[4];
      loadMatrices<!kAcross>(x, kAcross ? mine + n * kColumns * ld : mine + n * kColumns);
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        multiply<T>(sums[m][n], a[m].parts, x[0], x[1]);
        multiply<T>(sums[m][n + 1], a[m].parts, x[2], x[3]);
      }
    }
    return;
  }
#endif
  multiplyInLoops<kAcross>(sums, a, b, ld);
}

} // namespace zccrt::cuda
