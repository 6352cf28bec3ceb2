// What attention in tiles is made of (FlashKernels.h): a block's place, steps of the other side in shared memory, rows of
// factors and of sums in a warp's registers, scores and their exponentials. `T` is a 16-bit float, f32, or f32
// that is rounded to TF32.
#pragma once

#include "runtime/cuda/AsyncCopy.h"
#include "runtime/cuda/Heads.h"
#include "runtime/cuda/Tensor.h"
#include "runtime/cuda/Warp.h"

namespace zccrt::cuda {

constexpr int kMostWidth = 128;
constexpr float kLog2E = 1.4426950408889634f;
__device__ inline float noScore() { return -__builtin_inff(); } ///< of what may not be attended

/// Of heads of at most so many columns: rows of the other side in a step, how far rows of shared memory are apart (eight of them
/// begin in different banks), pieces of 16 rows of a warp's where its sums leave registers for two, a block's warps, of whose
/// rows a stage has room for two pieces each.
template <typename T, int kWidth> struct Tile {
  static constexpr bool isWide = kWidth > 64, isFloat = sizeof(T) == 4;
  static constexpr bool areFar = isWide && isFloat; ///< registers have no room for the factors of a gradient's second product
  static constexpr int kPieces = kWidth / kPiece, kLd = kWidth + (std::is_same_v<T, float> ? 4 : 8),
                       kStep = 4096 / (kWidth > 32 ? kWidth : 64) / (isFloat ? 2 : 1);
  static constexpr int kMost = kWidth == 64 && !isFloat ? 2 : 1, kWarps = isWide && isFloat ? 2 : 4;
  static constexpr int kElements = kStep * kLd, kBlocks = kWidth > 32 ? 2 : 3; ///< whose registers a processor has room for
  static_assert(2 * kStep >= kWarps * kMost * kPiece);
};

/// Elements in shared memory, where nothing may be constructed: two steps of two operands.
template <typename T, int kWidth> struct alignas(32) Room {
  unsigned char bytes[4 * Tile<T, kWidth>::kElements * sizeof(T)];
  __device__ T *stage(int i) { return reinterpret_cast<T *>(bytes) + i * 2 * Tile<T, kWidth>::kElements; }
};
/// One for all kernels: under emulation each thread of the process has it.
template <typename T, int kWidth> __device__ Room<T, kWidth> &sharedRoom() {
  __shared__ Room<T, kWidth> room;
  return room;
}

/// Which head a block is for, its rows' first and its warp's first.
struct Place {
  int b, h, first, mine;

