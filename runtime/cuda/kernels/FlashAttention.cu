// softmax(scale q k^T + mask) v and its gradient for 16-bit floats, in tiles that tensor cores multiply. A warp has some rows of
// its block, in registers, and goes through the other side step by step; while one step is multiplied the next one is copied to
// shared memory. The forward keeps each row's maximum and sum and scales what it has added when the maximum grows. Probabilities
// and their gradients are rounded to the factors' element; nothing is added by two. Exponentials are powers of two.
#include "runtime/cuda/AsyncCopy.h"
#include "runtime/cuda/Heads.h"
#include "runtime/cuda/Tensor.h"
#include "runtime/cuda/Warp.h"

namespace zccrt::cuda {

namespace {

constexpr int kMostWidth = 128, kWarps = 4;
constexpr float kLog2E = 1.4426950408889634f;
__device__ inline float noScore() { return -__builtin_inff(); } ///< of what may not be attended

/// Of heads of at most so many columns: rows of the other side in a step, how far rows of shared memory are apart (eight of them
/// begin in different banks), pieces of 16 rows of a warp's where its sums leave registers for two.
template <int kWidth> struct Tile {
  static constexpr int kPieces = kWidth / kPiece, kLd = kWidth + 8, kStep = kWidth > 64 ? 32 : 64, kMost = kWidth == 64 ? 2 : 1;
  static constexpr int kElements = kStep * kLd, kBlocks = kWidth > 32 ? 2 : 3; ///< whose registers a processor has room for
};

/// 16-bit floats in shared memory, where nothing may be constructed: two steps of two operands.
template <typename T, int kWidth> struct alignas(32) Room {
  uint16_t bits[4 * Tile<kWidth>::kElements];
  __device__ T *stage(int i) { return reinterpret_cast<T *>(bits) + i * 2 * Tile<kWidth>::kElements; }
};

/// Which head a block is for, its rows' first and its warp's first.
struct Place {
  int b, h, first, mine;

