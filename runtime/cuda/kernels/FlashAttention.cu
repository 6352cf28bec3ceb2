// softmax(scale q k^T + mask) v and its gradient for 16-bit floats, in tiles that tensor cores multiply. A warp has 16 rows of
// its block and goes through the other side in steps of 32 rows. The forward goes through all keys twice: for the logarithm of
// each row's sum, then for probabilities as they are in the end, so that sums stay in registers. Probabilities and their
// gradients are rounded to the factors' element; nothing is added by two.
#include "runtime/cuda/Heads.h"
#include "runtime/cuda/Tensor.h"
#include "runtime/cuda/Warp.h"

namespace zccrt::cuda {

namespace {

constexpr int kStep = 32, kMostWidth = 128;
constexpr int kHalf = kStep / 2;                                ///< of a row of a step: a lane's
constexpr int kScoreLd = kStep + 4, kFactorLd = kStep + 8;      ///< rows begin in different banks
__device__ inline float noScore() { return -__builtin_inff(); } ///< of what may not be attended

/// A block's threads and tiles for heads of at most so many columns.
template <int kWidth> struct Tile {
  static constexpr int kWarps = kWidth > 64 ? 2 : 4, kRows = kWarps * kPiece, kLd = kWidth + 8;
};

int piecesOf(int64_t width) { return int((width + kPiece - 1) / kPiece); }

/// Which head a block is for, and which of its rows; which of them a lane has with its neighbour, each half of the columns.
struct Place {
  int64_t b, h, first;
  int warpRow, mine, half;

