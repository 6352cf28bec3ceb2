// Attention's kernels in tiles: softmax(scale q k^T + mask) v and its gradient for 16-bit floats and f32, multiplied by tensor
// cores, or, where f32 is not to be rounded to TF32, by loops. A warp has some rows of its block, in registers, and goes through
// the other side step by step; while one step is multiplied the next one is copied to shared memory. The forward keeps each row's
// maximum and sum and scales what it has added when the maximum grows. Probabilities and their gradients are rounded to the
// factors' element; nothing is added by two. Exponentials are powers of two. Of rows that a mask's finite values put far from 0
// log-sums have lost the logarithm of the sum: the queries' gradient finds maximum and sum anew, and notes them for the keys'.
#pragma once

#include "runtime/cuda/FlashTiles.h"

namespace zccrt::cuda {

/// A block's queries, and the keys and values that they go through.
template <typename T, int kWidth> struct QueryTiles {
  using B = Tile<T, kWidth>;
  static constexpr int kM = B::kMost, kStep = B::kStep, kRows = B::kWarps * kM * kPiece;
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

// ---- forward

template <typename T, int kWidth>
__global__ void __launch_bounds__(Tile<T, kWidth>::kWarps *kWarp, Tile<T, kWidth>::kBlocks)
    attendTilesKernel(const Heads n, const Rows y, float *lse) {
  using B = Tile<T, kWidth>;
  constexpr int kM = B::kMost, kKeys = B::kStep < 32 ? B::kStep : 32;
  Room<T, kWidth> &room = sharedRoom<T, kWidth>();
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

/// Of far rows the scores' maximum becomes the base, and the logarithm that of the sum over it, from the scores alone. The first
/// step is in stage 0, before and behind.
template <typename T, int kWidth, typename F>
__device__ void sumFarRows(const QueryTiles<T, kWidth> &tiles, F productsOf, float (&base)[Tile<T, kWidth>::kMost][2],
                           float (&log)[Tile<T, kWidth>::kMost][2]) {
  constexpr int kM = Tile<T, kWidth>::kMost;
  Softmax<kM> rows(tiles.score.scale);
  Sums none[kM][1];
  tiles.forSteps([&](const T *ks, const T *, int t0, int count) {
    for (int i = 0; i < count; i += kPiece) {
      Sums x[kM][2];
      productsOf(x, ks + i * Tile<T, kWidth>::kLd);
      tiles.score.template take<T, false>(x, tiles.w.mine, t0 + i);
      rows.take(x, none);
    }
  });
  tiles.load(0, 0);
  forRows<kM>([&](int m, int half) {
    const float total = ofRow(rows.total[m][half], [](float a, float b) { return a + b; });
    if (!isFar(log[m][half]))
      return;
    base[m][half] = rows.most[m][half];
    log[m][half] = vlog(total) * kLog2E;
  });
}

/// What is taken from masked rows' scores, and then from the power's exponent: notes it behind the deltas.
template <typename T, int kWidth, typename F>
__device__ void takeMaskedSums(const QueryTiles<T, kWidth> &tiles, F productsOf, float (&base)[Tile<T, kWidth>::kMost][2],
                               float (&log)[Tile<T, kWidth>::kMost][2], float *deltas) {
  constexpr int kM = Tile<T, kWidth>::kMost;
  bool isFarHere = false;
  forRows<kM>([&](int m, int half) { isFarHere |= isFar(log[m][half]); });
  if (isSoForAny<Tile<T, kWidth>::kWarps>(isFarHere))
    sumFarRows(tiles, productsOf, base, log);
  const int64_t queries = tiles.score.n.queries();
  forRows<kM>([&](int m, int half) {
    const int r = tiles.w.mine + rowOf(m, half * 2);
    if (r >= tiles.s || laneColumn() != 0)
      return;
    float *const notes = deltas + tiles.score.placeOf(r);
    notes[queries] = base[m][half];
    notes[2 * queries] = log[m][half];
  });
}

/// The queries'; `deltas` gets sum(dy y) of each. Of wide heads of f32 registers do not hold dy, which is read at each step;
/// where loops multiply, queries are, too.
template <typename T, int kWidth>
__global__ void __launch_bounds__(Tile<T, kWidth>::kWarps *kWarp, Tile<T, kWidth>::kBlocks)
    queryGradTilesKernel(const Heads n, const Rows dy, const Rows y, const Rows dq, const float *lse, float *deltas) {
  using B = Tile<T, kWidth>;
  constexpr int kM = B::kMost;
  constexpr bool areQueriesFar = B::areFar && !kHasCores<T>;
  Room<T, kWidth> &room = sharedRoom<T, kWidth>();
  const QueryTiles<T, kWidth> tiles(n, room);
  const Place &w = tiles.w;
  const Scores &score = tiles.score;
  const Source<T, kWidth> queries(n.q, w.b, w.h, tiles.s, n.d), gradients(dy, w.b, w.h, tiles.s, n.dv);
  Left<T> q[B::kPieces][kM], g[B::kPieces][kM];
  if constexpr (!areQueriesFar) {
    tiles.loadQueries(0, n.q, n.d);
    if constexpr (!B::areFar)
      tiles.loadQueries(1, dy, n.dv);
    endGroup();
    waitForCopies<0>();
    __syncthreads();
    loadFactors<kWidth, kM>(q, room.stage(0));
    if constexpr (!B::areFar)
      loadFactors<kWidth, kM>(g, room.stage(1));
    __syncthreads();
  }
  tiles.loadQueries(1, y, n.dv);
  endGroup();
  tiles.load(0, 0);
  waitForCopies<1>();
  __syncthreads();
  float delta[kM][2] = {}, base[kM][2] = {}, log[kM][2];
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int p = 0; p < B::kPieces; ++p) {
      Left<T> x;
      x.load(room.stage(1) + (int(threadIdx.y) * kM + m) * kPiece * B::kLd + p * kPiece, B::kLd);
      if constexpr (B::areFar)
        gradients.loadPiece(g[0][0], w.mine, p * kPiece);
      addDots(x, g[B::areFar ? 0 : p][m], delta[m]);
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
  auto productsOf = [&](Sums(&products)[kM][2], const T *keys) {
    if constexpr (areQueriesFar)
      multiplyRows<kWidth>(products, queries, w.mine, keys);
    else
      multiplyRows<kWidth>(products, q, keys);
  };
  if (n.mask)
    takeMaskedSums(tiles, productsOf, base, log, deltas);
  Sums out[kM][2 * B::kPieces];
  tiles.forSteps([&](const T *ks, const T *vs, int t0, int count) {
    for (int i = 0; i < count; i += kPiece) {
      Sums p[kM][2], dp[kM][2];
      productsOf(p, ks + i * B::kLd);
      if constexpr (B::areFar)
        multiplyRows<kWidth>(dp, gradients, w.mine, vs + i * B::kLd);
      else
        multiplyRows<kWidth>(dp, g, vs + i * B::kLd);
      score.template take<T, false>(p, w.mine, t0 + i);
      if (n.mask)
        forSums(p, [&](int m, int, int i, float &x) { x -= base[m][i / 2]; });
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

/// Of a step's queries, in shared memory: what their gradients leave for those of keys.
template <int kStep> struct QueryNotes {
  float delta[kStep], base[kStep], log[kStep];

  /// Of queries from `row` on; behind the last, what leaves nothing. Without `bases`, `logs` are log-sums.
  __device__ void load(const Scores &score, int row, const float *logs, const float *deltas, const float *bases) {
    const int j = threadOf();
    if (j >= kStep)
      return;
    const bool isThere = row + j < int(score.n.s);
    const int64_t at = score.placeOf(row + j);
    delta[j] = isThere ? deltas[at] : 0;
    if (bases) {
      base[j] = isThere ? bases[at] : 0;
      log[j] = isThere ? logs[at] : __builtin_inff();
    } else {
      log[j] = score.logOf(logs, row + j);
    }
  }
  /// Scores of keys, in rows, and of queries from the j-th on become probabilities.
  template <int kN> __device__ void take(Sums (&scores)[1][kN], int j, const Scores &score) const {
    // As factors are swapped here, a far score may be rounded to more than the maximum that the queries' gradient found.
    const bool isMasked = score.n.mask;
    forSums(scores, [&](int, int n, int i, float &x) {
      const int query = j + columnOf(n, i);
      const float power = z_fma(isMasked ? x - base[query] : x, score.scale, -log[query]);
      x = powerOf2(isMasked ? z_min(power, 0.0f) : power);
    });
  }
};

/// The keys' and values', behind the queries', which leave `bases` and `logs` of masked ones; without a mask they are nullptr and
/// the log-sums. Of wide heads registers hold the keys alone: the values stay in shared memory, and
/// steps are half as long. Of wide heads of f32 they hold neither, and both are read from the device's memory at each step.
template <typename T, int kWidth>
__global__ void __launch_bounds__(Tile<T, kWidth>::kWarps *kWarp, Tile<T, kWidth>::kBlocks)
    keyGradTilesKernel(const Heads n, const Rows dy, const Rows dk, const Rows dv, const float *logs, const float *deltas,
                       const float *bases) {
  using B = Tile<T, kWidth>;
  constexpr bool areFar = B::areFar, areNear = !B::isWide;
  constexpr int kStep = areNear || areFar ? B::kStep : B::kStep / 2, kElements = kStep * B::kLd, kRows = B::kWarps * kPiece;
  Room<T, kWidth> &room = sharedRoom<T, kWidth>();
  __shared__ QueryNotes<kStep> notes[2];
  const Place w(n.heads / n.group, n.t, kPiece, false);
  const int s = int(n.s), group = int(n.group), before = w.first - (int(n.t) - s);
  const int begin = n.causal && before > 0 ? before / kStep * kStep : 0;
  auto stageOf = [&](int i) { return room.stage(0) + i * 2 * kElements; };
  auto load = [&](int stage, int h, int r0) {
    const Scores score(n, w.b, h);
    Source<T, kWidth>(n.q, w.b, h, s, n.d).template load<kStep>(stageOf(stage), r0);
    Source<T, kWidth>(dy, w.b, h, s, n.dv).template load<kStep>(stageOf(stage) + kElements, r0);
    notes[stage].load(score, r0, logs, deltas, bases);
    endGroup();
  };
  const Source<T, kWidth> keys(n.k, w.b, w.h, n.t, n.d), values(n.v, w.b, w.h, n.t, n.dv);
  Left<T> k[B::kPieces][1], v[B::kPieces][1];
  if constexpr (!areFar) {
    keys.template load<kRows>(room.stage(0), w.first);
    values.template load<kRows>(room.stage(1), w.first);
    endGroup();
    waitForCopies<0>();
    __syncthreads();
    loadFactors<kWidth, 1>(k, room.stage(0));
    if constexpr (areNear)
      loadFactors<kWidth, 1>(v, room.stage(1));
    __syncthreads();
  }
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
        if constexpr (areFar)
          multiplyRows<kWidth>(p, keys, w.mine, qs);
        else
          multiplyRows<kWidth>(p, k, qs);
        score.template take<T, true>(p, r0 + j, w.mine);
        notes[stage].take(p, j, score);
        Left<T> factor[1];
        roundTo(factor, p, 0);
        addProduct<false>(sumsV, factor, gs, B::kLd);
        Sums ds[1][2];
        if constexpr (!areNear && !areFar)
          loadFactors<kWidth, 1>(v, room.stage(1));
        if constexpr (areFar)
          multiplyRows<kWidth>(ds, values, w.mine, gs);
        else
          multiplyRows<kWidth>(ds, v, gs);
        forSums(ds, [&](int m, int n, int i, float &x) { x = p[m][n].at[i] * (x - notes[stage].delta[j + columnOf(n, i)]); });
        roundTo(factor, ds, 0);
        addProduct<false>(sumsK, factor, qs, B::kLd);
      }
      __syncthreads();
    }
  }
  storeRows<T>(sumsK, dk, w, int(n.t), int(n.d), [&](int, int) { return float(n.scale); });
  storeRows<T>(sumsV, dv, w, int(n.t), int(n.dv), [](int, int) { return 1.0f; });
}

// ---- launches

/// Calls f with the columns that tiles have room for.
template <typename F> void withWidth(const Heads &n, F f) {
  const int64_t most = std::max(n.d, n.dv);
  if (most <= 32)
    f(std::integral_constant<int, 32>());
  else if (most <= 64)
    f(std::integral_constant<int, 64>());
  else
    f(std::integral_constant<int, kMostWidth>());
}

/// Blocks whose warps have so many pieces of the heads' rows.
template <typename B> unsigned blocksOf(int64_t heads, int64_t rows, int pieces) {
  const int ofBlock = B::kWarps * pieces * kPiece;
  return unsigned(heads * ((rows + ofBlock - 1) / ofBlock));
}

/// Those of an element.
template <typename T> struct TileLaunches {
  static void attend(const Heads &n, Rows y, float *lse) {
    withWidth(n, [&](auto width) {
      constexpr int kWidth = decltype(width)::value;
      using B = Tile<T, kWidth>;
      if (unsigned blocks = blocksOf<B>(n.batch * n.heads, n.s, B::kMost))
        ZCC_LAUNCH((attendTilesKernel<T, kWidth>), blocks, dim3(kWarp, B::kWarps), n, y, lse);
    });
  }
  static void attendGrad(const Heads &n, Rows dy, Rows y, Rows dq, Rows dk, Rows dv, const float *lse, float *deltas) {
    withWidth(n, [&](auto width) {
      constexpr int kWidth = decltype(width)::value;
      using B = Tile<T, kWidth>;
      const dim3 block(kWarp, B::kWarps);
      if (unsigned blocks = blocksOf<B>(n.batch * n.heads, n.s, B::kMost))
        ZCC_LAUNCH((queryGradTilesKernel<T, kWidth>), blocks, block, n, dy, y, dq, lse, deltas);
      const float *bases = n.mask ? deltas + n.queries() : nullptr, *logs = n.mask ? bases + n.queries() : lse;
      if (unsigned blocks = blocksOf<B>(n.batch * (n.heads / n.group), n.t, 1))
        ZCC_LAUNCH((keyGradTilesKernel<T, kWidth>), blocks, block, n, dy, dk, dv, logs, deltas, bases);
    });
  }
};
extern template struct TileLaunches<float>; // FlashAttentionF32.cu
extern template struct TileLaunches<Tf32>;

} // namespace zccrt::cuda