  __device__ Place(int64_t heads, int64_t rows, int ofWarp, bool isReversed) {
    const int ofBlock = kWarps * ofWarp, tiles = (int(rows) + ofBlock - 1) / ofBlock, tile = int(blockIdx.x) % tiles;
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
  const T *data;
  int64_t stride;
  int rows, width;
  bool isWide; ///< 16 bytes can be read at once

  __device__ Source(const Rows &of, int64_t b, int64_t h, int64_t rows, int64_t width)
      : data(of.at<T>(b, h, 0)), stride(of.row), rows(int(rows)), width(int(width)) {
    isWide = width % 8 == 0 && stride % 8 == 0 && uintptr_t(data) % 16 == 0;
  }
  /// To shared memory: rows from `first` on, zero behind the last and behind their columns.
  template <int kCount> __device__ void load(T *tile, int first) const {
    constexpr int kEach = kWidth / 8, kAtOnce = kWarps * kWarp / kEach, kLd = Tile<kWidth>::kLd;
    const int r = threadOf() / kEach, c = threadOf() % kEach * 8;
    T *const to = tile + r * kLd + c;
    if (!isWide)
      return loadOneByOne(tile, kCount, data + first * stride, stride, rows - first, width);
    const T *const from = data + (first + r) * stride + c;
    const int there = c < width ? rows - first - r : 0;
#pragma unroll
    for (int i = 0; i < kCount; i += kAtOnce)
      copyLater(to + i * kLd, i < there ? from + i * stride : data, i < there);
  }

private:
  static __device__ __attribute__((noinline)) void loadOneByOne(T *tile, int count, const T *from, int64_t stride, int there,
                                                                int width) {
    for (int e = threadOf(); e < count * kWidth; e += kWarps * kWarp) {
      const int r = e / kWidth, c = e % kWidth;
      tile[r * Tile<kWidth>::kLd + c] = r < there && c < width ? from[r * stride + c] : T(0.0f);
    }
  }
};

/// A warp's rows as left factors.
template <int kWidth, int kM, typename T> __device__ void loadFactors(Left<T> (&to)[Tile<kWidth>::kPieces][kM], const T *tile) {
  constexpr int kLd = Tile<kWidth>::kLd;
#pragma unroll
  for (int p = 0; p < Tile<kWidth>::kPieces; ++p)
#pragma unroll
    for (int m = 0; m < kM; ++m)
      to[p][m].load(tile + (int(threadIdx.y) * kM + m) * kPiece * kLd + p * kPiece, kLd);
}

/// sums += factors b^T, of rows in shared memory.
template <int kWidth, int kM, int kN, typename T>
__device__ void multiplyRows(Sums (&sums)[kM][kN], const Left<T> (&a)[Tile<kWidth>::kPieces][kM], const T *b) {
#pragma unroll
  for (int p = 0; p < Tile<kWidth>::kPieces; ++p)
    addProduct<true>(sums, a[p], b + p * kPiece, Tile<kWidth>::kLd);
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
      const bool byPairs = uintptr_t(row) % 4 == 0 && width % 2 == 0;
      const float f = factor(m, half);
#pragma unroll
      for (int n = 0; n < kN; ++n) {
        const int c = n * kColumns + laneColumn();
        const float low = sums[m][n].at[half * 2] * f, high = sums[m][n].at[half * 2 + 1] * f;
        if (byPairs && c < width) {
          *reinterpret_cast<uint32_t *>(row + c) = pairOf<T>(low, high);
          continue;
        }
        if (c < width)
          row[c] = T(low);
        if (c + 1 < width)
          row[c + 1] = T(high);
      }
    }
}

/// The sum, or the maximum, of four lanes that have parts of the same rows.
template <typename Op> __device__ float ofRow(float x, Op op) {
  x = op(x, __shfl_xor_sync(kAllLanes, x, 1));
  return op(x, __shfl_xor_sync(kAllLanes, x, 2));
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
    // The least of floats leaves a number, whose products are exact: where all keys of a row have it, they have equal parts.
    const float sum = product + added * inverse;
    product = added == noScore() ? added : sum < -0x1p100f ? -0x1p100f : sum; // NaN stays
  }
};

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
    float top[kM][2], shift[kM][2];
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
        shift[m][half] = most[m][half] == noScore() ? 0 : -most[m][half] * scale;
    forSums(scores, [&](int m, int, int i, float &x) {
      x = powerOf2(z_fma(x, scale, shift[m][i / 2]));
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

/// A block's queries, and the keys and values that they go through.
template <typename T, int kWidth> struct QueryTiles {
  using B = Tile<kWidth>;
  static constexpr int kM = B::kMost, kStep = B::kStep, kRows = kWarps * kM * kPiece;
  Room<T, kWidth> &room;
  const Place w;
  const int s, end, mineEnd; ///< queries of the head; behind the last key of the block's, and of the warp's
  const Source<T, kWidth> k, v;
  const Scores score;

  __device__ QueryTiles(const Heads &n, Room<T, kWidth> &room)
      : room(room), w(n.heads, n.s, kM * kPiece, n.causal), s(int(n.s)),
        end(keysOf(n, (w.first + kRows < s ? w.first + kRows : s) - 1)),
        mineEnd(w.mine < s ? keysOf(n, w.mine + kM * kPiece - 1) : 0), k(n.k, w.b, w.h / int(n.group), n.t, n.d),
        v(n.v, w.b, w.h / int(n.group), n.t, n.dv), score(n, w.b, w.h) {}
  /// The block's rows of one value of a query's.
  __device__ void loadQueries(int stage, const Rows &of, int64_t width) const {
    Source<T, kWidth>(of, w.b, w.h, s, width).template load<kRows>(room.stage(stage), w.first);
  }
  /// A step's keys and values.
  __device__ void load(int stage, int t0) const {
    k.template load<kStep>(room.stage(stage), t0);
    v.template load<kStep>(room.stage(stage) + B::kElements, t0);
    endGroup();
  }
  /// Calls f(keys, values, the first's number, how many the warp's queries attend) for each step; the first is in stage 0.
  template <typename F> __device__ void forSteps(F f) const {
    int stage = 0;
    for (int t0 = 0; t0 < end; t0 += kStep, stage ^= 1) {
      if (t0 + kStep < end)
        load(stage ^ 1, t0 + kStep);
      else
        endGroup();
      waitForCopies<1>();
      __syncthreads();
      const T *const keys = room.stage(stage);
      f(keys, keys + B::kElements, t0, mineEnd - t0 < kStep ? mineEnd - t0 : kStep);
      __syncthreads();
    }
  }
};

} // namespace

// ---- forward

template <typename T, int kWidth>
__global__ void __launch_bounds__(kWarps *kWarp, Tile<kWidth>::kBlocks)
    attendTilesKernel(const Heads n, const Rows y, float *lse) {
  using B = Tile<kWidth>;
  constexpr int kM = B::kMost, kKeys = 32;
  __shared__ Room<T, kWidth> room;
  const QueryTiles<T, kWidth> tiles(n, room);
  const Place &w = tiles.w;
  tiles.loadQueries(1, n.q, n.d);
  endGroup();
  tiles.load(0, 0);
  waitForCopies<1>();
  __syncthreads();
  Left<T> q[B::kPieces][kM];
  loadFactors<kWidth, kM>(q, room.stage(1));
  __syncthreads();
  Sums out[kM][2 * B::kPieces];
  Softmax<kM> rows(tiles.score.scale);
  tiles.forSteps([&](const T *ks, const T *vs, int t0, int count) {
    for (int i = 0; i < count; i += kKeys) {
      Sums x[kM][kKeys / kColumns];
      multiplyRows<kWidth>(x, q, ks + i * B::kLd);
      tiles.score.template take<T, false>(x, w.mine, t0 + i);
      rows.take(x, out);
      Left<T> p[kM];
#pragma unroll
      for (int j = 0; j < kKeys / kPiece; ++j) {
        roundTo(p, x, j);
        addProduct<false>(out, p, vs + (i + j * kPiece) * B::kLd, B::kLd);
      }
    }
  });
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float &total = rows.total[m][half];
      total = ofRow(total, [](float a, float b) { return a + b; });
      const int r = w.mine + rowOf(m, half * 2);
      if (r < tiles.s && laneColumn() == 0)
        lse[tiles.score.placeOf(r)] = total == 0 ? noScore() : rows.most[m][half] * float(n.scale) + vlog(total);
    }
  storeRows<T>(out, y, w, tiles.s, int(n.dv), [&](int m, int half) {
    const float total = rows.total[m][half];
    return total == 0 ? 0 : 1 / total;
  });
}

// ---- gradients

/// The queries'; `deltas` gets sum(dy y) of each.
template <typename T, int kWidth>
__global__ void __launch_bounds__(kWarps *kWarp, Tile<kWidth>::kBlocks)
    queryGradTilesKernel(const Heads n, const Rows dy, const Rows y, const Rows dq, const float *lse, float *deltas) {
  using B = Tile<kWidth>;
  constexpr int kM = B::kMost;
  __shared__ Room<T, kWidth> room;
  const QueryTiles<T, kWidth> tiles(n, room);
  const Place &w = tiles.w;
  const Scores &score = tiles.score;
  Left<T> q[B::kPieces][kM], g[B::kPieces][kM];
  tiles.loadQueries(0, n.q, n.d);
  tiles.loadQueries(1, dy, n.dv);
  endGroup();
  waitForCopies<0>();
  __syncthreads();
  loadFactors<kWidth, kM>(q, room.stage(0));
  loadFactors<kWidth, kM>(g, room.stage(1));
  __syncthreads();
  tiles.loadQueries(1, y, n.dv);
  endGroup();
  tiles.load(0, 0);
  waitForCopies<1>();
  __syncthreads();
  float delta[kM][2] = {}, log[kM][2];
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int p = 0; p < B::kPieces; ++p) {
      Left<T> x;
      x.load(room.stage(1) + (int(threadIdx.y) * kM + m) * kPiece * B::kLd + p * kPiece, B::kLd);
      x.dot(g[p][m], delta[m]);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      delta[m][half] = ofRow(delta[m][half], [](float a, float b) { return a + b; });
      const int r = w.mine + rowOf(m, half * 2);
      log[m][half] = score.logOf(lse, r);
      if (r < tiles.s && laneColumn() == 0)
        deltas[score.placeOf(r)] = delta[m][half];
    }
  }
  __syncthreads();
  Sums out[kM][2 * B::kPieces];
  tiles.forSteps([&](const T *ks, const T *vs, int t0, int count) {
    for (int i = 0; i < count; i += kPiece) {
      Sums p[kM][2], dp[kM][2];
      multiplyRows<kWidth>(p, q, ks + i * B::kLd);
      multiplyRows<kWidth>(dp, g, vs + i * B::kLd);
      score.template take<T, false>(p, w.mine, t0 + i);
      forSums(p, [&](int m, int n, int i, float &x) {
        x = powerOf2(z_fma(x, score.scale, -log[m][i / 2])) * (dp[m][n].at[i] - delta[m][i / 2]);
      });
      Left<T> ds[kM];
      roundTo(ds, p, 0);
      addProduct<false>(out, ds, ks + i * B::kLd, B::kLd);
    }
  });
  storeRows<T>(out, dq, w, tiles.s, int(n.d), [&](int, int) { return float(n.scale); });
}