  __device__ Place(int64_t heads, int64_t rows, int ofBlock) {
    const int64_t tiles = (rows + ofBlock - 1) / ofBlock;
    b = blockIdx.x / tiles / heads;
    h = blockIdx.x / tiles % heads;
    first = blockIdx.x % tiles * ofBlock;
    warpRow = int(threadIdx.y) * kPiece;
    mine = warpRow + int(threadIdx.x) / 2;
    half = int(threadIdx.x) % 2;
  }
};

__device__ inline int threadOf() { return int(threadIdx.y) * kWarp + int(threadIdx.x); }
__device__ inline int threadsOf() { return int(blockDim.y) * kWarp; }

/// 16-bit floats in shared memory, where nothing may be constructed.
template <typename T, int kCount> struct alignas(32) Room {
  uint16_t bits[kCount];
  __device__ T *elements() { return reinterpret_cast<T *>(bits); }
};

struct alignas(16) Eight {
  uint16_t at[8];
};

/// Rows of a head for shared memory: `count` of them, of which `there` exist; zero behind those and behind their columns.
template <int kLd, typename T>
__device__ void loadRows(T *tile, int count, const T *from, int64_t stride, int64_t there, int width, int pieces) {
  const bool isWide = width % 8 == 0 && stride % 8 == 0 && uintptr_t(from) % sizeof(Eight) == 0;
  const int padded = pieces * kPiece;
  if (isWide) {
    for (int e = threadOf(); e < count * padded / 8; e += threadsOf()) {
      const int r = e / (padded / 8), c = e % (padded / 8) * 8;
      Eight x = {};
      if (r < there && c < width)
        x = *reinterpret_cast<const Eight *>(from + r * stride + c);
      *reinterpret_cast<Eight *>(tile + r * kLd + c) = x;
    }
    return;
  }
  for (int e = threadOf(); e < count * padded; e += threadsOf()) {
    const int r = e / padded, c = e % padded;
    tile[r * kLd + c] = r < there && c < width ? from[r * stride + c] : T(0.0f);
  }
}

/// to = a b^T: a warp's 16 rows with a step's 32.
template <int kLd, typename T> __device__ void multiplyRows(float *to, const T *a, const T *b, int pieces) {
  for (int c = 0; c < kStep / kPiece; ++c) {
    Piece<T> sum;
    for (int k = 0; k < pieces; ++k)
      sum.template add<false, true>(a + k * kPiece, kLd, b + c * kPiece * kLd + k * kPiece, kLd);
    sum.store(to + c * kPiece, kScoreLd);
  }
  __syncwarp();
}

/// The sums of 16 rows of at most so many columns.
template <typename T, int kWidth> struct RowSums {
  static constexpr int kLd = Tile<kWidth>::kLd;
  Piece<T> pieces[kWidth / kPiece];

  /// += a b: 16 rows of a step's factors with the step's rows.
  __device__ void add(const T *a, const T *b, int count) {
#pragma unroll
    for (int c = 0; c < kWidth / kPiece; ++c)
      if (c < count)
        for (int k = 0; k < kStep / kPiece; ++k)
          pieces[c].template add<false, false>(a + k * kPiece, kFactorLd, b + k * kPiece * kLd + c * kPiece, kLd);
  }
  /// Through `room`, the warp's part of the scores, to the row of a lane and its neighbour; nullptr: there is none.
  __device__ void store(T *row, int width, float factor, float *room, int count) const {
    const int lane = int(threadIdx.x);
#pragma unroll
    for (int c = 0; c < kWidth / kPiece; ++c)
      if (c < count) {
        __syncwarp();
        pieces[c].store(room, kScoreLd);
        __syncwarp();
        const int first = c * kPiece + lane % 2 * (kPiece / 2);
        for (int j = 0; j < kPiece / 2; ++j)
          if (row && first + j < width)
            row[first + j] = T(room[lane / 2 * kScoreLd + lane % 2 * (kPiece / 2) + j] * factor);
      }
  }
};

/// Of a query and a key, from their product.
template <typename T> __device__ float scoreOf(const Heads &n, int64_t b, int64_t h, int64_t row, int64_t key, float product) {
  if (row >= n.s || key >= n.keysOf(row))
    return noScore();
  return n.masked<T, float>(float(n.scale) * product, b, h, row, key);
}
/// e to the score less the logarithm of its row's sum.
__device__ inline float probabilityOf(float score, float log) { return score == noScore() ? 0 : vexp(score - log); }

} // namespace

// ---- forward

template <typename T, int kWidth>
__global__ void attendTilesKernel(const Heads n, const Rows y, float *lse, int pieces, int piecesV) {
  using B = Tile<kWidth>;
  __shared__ Room<T, B::kRows * B::kLd> qRoom;
  __shared__ Room<T, kStep * B::kLd> kRoom;
  __shared__ Room<T, kStep * B::kLd> vRoom;
  __shared__ Room<T, B::kRows * kFactorLd> factorsRoom;
  alignas(32) __shared__ float scores[B::kRows * kScoreLd];
  T *const q = qRoom.elements(), *const k = kRoom.elements(), *const v = vRoom.elements(),
           *const factors = factorsRoom.elements();
  const Place w(n.heads, n.s, B::kRows);
  const int64_t row = w.first + w.mine, last = (w.first + B::kRows < n.s ? w.first + B::kRows : n.s) - 1, end = n.keysOf(last);
  const int64_t kvHead = w.h / n.group;
  float *const warpScores = scores + w.warpRow * kScoreLd;
  const float *const myScores = scores + w.mine * kScoreLd + w.half * kHalf;
  loadRows<B::kLd>(q, B::kRows, n.q.at<T>(w.b, w.h, w.first), n.q.row, n.s - w.first, int(n.d), pieces);
  float most = noScore(), total = 0;
  for (int64_t t0 = 0; t0 < end; t0 += kStep) {
    __syncthreads();
    loadRows<B::kLd>(k, kStep, n.k.at<T>(w.b, kvHead, t0), n.k.row, n.t - t0, int(n.d), pieces);
    __syncthreads();
    multiplyRows<B::kLd>(warpScores, q + w.warpRow * B::kLd, k, pieces);
    float score[kHalf], top = most;
    for (int j = 0; j < kHalf; ++j) {
      score[j] = scoreOf<T>(n, w.b, w.h, row, t0 + w.half * kHalf + j, myScores[j]);
      top = z_max(top, score[j]);
    }
    top = z_max(top, __shfl_xor_sync(kAllLanes, top, 1));
    total *= probabilityOf(most, top);
    for (int j = 0; j < kHalf; ++j)
      total += probabilityOf(score[j], top);
    most = top;
  }
  total += __shfl_xor_sync(kAllLanes, total, 1);
  const float log = total == 0 ? noScore() : most + vlog(total);

  RowSums<T, kWidth> sums;
  for (int64_t t0 = 0; t0 < end; t0 += kStep) {
    __syncthreads();
    loadRows<B::kLd>(k, kStep, n.k.at<T>(w.b, kvHead, t0), n.k.row, n.t - t0, int(n.d), pieces);
    loadRows<B::kLd>(v, kStep, n.v.at<T>(w.b, kvHead, t0), n.v.row, n.t - t0, int(n.dv), piecesV);
    __syncthreads();
    multiplyRows<B::kLd>(warpScores, q + w.warpRow * B::kLd, k, pieces);
    for (int j = 0; j < kHalf; ++j)
      factors[w.mine * kFactorLd + w.half * kHalf + j] =
          T(probabilityOf(scoreOf<T>(n, w.b, w.h, row, t0 + w.half * kHalf + j, myScores[j]), log));
    __syncwarp();
    sums.add(factors + w.warpRow * kFactorLd, v, piecesV);
  }
  sums.store(row < n.s ? y.at<T>(w.b, w.h, row) : nullptr, int(n.dv), 1, warpScores, piecesV);
  if (row < n.s && w.half == 0)
    lse[(w.b * n.heads + w.h) * n.s + row] = log;
}

// ---- gradients

template <typename T, int kWidth>
__global__ void queryGradTilesKernel(const Heads n, Rows dy, Rows y, Rows dq, const float *lse, int pieces, int piecesV) {
  using B = Tile<kWidth>;
  __shared__ Room<T, B::kRows * B::kLd> qRoom;
  __shared__ Room<T, B::kRows * B::kLd> gRoom;
  __shared__ Room<T, kStep * B::kLd> kRoom;
  __shared__ Room<T, kStep * B::kLd> vRoom;
  __shared__ Room<T, B::kRows * kFactorLd> factorsRoom;
  alignas(32) __shared__ float scores[B::kRows * kScoreLd];
  T *const q = qRoom.elements(), *const g = gRoom.elements(), *const k = kRoom.elements(), *const v = vRoom.elements(),
           *const factors = factorsRoom.elements();
  const Place w(n.heads, n.s, B::kRows);
  const int64_t row = w.first + w.mine, last = (w.first + B::kRows < n.s ? w.first + B::kRows : n.s) - 1, end = n.keysOf(last);
  const int64_t kvHead = w.h / n.group;
  float *const warpScores = scores + w.warpRow * kScoreLd;
  const float *const myScores = scores + w.mine * kScoreLd + w.half * kHalf;
  loadRows<B::kLd>(q, B::kRows, n.q.at<T>(w.b, w.h, w.first), n.q.row, n.s - w.first, int(n.d), pieces);
  loadRows<B::kLd>(g, B::kRows, dy.at<T>(w.b, w.h, w.first), dy.row, n.s - w.first, int(n.dv), piecesV);
  __syncthreads();
  float log = 0, delta = 0;
  if (row < n.s) {
    const T *yRow = y.at<T>(w.b, w.h, row);
    log = lse[(w.b * n.heads + w.h) * n.s + row];
    for (int c = w.half; c < n.dv; c += 2)
      delta += float(g[w.mine * B::kLd + c]) * float(yRow[c]);
  }
  delta += __shfl_xor_sync(kAllLanes, delta, 1);

  RowSums<T, kWidth> sums;
  for (int64_t t0 = 0; t0 < end; t0 += kStep) {
    __syncthreads();
    loadRows<B::kLd>(k, kStep, n.k.at<T>(w.b, kvHead, t0), n.k.row, n.t - t0, int(n.d), pieces);
    loadRows<B::kLd>(v, kStep, n.v.at<T>(w.b, kvHead, t0), n.v.row, n.t - t0, int(n.dv), piecesV);
    __syncthreads();
    multiplyRows<B::kLd>(warpScores, q + w.warpRow * B::kLd, k, pieces);
    float p[kHalf];
    for (int j = 0; j < kHalf; ++j)
      p[j] = probabilityOf(scoreOf<T>(n, w.b, w.h, row, t0 + w.half * kHalf + j, myScores[j]), log);
    __syncwarp();
    multiplyRows<B::kLd>(warpScores, g + w.warpRow * B::kLd, v, piecesV);
    for (int j = 0; j < kHalf; ++j)
      factors[w.mine * kFactorLd + w.half * kHalf + j] = T(p[j] * (myScores[j] - delta));
    __syncwarp();
    sums.add(factors + w.warpRow * kFactorLd, k, pieces);
  }
  sums.store(row < n.s ? dq.at<T>(w.b, w.h, row) : nullptr, int(n.d), float(n.scale), warpScores, pieces);
}

/// Of a step's queries: the logarithm of the sum, and sum(dy y).
template <int kLd, typename T>
__device__ void loadNumbers(float *logs, float *deltas, const Heads &n, int64_t b, int64_t h, int64_t r0, const T *g,
                            const Rows &y, const float *lse) {
  const int each = threadsOf() / kStep, i = threadOf() / each, part = threadOf() % each;
  float delta = 0;
  if (r0 + i < n.s) {
    const T *yRow = y.at<T>(b, h, r0 + i);
    for (int c = part; c < n.dv; c += each)
      delta += float(g[i * kLd + c]) * float(yRow[c]);
  }
  for (int with = 1; with < each; with *= 2)
    delta += __shfl_xor_sync(kAllLanes, delta, with);
  if (part)
    return;
  deltas[i] = delta;
  logs[i] = r0 + i < n.s ? lse[(b * n.heads + h) * n.s + r0 + i] : 0;
}

template <typename T, int kWidth>
__global__ void keyGradTilesKernel(const Heads n, Rows dy, Rows y, Rows dk, Rows dv, const float *lse, int pieces, int piecesV) {
  using B = Tile<kWidth>;
  __shared__ Room<T, B::kRows * B::kLd> kRoom;
  __shared__ Room<T, B::kRows * B::kLd> vRoom;
  __shared__ Room<T, kStep * B::kLd> qRoom;
  __shared__ Room<T, kStep * B::kLd> gRoom;
  __shared__ Room<T, B::kRows * kFactorLd> factorsRoom;
  alignas(32) __shared__ float scores[B::kRows * kScoreLd];
  T *const k = kRoom.elements(), *const v = vRoom.elements(), *const q = qRoom.elements(), *const g = gRoom.elements(),
           *const factors = factorsRoom.elements();
  __shared__ float logs[kStep], deltas[kStep];
  const Place w(n.heads / n.group, n.t, B::kRows);
  const int64_t key = w.first + w.mine;
  float *const warpScores = scores + w.warpRow * kScoreLd;
  const float *const myScores = scores + w.mine * kScoreLd + w.half * kHalf;
  T *const myFactors = factors + w.mine * kFactorLd + w.half * kHalf;
  loadRows<B::kLd>(k, B::kRows, n.k.at<T>(w.b, w.h, w.first), n.k.row, n.t - w.first, int(n.d), pieces);
  loadRows<B::kLd>(v, B::kRows, n.v.at<T>(w.b, w.h, w.first), n.v.row, n.t - w.first, int(n.dv), piecesV);
  const int64_t before = w.first - (n.t - n.s), begin = n.causal && before > 0 ? before / kStep * kStep : 0;
  RowSums<T, kWidth> sumsK, sumsV;
  for (int64_t h = w.h * n.group; h < (w.h + 1) * n.group; ++h)
    for (int64_t r0 = begin; r0 < n.s; r0 += kStep) {
      __syncthreads();
      loadRows<B::kLd>(q, kStep, n.q.at<T>(w.b, h, r0), n.q.row, n.s - r0, int(n.d), pieces);
      loadRows<B::kLd>(g, kStep, dy.at<T>(w.b, h, r0), dy.row, n.s - r0, int(n.dv), piecesV);
      __syncthreads();
      loadNumbers<B::kLd>(logs, deltas, n, w.b, h, r0, g, y, lse);
      __syncthreads();
      multiplyRows<B::kLd>(warpScores, k + w.warpRow * B::kLd, q, pieces);
      float p[kHalf];
      for (int j = 0; j < kHalf; ++j) {
        const int i = w.half * kHalf + j;
        const float score = key < n.t ? scoreOf<T>(n, w.b, h, r0 + i, key, myScores[j]) : noScore();
        p[j] = probabilityOf(score, logs[i]);
        myFactors[j] = T(p[j]);
      }
      __syncwarp();
      sumsV.add(factors + w.warpRow * kFactorLd, g, piecesV);
      multiplyRows<B::kLd>(warpScores, v + w.warpRow * B::kLd, g, piecesV);
      for (int j = 0; j < kHalf; ++j)
        myFactors[j] = T(p[j] * (myScores[j] - deltas[w.half * kHalf + j]));
      __syncwarp();
      sumsK.add(factors + w.warpRow * kFactorLd, q, pieces);
    }
  sumsK.store(key < n.t ? dk.at<T>(w.b, w.h, key) : nullptr, int(n.d), float(n.scale), warpScores, pieces);
  sumsV.store(key < n.t ? dv.at<T>(w.b, w.h, key) : nullptr, int(n.dv), 1, warpScores, piecesV);
}

// ---- calls

bool takesTiles(const Heads &n) { return n.d <= kMostWidth && n.dv <= kMostWidth; }

/// Calls f with a null pointer to the element's type and the columns that tiles have room for.
template <typename F> static void withTiles(const Heads &n, int32_t elem, F f) {
  auto byWidth = [&](auto *type) {
    if (std::max(n.d, n.dv) <= 64)
      f(type, std::integral_constant<int, 64>());
    else
      f(type, std::integral_constant<int, kMostWidth>());
  };
  if (elem == ZCCRT_BF16)
    byWidth((cpu::Bf16 *)nullptr);
  else
    byWidth((cpu::F16 *)nullptr);
}

template <int kWidth> static unsigned blocksOf(int64_t heads, int64_t rows) {
  constexpr int kRows = Tile<kWidth>::kRows;
  return unsigned(heads * ((rows + kRows - 1) / kRows));
}

void attendByTiles(const Heads &n, int32_t elem, Rows y, float *lse) {
  const int pieces = piecesOf(n.d), piecesV = piecesOf(n.dv);
  withTiles(n, elem, [&](auto *type, auto width) {
    using T = std::remove_pointer_t<decltype(type)>;
    constexpr int kWidth = decltype(width)::value;
    if (unsigned blocks = blocksOf<kWidth>(n.batch * n.heads, n.s))
      ZCC_LAUNCH((attendTilesKernel<T, kWidth>), blocks, dim3(kWarp, Tile<kWidth>::kWarps), n, y, lse, pieces, piecesV);
  });
}

void attendGradByTiles(const Heads &n, int32_t elem, Rows dy, Rows y, Rows dq, Rows dk, Rows dv, const float *lse) {
  const int pieces = piecesOf(n.d), piecesV = piecesOf(n.dv);
  withTiles(n, elem, [&](auto *type, auto width) {
    using T = std::remove_pointer_t<decltype(type)>;
    constexpr int kWidth = decltype(width)::value;
    const dim3 block(kWarp, Tile<kWidth>::kWarps);
    if (unsigned blocks = blocksOf<kWidth>(n.batch * n.heads, n.s))
      ZCC_LAUNCH((queryGradTilesKernel<T, kWidth>), blocks, block, n, dy, y, dq, lse, pieces, piecesV);
    if (unsigned blocks = blocksOf<kWidth>(n.batch * (n.heads / n.group), n.t))
      ZCC_LAUNCH((keyGradTilesKernel<T, kWidth>), blocks, block, n, dy, y, dk, dv, lse, pieces, piecesV);
  });
}

} // namespace zccrt::cuda