  __device__ Place(int64_t heads, int64_t rows, int ofWarp, bool isReversed) {
    const int ofBlock = int(blockDim.y) * ofWarp, tiles = (int(rows) + ofBlock - 1) / ofBlock, tile = int(blockIdx.x) % tiles;
    b = int(blockIdx.x) / tiles / int(heads);
    h = int(blockIdx.x) / tiles % int(heads);
    first = (isReversed ? tiles - 1 - tile : tile) * ofBlock; // what takes longest goes first
    mine = first + int(threadIdx.y) * ofWarp;
  }
};

/// Keys that a query may attend: [0, this); as Heads has it, in 32 bits.
__device__ inline int keysOf(const Heads &n, int row) {
  const int t = int(n.t), end = row + 1 + t - int(n.s);
  return !n.causal || end > t ? t : end < 0 ? 0 : end;
}

__device__ inline int threadOf() { return int(threadIdx.y) * kWarp + int(threadIdx.x); }

/// A head's rows in the device's memory.
template <typename T, int kWidth> struct Source {
  static constexpr int kLd = Tile<T, kWidth>::kLd, kThreads = Tile<T, kWidth>::kWarps * kWarp;
  static constexpr int kAtATime = 16 / int(sizeof(T)); ///< columns
  const T *data;
  int64_t stride;
  int rows, width;
  bool isWide; ///< 16 bytes can be read at once

  __device__ Source(const Rows &of, int64_t b, int64_t h, int64_t rows, int64_t width)
      : data(of.at<T>(b, h, 0)), stride(of.row), rows(int(rows)), width(int(width)) {
    isWide = width % kAtATime == 0 && stride % kAtATime == 0 && uintptr_t(data) % 16 == 0;
  }
  /// To shared memory: rows from `first` on, zero behind the last and behind their columns.
  template <int kCount> __device__ void load(T *tile, int first) const {
    constexpr int kEach = kWidth / kAtATime, kAtOnce = kThreads / kEach;
    const int r = threadOf() / kEach, c = threadOf() % kEach * kAtATime;
    T *const to = tile + r * kLd + c;
    if (!isWide)
      return loadOneByOne(tile, kCount, data + first * stride, stride, rows - first, width);
    const T *const from = data + (first + r) * stride + c;
    const int there = c < width ? rows - first - r : 0;
#pragma unroll
    for (int i = 0; i < kCount; i += kAtOnce)
      copyLater(to + i * kLd, i < there ? from + i * stride : data, i < there);
  }

  /// Rows from `first` on and columns from `column` on as a left factor, without shared memory.
  __device__ void loadPiece(Left<T> &to, int first, int column) const {
    to.fill(
        [&](int r, int c) { return first + r < rows && column + c < width ? data[(first + r) * stride + column + c] : T{0.0f}; });
  }

private:
  static __device__ __attribute__((noinline)) void loadOneByOne(T *tile, int count, const T *from, int64_t stride, int there,
                                                                int width) {
    for (int e = threadOf(); e < count * kWidth; e += kThreads) {
      const int r = e / kWidth, c = e % kWidth;
      tile[r * kLd + c] = r < there && c < width ? from[r * stride + c] : T{0.0f};
    }
  }
};

/// A warp's rows as left factors, by pieces of their width.
template <typename T, int kWidth, int kM> using Factors = Left<T>[Tile<T, kWidth>::kPieces][kM];
template <int kWidth, int kM, typename T> __device__ void loadFactors(Factors<T, kWidth, kM> &to, const T *tile) {
  constexpr int kLd = Tile<T, kWidth>::kLd;
#pragma unroll
  for (int p = 0; p < Tile<T, kWidth>::kPieces; ++p)
#pragma unroll
    for (int m = 0; m < kM; ++m)
      to[p][m].load(tile + (int(threadIdx.y) * kM + m) * kPiece * kLd + p * kPiece, kLd);
}

/// sums += factors b^T, of rows in shared memory.
template <int kWidth, int kM, int kN, typename T>
__device__ void multiplyRows(Sums (&sums)[kM][kN], const Factors<T, kWidth, kM> &a, const T *b) {
#pragma unroll
  for (int p = 0; p < Tile<T, kWidth>::kPieces; ++p)
    addProduct<true>(sums, a[p], b + p * kPiece, Tile<T, kWidth>::kLd);
}
/// The same of a warp's rows in the device's memory, from `first` on.
template <int kWidth, int kN, typename T>
__device__ void multiplyRows(Sums (&sums)[1][kN], const Source<T, kWidth> &a, int first, const T *b) {
#pragma unroll 1 // a piece in registers, not all
  for (int p = 0; p < Tile<T, kWidth>::kPieces; ++p) {
    Left<T> piece[1];
    a.loadPiece(piece[0], first, p * kPiece);
    addProduct<true>(sums, piece, b + p * kPiece, Tile<T, kWidth>::kLd);
  }
}

/// Calls f(m, n, i, the sum) for each of a lane's.
template <int kM, int kN, typename F> __device__ void forSums(Sums (&sums)[kM][kN], F f) {
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int n = 0; n < kN; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        f(m, n, i, sums[m][n].at[i]);
}
/// Which row and which column the i-th sum of a piece is.
__device__ inline int rowOf(int m, int i) { return m * kPiece + i / 2 * 8 + laneRow(); }
__device__ inline int columnOf(int n, int i) { return n * kColumns + laneColumn() + i % 2; }

/// Columns 2i and 2i + 1 of pieces of sums, rounded.
template <typename T, int kM, int kN> __device__ void roundTo(Left<T> (&to)[kM], const Sums (&sums)[kM][kN], int i) {
#pragma unroll
  for (int m = 0; m < kM; ++m)
    to[m] = Left<T>(sums[m][2 * i], sums[m][2 * i + 1]);
}

template <typename T> __device__ void storePair(T *to, float low, float high) {
  if constexpr (sizeof(T) == 4)
    *reinterpret_cast<Two *>(to) = {low, high};
  else
    *reinterpret_cast<uint32_t *>(to) = pairOf<T>(low, high);
}

/// The sums times a factor for each row, to rows of a head from the warp's first on.
template <typename T, int kM, int kN, typename F>
__device__ void storeRows(const Sums (&sums)[kM][kN], const Rows &to, const Place &w, int rows, int width, F factor) {
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int r = w.mine + rowOf(m, half * 2);
      if (r >= rows)
        continue;
      T *const row = to.at<T>(w.b, w.h, r);
      const bool byPairs = uintptr_t(row) % (2 * sizeof(T)) == 0 && width % 2 == 0;
      const float f = factor(m, half);
#pragma unroll
      for (int n = 0; n < kN; ++n) {
        const int c = n * kColumns + laneColumn();
        const float low = sums[m][n].at[half * 2] * f, high = sums[m][n].at[half * 2 + 1] * f;
        if (byPairs && c < width) {
          storePair(row + c, low, high);
          continue;
        }
        if (c < width)
          row[c] = T{low};
        if (c + 1 < width)
          row[c + 1] = T{high};
      }
    }
}