/// The keys' and values', behind the queries'. Of wide heads registers hold the keys alone; the values stay in shared memory, and
/// steps are half as long.
template <typename T, int kWidth>
__global__ void __launch_bounds__(kWarps *kWarp, Tile<kWidth>::kBlocks)
    keyGradTilesKernel(const Heads n, const Rows dy, const Rows dk, const Rows dv, const float *lse, const float *deltas) {
  using B = Tile<kWidth>;
  constexpr bool areNear = kWidth <= 64;
  constexpr int kStep = areNear ? B::kStep : B::kStep / 2, kElements = kStep * B::kLd, kRows = kWarps * kPiece;
  __shared__ Room<T, kWidth> room;
  __shared__ float logRoom[2][kStep], deltaRoom[2][kStep];
  const Place w(n.heads / n.group, n.t, kPiece, false);
  const int s = int(n.s), group = int(n.group), before = w.first - (int(n.t) - s);
  const int begin = n.causal && before > 0 ? before / kStep * kStep : 0;
  auto stageOf = [&](int i) { return room.stage(0) + i * 2 * kElements; };
  auto load = [&](int stage, int h, int r0) {
    const Scores score(n, w.b, h);
    Source<T, kWidth>(n.q, w.b, h, s, n.d).template load<kStep>(stageOf(stage), r0);
    Source<T, kWidth>(dy, w.b, h, s, n.dv).template load<kStep>(stageOf(stage) + kElements, r0);
    if (const int j = threadOf(); j < kStep) {
      logRoom[stage][j] = score.logOf(lse, r0 + j);
      deltaRoom[stage][j] = r0 + j < s ? deltas[score.placeOf(r0 + j)] : 0;
    }
    endGroup();
  };
  Left<T> k[B::kPieces][1], v[B::kPieces][1];
  Source<T, kWidth>(n.k, w.b, w.h, n.t, n.d).template load<kRows>(room.stage(0), w.first);
  Source<T, kWidth>(n.v, w.b, w.h, n.t, n.dv).template load<kRows>(room.stage(1), w.first);
  endGroup();
  waitForCopies<0>();
  __syncthreads();
  loadFactors<kWidth, 1>(k, room.stage(0));
  if constexpr (areNear)
    loadFactors<kWidth, 1>(v, room.stage(1));
  __syncthreads();
  Sums sumsK[1][2 * B::kPieces], sumsV[1][2 * B::kPieces];
#pragma unroll 1
  for (int h = w.h * group; h < (w.h + 1) * group; ++h) {
    const Scores score(n, w.b, h);
    int stage = 0;
    if (begin < s)
      load(0, h, begin);
#pragma unroll 1
    for (int r0 = begin; r0 < s; r0 += kStep, stage ^= 1) {
      if (r0 + kStep < s)
        load(stage ^ 1, h, r0 + kStep);
      else
        endGroup();
      waitForCopies<1>();
      __syncthreads();
#pragma unroll 1
      for (int j = 0; j < kStep && r0 + j < s; j += kPiece) {
        if (w.mine >= keysOf(n, r0 + j + kPiece - 1))
          continue;
        const T *const qs = stageOf(stage) + j * B::kLd, *const gs = qs + kElements;
        Sums p[1][2];
        multiplyRows<kWidth>(p, k, qs);
        score.template take<T, true>(p, r0 + j, w.mine);
        forSums(p,
                [&](int, int n, int i, float &x) { x = powerOf2(z_fma(x, score.scale, -logRoom[stage][j + columnOf(n, i)])); });
        Left<T> factor[1];
        roundTo(factor, p, 0);
        addProduct<false>(sumsV, factor, gs, B::kLd);
        Sums ds[1][2];
        if constexpr (!areNear)
          loadFactors<kWidth, 1>(v, room.stage(1));
        multiplyRows<kWidth>(ds, v, gs);
        forSums(ds, [&](int m, int n, int i, float &x) { x = p[m][n].at[i] * (x - deltaRoom[stage][j + columnOf(n, i)]); });
        roundTo(factor, ds, 0);
        addProduct<false>(sumsK, factor, qs, B::kLd);
      }
      __syncthreads();
    }
  }
  storeRows<T>(sumsK, dk, w, int(n.t), int(n.d), [&](int, int) { return float(n.scale); });
  storeRows<T>(sumsV, dv, w, int(n.t), int(n.dv), [](int, int) { return 1.0f; });
}

