// The gradient of attention. Probabilities are recomputed from the scores and the saved log-sums, block by block. One thread has
// all of a key head (its group of query heads one after the other), so dk and dv are summed in a fixed order without
// synchronisation:
//   p = exp(scale q k^T + mask - lse)   dv += p^T dy   dp = dy v^T
//   ds = p (dp - sum(dy y))             dq += scale ds k   dk += scale ds^T q
#include "runtime/cpu/Attention.h"
#include "runtime/cpu/Dnnl.h"
#include "runtime/cpu/Kernels.h"
#include "runtime/cpu/Lanes.h"
#include "runtime/cpu/VecMath.h"
#include "runtime/cpu/Wide.h"

namespace zccrt::cpu {

namespace {

ZCC_CLONES float dot(const float *a, const float *b, int64_t n) { return rowDot(a, b, n); }

/// s = exp(s - lse)
ZCC_CLONES void probabilities(float *s, float lse, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    s[i] = vexp(s[i] - lse);
}

/// dp = p * (dp - delta)
ZCC_CLONES void scoreGrad(const float *p, float *dp, float delta, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    dp[i] = p[i] * (dp[i] - delta);
}

struct AttentionGrad {
  Heads n;
  Blocks blocks;
  Rows dy, q, k, v, y, dq, dk, dv;
  char *arena;
  const float *lse;

  AttentionGrad(char *arena, const zccrt_call *c)
      : n(c, 1), blocks(n), dy(arena, operand(c, 0)), q(arena, operand(c, 1)), k(arena, operand(c, 2)), v(arena, operand(c, 3)),
        y(arena, operand(c, 5)), dq(arena, result(c, 0)), dk(arena, result(c, 1)), dv(arena, result(c, 2)), arena(arena),
        lse(at<float>(arena, operand(c, 6))) {}

  const float *logSums(int64_t b, int64_t h, int64_t r0) const { return lse + (b * n.heads + h) * n.s + r0; }

  void keyBlock(int64_t b, int64_t h, int64_t kv, int64_t r0, int64_t rows, int64_t t0, int64_t keys, const FarRows &far,
                const float *delta, float *p, float *dp) const {
    int64_t ld = blocks.ld;
    const float *dyRow = dy.at(b, h, r0), *qRow = q.at(b, h, r0), *kRow = k.at(b, kv, t0);
    maskedScores(n, arena, b, h, r0, rows, t0, keys, qRow, q.row, kRow, k.row, p, ld);
    smallGemm('N', 'T', rows, keys, n.dv, 1.0f, dyRow, dy.row, v.at(b, kv, t0), v.row, 0.0f, dp, ld);
    for (int64_t r = 0; r < rows; ++r) {
      float log = far.has(r) ? far.shift(p + r * ld, r, keys, 1.0f) : logSums(b, h, r0)[r];
      // A row that attends nothing: all scores are -infinity, and exp(-infinity) is 0.
      probabilities(p + r * ld, log == -__builtin_inff() ? 0.0f : log, keys);
      scoreGrad(p + r * ld, dp + r * ld, delta[r], keys);
    }
    smallGemm('T', 'N', keys, n.dv, rows, 1.0f, p, ld, dyRow, dy.row, 1.0f, dv.at(b, kv, t0), dv.row);
    smallGemm('T', 'N', keys, n.d, rows, n.scale, dp, ld, qRow, q.row, 1.0f, dk.at(b, kv, t0), dk.row);
    smallGemm('N', 'N', rows, n.d, keys, n.scale, dp, ld, kRow, k.row, t0 ? 1.0f : 0.0f, dq.at(b, h, r0), dq.row);
  }

  void rowBlock(int64_t b, int64_t h, int64_t kv, int64_t r0, float *scratch) const {
    int64_t rows = std::min(blocks.rows, n.s - r0), end = n.keysBefore(r0 + rows);
    float delta[Blocks::kRows];
    for (int64_t r = 0; r < rows; ++r) {
      delta[r] = dot(dy.at(b, h, r0 + r), y.at(b, h, r0 + r), n.dv);
      if (!end)
        memset(dq.at(b, h, r0 + r), 0, size_t(n.d) * sizeof(float));
    }
    FarRows far(logSums(b, h, r0), rows);
    for (int64_t t0 = 0; far.any() && t0 < end; t0 += blocks.keys) {
      const int64_t keys = std::min(blocks.keys, end - t0);
      maskedScores(n, arena, b, h, r0, rows, t0, keys, q.at(b, h, r0), q.row, k.at(b, kv, t0), k.row, scratch, blocks.ld);
      far.add(scratch, blocks.ld, keys, 1.0f);
    }
    for (int64_t t0 = 0; t0 < end; t0 += blocks.keys)
      keyBlock(b, h, kv, r0, rows, t0, std::min(blocks.keys, end - t0), far, delta, scratch, scratch + blocks.floats());
  }

  void keyHead(int64_t b, int64_t kv, float *scratch) const {
    for (int64_t t = 0; t < n.t; ++t) {
      memset(dk.at(b, kv, t), 0, size_t(n.d) * sizeof(float));
      memset(dv.at(b, kv, t), 0, size_t(n.dv) * sizeof(float));
    }
    int64_t group = n.heads / n.kvHeads;
    for (int64_t h = kv * group; h < (kv + 1) * group; ++h)
      for (int64_t r0 = 0; r0 < n.s; r0 += blocks.rows)
        rowBlock(b, h, kv, r0, scratch);
  }
};

} // namespace

int64_t attentionGradWorkspace(const zccrt_call *c) {
  if (needsWide(c, attendsInHalf(c)))
    return wideWorkspace(c, attentionGradWorkspace);
  if (isHalf(operand(c, 0).elem))
    return attentionGradHalfWorkspace(c);
  Heads n(c, 1);
  return c->threads * (inDouble(c) ? n.t * 8 : 2 * Blocks(n).floats() * 4);
}

void attentionGradRun(char *arena, const zccrt_call *c) {
  useThreads(c);
  if (needsWide(c, attendsInHalf(c)))
    return wideRun(arena, c, attentionGradRun, attentionGradWorkspace);
  if (isHalf(operand(c, 0).elem))
    return attentionGradHalf(arena, c);
  if (!arena)
    return keepFreedMemory();
  if (inDouble(c))
    return attentionGradLoops(arena, c);
  AttentionGrad g(arena, c);
#pragma omp parallel for schedule(static) num_threads(c->threads)
  for (int64_t job = 0; job < g.n.batch * g.n.kvHeads; ++job) {
    float *scratch = scratchAt<float>(arena, c) + omp_get_thread_num() * 2 * g.blocks.floats();
    g.keyHead(job / g.n.kvHeads, job % g.n.kvHeads, scratch);
  }
}

} // namespace zccrt::cpu