/// The sum, or the maximum, of four lanes that have parts of the same rows.
template <typename Op> __device__ float ofRow(float x, Op op) {
  x = op(x, __shfl_xor_sync(kAllLanes, x, 1));
  return op(x, __shfl_xor_sync(kAllLanes, x, 2));
}

/// Calls f(m, which of the two) for each of a lane's rows.
template <int kM, typename F> __device__ void forRows(F f) {
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half)
      f(m, half);
}

/// Whether it is so for any thread of the block. All of them ask, and a kernel asks once.
template <int kWarps> __device__ bool isSoForAny(bool is) {
  __shared__ bool ofWarp[kWarps];
  is = __any_sync(kAllLanes, is);
  if (threadIdx.x == 0)
    ofWarp[threadIdx.y] = is;
  __syncthreads();
  bool any = false;
#pragma unroll
  for (int i = 0; i < kWarps; ++i)
    any |= ofWarp[i];
  return any;
}

__device__ inline float powerOf2(float x) {
#ifdef __CUDA_ARCH__
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return vexp(x * 0.6931471805599453f);
#endif
}

/// What softmax takes: products, with what may not be attended and what a mask adds; their exponentials are powers of two of
/// `scale` times as much.
struct Scores {
  const Heads &n;
  int b, h;
  float scale;