// ---- calls

bool takesTiles(const Heads &n) {
  constexpr int64_t kMostRows = 1 << 30;
  return n.scale > 0 && n.d <= kMostWidth && n.dv <= kMostWidth && n.s < kMostRows && n.t < kMostRows;
}

int64_t tilesScratch(const Heads &n) { return n.batch * n.heads * n.s * int64_t(sizeof(float)); }

/// Calls f with a null pointer to the element's type and the columns that tiles have room for.
template <typename F> static void withTiles(const Heads &n, int32_t elem, F f) {
  auto byWidth = [&](auto *type) {
    const int64_t most = std::max(n.d, n.dv);
    if (most <= 32)
      f(type, std::integral_constant<int, 32>());
    else if (most <= 64)
      f(type, std::integral_constant<int, 64>());
    else
      f(type, std::integral_constant<int, kMostWidth>());
  };
  if (elem == ZCCRT_BF16)
    byWidth((cpu::Bf16 *)nullptr);
  else
    byWidth((cpu::F16 *)nullptr);
}

static unsigned blocksOf(int64_t heads, int64_t rows, int pieces) {
  const int ofBlock = kWarps * pieces * kPiece;
  return unsigned(heads * ((rows + ofBlock - 1) / ofBlock));
}

void attendByTiles(const Heads &n, int32_t elem, Rows y, float *lse) {
  withTiles(n, elem, [&](auto *type, auto width) {
    using T = std::remove_pointer_t<decltype(type)>;
    constexpr int kWidth = decltype(width)::value;
    if (unsigned blocks = blocksOf(n.batch * n.heads, n.s, Tile<kWidth>::kMost))
      ZCC_LAUNCH((attendTilesKernel<T, kWidth>), blocks, dim3(kWarp, kWarps), n, y, lse);
  });
}

void attendGradByTiles(const Heads &n, int32_t elem, Rows dy, Rows y, Rows dq, Rows dk, Rows dv, const float *lse,
                       float *deltas) {
  withTiles(n, elem, [&](auto *type, auto width) {
    using T = std::remove_pointer_t<decltype(type)>;
    constexpr int kWidth = decltype(width)::value;
    const dim3 block(kWarp, kWarps);
    if (unsigned blocks = blocksOf(n.batch * n.heads, n.s, Tile<kWidth>::kMost))
      ZCC_LAUNCH((queryGradTilesKernel<T, kWidth>), blocks, block, n, dy, y, dq, lse, deltas);
    if (unsigned blocks = blocksOf(n.batch * (n.heads / n.group), n.t, 1))
      ZCC_LAUNCH((keyGradTilesKernel<T, kWidth>), blocks, block, n, dy, dk, dv, lse, deltas);
  });
}

} // namespace zccrt::cuda
