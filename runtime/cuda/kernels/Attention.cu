// softmax(scale q k^T + mask) v and its gradient, of what tiles do not take (f64, wide heads), without the [S, T] matrix of
// scores: a warp for each row of the result. It goes through what the row meets in steps of 32, a lane for the score of each, and
// each lane has columns of the row of the result.
//   p = exp(scale q k^T + mask - lse)   dv = p^T dy   dp = dy v^T
//   ds = p (dp - sum(dy y))             dq = scale ds k   dk = scale ds^T q
// Rows of keys go through all queries of their group in order, so nothing is added by two. Of a row that is masked as a whole by
// finite values the logarithm of the sum is lost in lse: the queries' gradient adds its p up, and both divide by the sum.
#include "runtime/cuda/Heads.h"
#include "runtime/cuda/Kernels.h"
#include "runtime/cuda/Warp.h"

namespace zccrt::cuda {

namespace {

constexpr int kRowWarps = 4;    ///< of a block
constexpr int kLaneColumns = 8; ///< of a lane; wider rows are made in several pieces
constexpr int64_t kWidth = kLaneColumns * kWarp;

template <typename T, typename S> __device__ S dot(const T *a, const T *b, int64_t n) {
  S sum = 0;
  for (int64_t i = 0; i < n; ++i)
    sum += S(a[i]) * S(b[i]);
  return sum;
}

/// -infinity where the query may not attend the key.
template <typename T, typename S> __device__ S scoreOf(const Heads &n, int64_t b, int64_t h, int64_t row, int64_t key) {
  if (key >= n.keysOf(row))
    return S(-__builtin_inff());
  S score = S(n.scale) * dot<T, S>(n.q.at<T>(b, h, row), n.k.at<T>(b, h / n.group, key), n.d);
  return n.masked<T, S>(score, b, h, row, key);
}

/// sum[c] += the sum over a step's 32 of weight times their row's columns, of which a lane has every 32nd from `first` on.
template <typename T, typename S>
__device__ void addRows(S *sum, const S *weights, int64_t count, const T *rows, int64_t stride, int64_t first, int64_t width) {
  for (int64_t j = 0; j < count; ++j)
    for (int c = 0; c < kLaneColumns; ++c)
      if (int64_t column = first + c * kWarp; column < width)
        sum[c] += weights[j] * S(rows[j * stride + column]);
}

template <typename T, typename S> __device__ void storeRow(T *to, const S *sum, S factor, int64_t first, int64_t width) {
  for (int c = 0; c < kLaneColumns; ++c)
    if (int64_t column = first + c * kWarp; column < width)
      to[column] = T(sum[c] * factor);
}

/// The row that a warp is for; below the number of rows.
struct Row {
  int64_t b, h, r, first; ///< `first`: of this lane's columns
  __device__ Row(int64_t number, int64_t heads, int64_t rows)
      : b(number / rows / heads), h(number / rows % heads), r(number % rows), first(blockIdx.y * kWidth + threadIdx.x) {}
};
__device__ int64_t warpNumber() { return int64_t(blockIdx.x) * kRowWarps + threadIdx.y; }

/// What exp(score - log) is divided by for a row's probabilities: 1, or the sum where the log-sum lies too far below 0.
template <typename T, typename S> __device__ S normOf(const Heads &n, const Row &w, S log) {
  if (!n.mask || !(log < S(kFarLogSum)) || log == S(-__builtin_inff()))
    return 1;
  S sum = 0;
  for (int64_t key = threadIdx.x, end = n.keysOf(w.r); key < end; key += kWarp)
    sum += vexp(scoreOf<T, S>(n, w.b, w.h, w.r, key) - log);
  return warpSum(sum);
}

} // namespace

// ---- forward

template <typename T, typename S> __global__ void attentionKernel(const Heads n, const Rows y, S *lse) {
  __shared__ S weights[kRowWarps][kWarp];
  const S none = S(-__builtin_inff());
  int64_t number = warpNumber();
  if (number >= n.batch * n.heads * n.s)
    return;
  const Row w(number, n.heads, n.s);
  S *p = weights[threadIdx.y];
  S most = none, total = 0, sum[kLaneColumns] = {};
  for (int64_t t0 = 0, end = n.keysOf(w.r); t0 < end; t0 += kWarp) {
    int64_t key = t0 + threadIdx.x;
    S score = key < end ? scoreOf<T, S>(n, w.b, w.h, w.r, key) : none;
    S before = most;
    most = z_max(most, warpMax(score));
    S change = before == most ? S(1) : vexp(before - most);
    S mine = vexp(score - (most == none ? S(0) : most)); // nothing to attend yet: 0, and a NaN still shows
    p[threadIdx.x] = mine;
    total = total * change + warpSum(mine);
    for (int c = 0; c < kLaneColumns; ++c)
      sum[c] *= change;
    __syncwarp();
    addRows<T, S>(sum, p, end - t0 < kWarp ? end - t0 : kWarp, n.v.at<T>(w.b, w.h / n.group, t0), n.v.row, w.first, n.dv);
    __syncwarp();
  }
  storeRow<T, S>(y.at<T>(w.b, w.h, w.r), sum, total == S(0) ? S(0) : S(1) / total, w.first, n.dv);
  if (w.first == 0)
    lse[number] = total == S(0) ? none : most + vlog(total);
}

// ---- gradients

/// The queries'; `deltas` gets sum(dy y) of each, `norms`, which masked ones have, what their probabilities are divided by.
template <typename T, typename S>
__global__ void queryGradKernel(const Heads n, Rows dy, Rows y, Rows dq, const S *lse, S *deltas, S *norms) {
  __shared__ S weights[kRowWarps][kWarp];
  const S none = S(-__builtin_inff());
  int64_t number = warpNumber();
  if (number >= n.batch * n.heads * n.s)
    return;
  const Row w(number, n.heads, n.s);
  const T *dyRow = dy.at<T>(w.b, w.h, w.r);
  S log = lse[number], delta = dot<T, S>(dyRow, y.at<T>(w.b, w.h, w.r), n.dv), sum[kLaneColumns] = {};
  const S norm = normOf<T, S>(n, w, log);
  for (int64_t t0 = 0, end = n.keysOf(w.r); t0 < end; t0 += kWarp) {
    int64_t key = t0 + threadIdx.x;
    S ds = 0;
    if (key < end) {
      S p = vexp(scoreOf<T, S>(n, w.b, w.h, w.r, key) - (log == none ? S(0) : log)) / norm;
      ds = p * (dot<T, S>(dyRow, n.v.at<T>(w.b, w.h / n.group, key), n.dv) - delta);
    }
    weights[threadIdx.y][threadIdx.x] = ds;
    __syncwarp();
    addRows<T, S>(sum, weights[threadIdx.y], end - t0 < kWarp ? end - t0 : kWarp, n.k.at<T>(w.b, w.h / n.group, t0), n.k.row,
                  w.first, n.d);
    __syncwarp();
  }
  storeRow<T, S>(dq.at<T>(w.b, w.h, w.r), sum, S(n.scale), w.first, n.d);
  if (w.first != 0)
    return;
  deltas[number] = delta;
  if (norms)
    norms[number] = norm;
}

/// The keys' and values', behind the queries'.
template <typename T, typename S>
__global__ void keyGradKernel(const Heads n, Rows dy, Rows dk, Rows dv, const S *lse, const S *deltas, const S *norms) {
  __shared__ S probabilities[kRowWarps][kWarp], gradients[kRowWarps][kWarp];
  const S none = S(-__builtin_inff());
  int64_t number = warpNumber(), kvHeads = n.heads / n.group;
  if (number >= n.batch * kvHeads * n.t)
    return;
  const Row w(number, kvHeads, n.t);
  S sumK[kLaneColumns] = {}, sumV[kLaneColumns] = {};
  for (int64_t h = w.h * n.group; h < (w.h + 1) * n.group; ++h)
    for (int64_t r0 = 0; r0 < n.s; r0 += kWarp) {
      int64_t row = r0 + threadIdx.x, count = n.s - r0 < kWarp ? n.s - r0 : kWarp;
      S p = 0, ds = 0;
      if (row < n.s && w.r < n.keysOf(row)) {
        const T *dyRow = dy.at<T>(w.b, h, row);
        const int64_t query = (w.b * n.heads + h) * n.s + row;
        S log = lse[query];
        p = vexp(scoreOf<T, S>(n, w.b, h, row, w.r) - (log == none ? S(0) : log)) / (norms ? norms[query] : S(1));
        ds = p * (dot<T, S>(dyRow, n.v.at<T>(w.b, w.h, w.r), n.dv) - deltas[query]);
      }
      probabilities[threadIdx.y][threadIdx.x] = p;
      gradients[threadIdx.y][threadIdx.x] = ds;
      __syncwarp();
      addRows<T, S>(sumV, probabilities[threadIdx.y], count, dy.at<T>(w.b, h, r0), dy.row, w.first, n.dv);
      addRows<T, S>(sumK, gradients[threadIdx.y], count, n.q.at<T>(w.b, h, r0), n.q.row, w.first, n.d);
      __syncwarp();
    }
  storeRow<T, S>(dk.at<T>(w.b, w.h, w.r), sumK, S(n.scale), w.first, n.d);
  storeRow<T, S>(dv.at<T>(w.b, w.h, w.r), sumV, S(1), w.first, n.dv);
}

// ---- calls

static dim3 gridFor(int64_t rows, int64_t width) {
  return dim3(unsigned((rows + kRowWarps - 1) / kRowWarps), unsigned(std::max<int64_t>(1, (width + kWidth - 1) / kWidth)));
}

template <typename T> static void attend(char *arena, const zccrt_call *c) {
  using S = Sum<T>;
  const Heads n(arena, c, 0);
  const Rows y(arena, result(c, 0));
  S *lse = at<S>(arena, result(c, 1));
  if constexpr (sizeof(T) <= 4)
    if (takesTiles(n, operand(c, 0).elem))
      return attendByTiles(n, operand(c, 0).elem, y, lse);
  if (n.queries() > 0)
    ZCC_LAUNCH((attentionKernel<T, S>), gridFor(n.queries(), n.dv), dim3(kWarp, kRowWarps), n, y, lse);
}

template <typename T> static void attendGrad(char *arena, const zccrt_call *c) {
  using S = Sum<T>;
  const Heads n(arena, c, 1);
  const Rows dy(arena, operand(c, 0)), y(arena, operand(c, 5)), dq(arena, result(c, 0)), dk(arena, result(c, 1)),
      dv(arena, result(c, 2));
  const S *lse = at<S>(arena, operand(c, 6));
  S *deltas = scratchAt<S>(arena, c);
  if constexpr (sizeof(T) <= 4)
    if (takesTiles(n, operand(c, 0).elem))
      return attendGradByTiles(n, operand(c, 0).elem, dy, y, dq, dk, dv, lse, deltas);
  S *norms = n.mask ? deltas + n.queries() : nullptr;
  if (n.queries() > 0)
    ZCC_LAUNCH((queryGradKernel<T, S>), gridFor(n.queries(), n.d), dim3(kWarp, kRowWarps), n, dy, y, dq, lse, deltas, norms);
  int64_t keys = n.batch * (n.heads / n.group) * n.t;
  if (keys)
    ZCC_LAUNCH((keyGradKernel<T, S>), gridFor(keys, std::max(n.d, n.dv)), dim3(kWarp, kRowWarps), n, dy, dk, dv, lse, deltas,
               norms);
}

template <typename F> static void withAttended(const zccrt_call *c, F f) {
  if (!cpu::withFloat(operand(c, 0).elem, f))
    zccrt_fail(c->node, "attention has no kernel for integers");
}

void attentionRun(char *arena, const zccrt_call *c) {
  if (arena)
    withAttended(c, [&](auto *type) { attend<std::remove_pointer_t<decltype(type)>>(arena, c); });
}

int64_t attentionGradWorkspace(const zccrt_call *c) {
  const Heads n(nullptr, c, 1);
  const int64_t numbers = hasOperand(c, 4) ? 3 : 1; // of a query: sum(dy y), and what tiles or norms have of a masked one
  return numbers * n.queries() * (operand(c, 0).elem == ZCCRT_F64 ? 8 : 4);
}

void attentionGradRun(char *arena, const zccrt_call *c) {
  if (arena)
    withAttended(c, [&](auto *type) { attendGrad<std::remove_pointer_t<decltype(type)>>(arena, c); });
}

} // namespace zccrt::cuda
