// Products by a warp of tiles of 16-bit floats, of f32 whose factors are rounded to TF32, or of f32 as it is, summed in f32 in
// registers whose layout is known: a GPU's tensor cores; under emulation, and where a GPU has none for the element, loops. All
// lanes of a warp take part.
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

/// An f32 that is rounded to TF32 where it is a factor.
struct Tf32 {
  float value;
  __device__ operator float() const { return value; }
};

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
/// Whether tensor cores take factors of this element.
template <typename T>
constexpr bool kHasCores = std::is_same_v<T, cpu::F16> || (__CUDA_ARCH__ >= 800 && !std::is_same_v<T, float>);

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

/// What a factor is multiplied as.
template <typename T> __device__ float factorOf(T x) {
  if constexpr (std::is_same_v<T, Tf32>)
    return roundedToTf32(x.value);
  else
    return float(x);
}

/// The same of f32, as it is or rounded to TF32.
template <typename T>
  requires(sizeof(T) == 4)
struct Left<T> {
  static constexpr int kEach = 1;
  float parts[8];

  Left() = default;
  __device__ Left(const Sums &a, const Sums &b) {
    for (int i = 0; i < 4; ++i) {
      parts[i] = factorOf(T{a.at[i]});
      parts[4 + i] = factorOf(T{b.at[i]});
    }
  }
  __device__ void load(const T *from, int ld) {
    fill([&](int row, int column) { return from[row * ld + column]; });
  }
  /// Of f(row, column).
  template <typename F> __device__ void fill(F f) {
#pragma unroll
    for (int i = 0; i < 8; ++i)
      parts[i] = factorOf(f(laneRow() + i / 2 % 2 * 8, laneColumn() + i % 2 + i / 4 * 8));
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

/// Of a lane's row, or the one 8 further, columns 8 `part` + 2 `pair` and the next.
template <typename T> __device__ Two termsOf(const Left<T> &a, int part, int half, int pair) {
  const int from = laneNumber() / 4 * 4 + pair;
  if constexpr (Left<T>::kEach == 2) {
    const uint32_t both = __shfl_sync(kAllLanes, a.parts[part * 2 + half], from);
    return {Left<T>::valueOf(both, 0), Left<T>::valueOf(both, 1)};
  } else {
    const float *const parts = a.parts + part * 4 + half * 2;
    return {__shfl_sync(kAllLanes, parts[0], from), __shfl_sync(kAllLanes, parts[1], from)};
  }
}

/// Two factors side by side, the first at an even place of its row.
template <typename T> __device__ Two factorsAt(const T *from) {
  if constexpr (sizeof(T) == 4) {
    const Two x = *reinterpret_cast<const Two *>(from);
    return {factorOf(T{x.first}), factorOf(T{x.second})};
  } else {
    return {factorOf(from[0]), factorOf(from[1])};
  }
}

/// Adds a lane's products of columns k and k + 1 of the left factor, whose terms of both its rows are given.
template <bool kAcross, int kM, int kN, typename T>
__device__ void addTerms(Sums (&sums)[kM][kN], const Two (&terms)[kM][2], const T *b, int ld, int k) {
#pragma unroll
  for (int n = 0; n < kN; ++n) {
    const int column = n * kColumns + laneColumn();
    Two x = factorsAt(kAcross ? b + column * ld + k : b + k * ld + column);
    Two y = factorsAt(kAcross ? b + (column + 1) * ld + k : b + (k + 1) * ld + column);
    if constexpr (!kAcross)
      std::swap(x.second, y.first); // now x is of the first column, y of the second
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float *const sum = sums[m][n].at + half * 2;
        const Two t = terms[m][half];
        sum[0] = z_fma(t.second, x.second, z_fma(t.first, x.first, sum[0]));
        sum[1] = z_fma(t.second, y.second, z_fma(t.first, y.first, sum[1]));
      }
  }
}

/// The same without tensor cores: rows of the left factor go from lane to lane, two columns at a time.
template <bool kAcross, int kM, int kN, typename T>
__device__ void multiplyInLoops(Sums (&sums)[kM][kN], const Left<T> (&a)[kM], const T *b, int ld) {
  [[maybe_unused]] constexpr int kAtOnce = kM * kN > 4 ? 1 : 2; // independent sums hide what a load takes
#pragma unroll
  for (int part = 0; part < 2; ++part)
#pragma unroll kAtOnce
    for (int pair = 0; pair < 4; ++pair) {
      Two terms[kM][2];
#pragma unroll
      for (int m = 0; m < kM; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          terms[m][half] = termsOf(a[m], part, half, pair);
      addTerms<kAcross>(sums, terms, b, ld, part * 8 + pair * 2);
    }
}

#ifdef __CUDA_ARCH__
/// The same by tensor cores, in TF32: they take 8 terms at once, in any order that both factors have; a lane gives those of its
/// columns.
template <bool kAcross, int kM, int kN>
__device__ void multiplyInCores(Sums (&sums)[kM][kN], const Left<Tf32> (&a)[kM], const Tf32 *b, int ld) {
#pragma unroll
  for (int n = 0; n < kN; ++n)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int k = half * 8 + laneColumn(), column = n * kColumns + laneRow();
      Two x;
      if constexpr (kAcross)
        x = factorsAt(b + column * ld + k);
      else
        x = {factorOf(b[k * ld + column]), factorOf(b[(k + 1) * ld + column])};
#pragma unroll
      for (int m = 0; m < kM; ++m)
        multiplyTf32(sums[m][n], a[m].parts + half * 4, x.first, x.second);
    }
}
/// Of 16-bit floats.
template <bool kAcross, int kM, int kN, typename T>
__device__ void multiplyInCores(Sums (&sums)[kM][kN], const Left<T> (&a)[kM], const T *b, int ld) {
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
}
#endif

/// sums += a b, of kM pieces of rows and kN of columns, an even number. `b` lies in shared memory: its 16 rows, `ld` elements
/// from one to the next, each at a multiple of 16 bytes; across: its columns.
template <bool kAcross, int kM, int kN, typename T>
__device__ void addProduct(Sums (&sums)[kM][kN], const Left<T> (&a)[kM], const T *b, int ld) {
#ifdef __CUDA_ARCH__
  if constexpr (kHasCores<T>)
    multiplyInCores<kAcross>(sums, a, b, ld);
  else
#endif
    multiplyInLoops<kAcross>(sums, a, b, ld);
}

} // namespace zccrt::cuda