  __device__ Scores(const Heads &n, int b, int h) : n(n), b(b), h(h), scale(float(n.scale) * kLog2E) {}
  /// Of products of queries from `row` on, in rows or, across, in columns, and keys from `key` on.
  template <typename T, bool kAcross, int kM, int kN> __device__ void take(Sums (&products)[kM][kN], int row, int key) const {
    if (areWhole(row, key + (kAcross ? kM * kPiece : kN * kColumns)))
      return;
    forSums(products, [&](int m, int n, int i, float &x) {
      const int r = rowOf(m, i), c = columnOf(n, i);
      x = isAttended(row + (kAcross ? c : r), key + (kAcross ? r : c)) ? x : noScore();
    });
    if (!n.mask)
      return;
    const float inverse = 1 / float(n.scale);
    forSums(products, [&](int m, int n, int i, float &x) {
      const int r = rowOf(m, i), c = columnOf(n, i);
      addMask<T>(x, row + (kAcross ? c : r), key + (kAcross ? r : c), inverse);
    });
  }
  /// Of a query, in an array of one number each.
  __device__ int64_t placeOf(int row) const { return (b * n.heads + h) * n.s + row; }
  /// What is taken from the power's exponent for probabilities: the logarithm of a query's sum; of none, what leaves nothing.
  __device__ float logOf(const float *lse, int row) const {
    const float log = row < int(n.s) ? lse[placeOf(row)] : noScore();
    return log == noScore() ? __builtin_inff() : log * kLog2E;
  }

private:
  /// Whether queries from `row` on attend all keys before `end`, and nothing is added to what they have.
  __device__ bool areWhole(int row, int end) const { return !n.mask && end <= keysOf(n, row); }
  __device__ bool isAttended(int row, int key) const { return row < int(n.s) && key < keysOf(n, row); }
  template <typename T> __device__ void addMask(float &product, int row, int key, float inverse) const {
    asm volatile("" : "+r"(key), "+r"(row)); // what only this needs may not take registers from the others
    if (!isAttended(row, key))
      return;
    const float added = n.masked<T, float>(0, b, h, row, key);
    // The least of floats leaves a number: where all keys of a row have it, they have equal parts.
    const float sum = product + added * inverse;
    product = added == noScore() ? added : sum < -0x1p100f ? -0x1p100f : sum; // NaN stays
  }
};

/// Whether a log-sum, as Scores has it, is one that has lost the logarithm of the sum.
__device__ inline bool isFar(float log) { return log < kFarLogSum * kLog2E; }

/// Rows' sums of exponentials so far, over what was their maximum when it last grew by much.
template <int kM> struct Softmax {
  static constexpr float kMuch = 8; ///< exponentials over less than the maximum are at most 2^8
  float scale, most[kM][2], total[kM][2] = {};

  __device__ explicit Softmax(float scale) : scale(scale) {
    for (int m = 0; m < kM; ++m)
      most[m][0] = most[m][1] = noScore();
  }
  /// Scores become their exponentials; where a maximum grew, what was added up before is scaled.
  template <int kN, int kOut> __device__ void take(Sums (&scores)[kM][kN], Sums (&sums)[kM][kOut]) {
    float top[kM][2], base[kM][2];
    bool grows = false;
#pragma unroll
    for (int m = 0; m < kM; ++m)
      top[m][0] = top[m][1] = noScore();
    forSums(scores, [&](int m, int, int i, float x) { top[m][i / 2] = __builtin_fmaxf(top[m][i / 2], x); });
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float &t = top[m][half];
        t = __builtin_fmaxf(most[m][half], ofRow(t, [](float a, float b) { return __builtin_fmaxf(a, b); }));
        grows |= (t - most[m][half]) * scale > kMuch;
      }
    if (__any_sync(kAllLanes, grows))
      grow(top, sums);
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        base[m][half] = most[m][half] == noScore() ? 0 : most[m][half];
    // The difference before the product: of scores that masks put far away, that of products is off by more than they differ.
    forSums(scores, [&](int m, int, int i, float &x) {
      x = powerOf2((x - base[m][i / 2]) * scale);
      total[m][i / 2] += x;
    });
  }

private:
  template <int kOut> __device__ void grow(const float (&top)[kM][2], Sums (&sums)[kM][kOut]) {
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float &before = most[m][half];
        const float grown = top[m][half] == noScore() ? 1 : powerOf2((before - top[m][half]) * scale);
        before = top[m][half];
        total[m][half] *= grown;
#pragma unroll
        for (int n = 0; n < kOut; ++n) {
          sums[m][n].at[half * 2] *= grown;
          sums[m][n].at[half * 2 + 1] *= grown;
        }
      }
  }
};

} // namespace zccrt::cuda
