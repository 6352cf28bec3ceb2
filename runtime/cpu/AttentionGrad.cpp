// The gradient of attention. Probabilities are recomputed from the scores and the saved log-sums, block by block:
//   p = exp(scale q k^T + mask - lse)   dv += p^T dy   dp = dy v^T
//   ds = p (dp - sum(dy y))             dq += scale ds k   dk += scale ds^T q
#include "runtime/cpu/AttentionGrad.h"
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
  float *blocksAt;
  const float *lse;

  AttentionGrad(char *arena, const zccrt_call *c)
      : n(c, 1), blocks(n), dy(arena, operand(c, 0)), q(arena, operand(c, 1)), k(arena, operand(c, 2)), v(arena, operand(c, 3)),
        y(arena, operand(c, 5)), dq(arena, result(c, 0)), dk(arena, result(c, 1)), dv(arena, result(c, 2)), arena(arena),
        blocksAt(scratchAt<float>(arena, c)), lse(at<float>(arena, operand(c, 6))) {}

  const float *logSums(int64_t b, int64_t h, int64_t r0) const { return lse + (b * n.heads + h) * n.s + r0; }

  /// This thread's scratch: a block of scores and one of their gradients.
  float *scratch() const { return blocksAt + omp_get_thread_num() * 2 * blocks.floats(); }

  void keyBlock(GradPass pass, int64_t b, int64_t h, int64_t kv, int64_t r0, int64_t rows, int64_t t0, int64_t keys,
                const FarRows &far, const float *delta) const {
    int64_t ld = blocks.ld;
    float *p = scratch(), *dp = p + blocks.floats();
    const float *dyRow = dy.at(b, h, r0), *qRow = q.at(b, h, r0), *kRow = k.at(b, kv, t0);
    maskedScores(n, arena, b, h, r0, rows, t0, keys, qRow, q.row, kRow, k.row, p, ld);
    smallGemm('N', 'T', rows, keys, n.dv, 1.0f, dyRow, dy.row, v.at(b, kv, t0), v.row, 0.0f, dp, ld);
    for (int64_t r = 0; r < rows; ++r) {
      float log = far.has(r) ? far.shift(p + r * ld, r, keys, 1.0f) : logSums(b, h, r0)[r];
      // A row that attends nothing: all scores are -infinity, and exp(-infinity) is 0.
      probabilities(p + r * ld, log == -__builtin_inff() ? 0.0f : log, keys);
      scoreGrad(p + r * ld, dp + r * ld, delta[r], keys);
    }
    if (pass != GradPass::Queries) {
      smallGemm('T', 'N', keys, n.dv, rows, 1.0f, p, ld, dyRow, dy.row, 1.0f, dv.at(b, kv, t0), dv.row);
      smallGemm('T', 'N', keys, n.d, rows, n.scale, dp, ld, qRow, q.row, 1.0f, dk.at(b, kv, t0), dk.row);
    }
    if (pass != GradPass::Keys)
      smallGemm('N', 'N', rows, n.d, keys, n.scale, dp, ld, kRow, k.row, t0 ? 1.0f : 0.0f, dq.at(b, h, r0), dq.row);
  }

  /// Adds what a block of rows has for keys [first, last) to dk and dv.
  void rowBlock(GradPass pass, int64_t b, int64_t h, int64_t kv, int64_t r0, int64_t first, int64_t last) const {
    int64_t rows = std::min(blocks.rows, n.s - r0), end = n.keysBefore(r0 + rows);
    if (pass == GradPass::Keys && end <= first)
      return;
    float delta[Blocks::kRows];
    for (int64_t r = 0; r < rows; ++r) {
      delta[r] = dot(dy.at(b, h, r0 + r), y.at(b, h, r0 + r), n.dv);
      if (!end)
        memset(dq.at(b, h, r0 + r), 0, size_t(n.d) * sizeof(float));
    }
    FarRows far(logSums(b, h, r0), rows); // of a pass over keys: again for each block of them, where there are such rows
    for (int64_t t0 = 0; far.any() && t0 < end; t0 += blocks.keys) {
      const int64_t keys = std::min(blocks.keys, end - t0);
      maskedScores(n, arena, b, h, r0, rows, t0, keys, q.at(b, h, r0), q.row, k.at(b, kv, t0), k.row, scratch(), blocks.ld);
      far.add(scratch(), blocks.ld, keys, 1.0f);
    }
    for (int64_t t0 = first; t0 < std::min(last, end); t0 += blocks.keys)
      keyBlock(pass, b, h, kv, r0, rows, t0, std::min(blocks.keys, end - t0), far, delta);
  }

  /// The gradients of keys [first, last) of a key head; with GradPass::All, of its queries, too.
  void keysOf(GradPass pass, int64_t b, int64_t kv, int64_t first, int64_t last) const {
    for (int64_t t = first; t < last; ++t) {
      memset(dk.at(b, kv, t), 0, size_t(n.d) * sizeof(float));
      memset(dv.at(b, kv, t), 0, size_t(n.dv) * sizeof(float));
    }
    for (int64_t h = kv * n.group(); h < (kv + 1) * n.group(); ++h)
      for (int64_t r0 = 0; r0 < n.s; r0 += blocks.rows)
        rowBlock(pass, b, h, kv, r0, first, last);
  }

  void queriesOf(int64_t b, int64_t h, int64_t kv, int64_t r0) const { rowBlock(GradPass::Queries, b, h, kv, r0, 0, n.t); }
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
  shareGradient(g, g.n, g.blocks, c->threads);
}

} // namespace zccrt::cpu
