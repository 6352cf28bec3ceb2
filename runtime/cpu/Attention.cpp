// softmax(scale q k^T + mask) v without the [S, T] matrix of scores: each thread takes blocks of query rows and runs over blocks
// of keys, keeping per row the maximum and the sum so far (online softmax, FlashAttention). Blocks depend on the extents only, so
// do the bits.
#include "runtime/cpu/Attention.h"
#include "runtime/cpu/Dnnl.h"
#include "runtime/cpu/Kernels.h"
#include "runtime/cpu/Lanes.h"
#include "runtime/cpu/Number.h"
#include "runtime/cpu/VecMath.h"
#include "runtime/cpu/Wide.h"
#include <cmath>
#include <dnnl.h>

namespace zccrt::cpu {

Heads::Heads(const zccrt_call *c, int first) {
  const zccrt_tensor &q = operand(c, first), &k = operand(c, first + 1), &v = operand(c, first + 2);
  batch = q.dims[0];
  heads = q.dims[1];
  kvHeads = k.dims[1];
  s = q.dims[2];
  t = k.dims[2];
  d = q.dims[3];
  dv = v.dims[3];
  exactScale = attrFloat(c, "scale", 1.0);
  scale = float(exactScale);
  causal = attrInt(c, "causal", 0);
  if (hasOperand(c, first + 3))
    mask = &operand(c, first + 3);
}

int64_t Heads::maskOffset(int64_t b, int64_t h, int64_t row, int64_t key) const {
  const int64_t index[4] = {b, h, row, key};
  int64_t offset = 0;
  for (int a = 0; a < mask->ndim; ++a)
    if (mask->dims[a] != 1)
      offset += index[a + 4 - mask->ndim] * mask->strides[a];
  return offset;
}

double Heads::maskAt(char *arena, int64_t b, int64_t h, int64_t row, int64_t key) const {
  if (!mask)
    return 0;
  int64_t offset = maskOffset(b, h, row, key);
  if (mask->elem == ZCCRT_F64)
    return at<double>(arena, *mask)[offset];
  return at<uint8_t>(arena, *mask)[offset] ? 0 : -__builtin_inf();
}

void smallGemm(char ta, char tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda, const float *b,
               int64_t ldb, float beta, float *y, int64_t ldy) {
  if (m && n && k && dnnl_sgemm(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, y, ldy) != dnnl_success)
    zccrt_fail(nullptr, "attention: sgemm failed");
}

namespace {

constexpr float kMinusInf = -__builtin_inff();

// ---- rows of scores

template <typename T> ZCC_INLINE inline void addStrided(float *s, const T *mask, int64_t stride, int64_t n) {
  if (stride == 1)
    for (int64_t i = 0; i < n; ++i)
      s[i] += mask[i];
  else
    for (int64_t i = 0; i < n; ++i)
      s[i] += mask[i * stride];
}
ZCC_CLONES void addMask(float *s, const float *mask, int64_t stride, int64_t n) { addStrided(s, mask, stride, n); }
ZCC_CLONES void addMask(float *s, const Bf16 *mask, int64_t stride, int64_t n) { addStrided(s, mask, stride, n); }
ZCC_CLONES void addMask(float *s, const F16 *mask, int64_t stride, int64_t n) { addStrided(s, mask, stride, n); }

ZCC_CLONES void selectMask(float *s, const uint8_t *mask, int64_t stride, int64_t n) {
  if (stride == 1)
    for (int64_t i = 0; i < n; ++i)
      s[i] = mask[i] ? s[i] : kMinusInf;
  else
    for (int64_t i = 0; i < n; ++i)
      s[i] = mask[i * stride] ? s[i] : kMinusInf;
}

ZCC_CLONES void logSumRow(const float *max, const float *sum, float *lse, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    float log = max[i] + vlog(sum[i]);
    lse[i] = sum[i] == 0.0f ? kMinusInf : log;
  }
}

/// s = exp(s - max); returns the sum.
ZCC_CLONES float expRow(float *s, float max, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    s[i] = vexp(s[i] - max);
  return rowSum(s, n);
}
struct Exp {
  float row(float *s, float max, int64_t n) const { return expRow(s, max, n); }
  float of(float x) const { return row(&x, 0.0f, 1); }
};

} // namespace

ZCC_CLONES float largestOf(const float *s, int64_t n) { return rowMax(s, n); }

ZCC_CLONES void scaleRow(float *y, float by, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    y[i] *= by;
}

void maskScores(const Heads &n, char *arena, int64_t b, int64_t h, int64_t r0, int64_t rows, int64_t t0, int64_t keys,
                float *scores, int64_t ld) {
  for (int64_t r = 0; r < rows; ++r) {
    float *row = scores + r * ld;
    if (n.mask) {
      const zccrt_tensor &m = *n.mask;
      int64_t offset = n.maskOffset(b, h, r0 + r, t0);
      int64_t step = m.ndim && m.dims[m.ndim - 1] != 1 ? m.strides[m.ndim - 1] : 0;
      bool isAdded = withFloat(m.elem, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        if constexpr (!std::is_same_v<T, double>)
          addMask(row, at<T>(arena, m) + offset, step, keys);
      });
      if (!isAdded)
        selectMask(row, at<uint8_t>(arena, m) + offset, step, keys);
    }
    for (int64_t t = std::max<int64_t>(0, n.keysBefore(r0 + r + 1) - t0); t < keys; ++t)
      row[t] = kMinusInf;
  }
}

void maskedScores(const Heads &n, char *arena, int64_t b, int64_t h, int64_t r0, int64_t rows, int64_t t0, int64_t keys,
                  const float *q, int64_t ldq, const float *k, int64_t ldk, float *scores, int64_t ld) {
  smallGemm('N', 'T', rows, keys, n.d, n.scale, q, ldq, k, ldk, 0.0f, scores, ld);
  maskScores(n, arena, b, h, r0, rows, t0, keys, scores, ld);
}

void Running::logSums(float *lse, int64_t rows) const { logSumRow(max, sum, lse, rows); }

namespace {

ZCC_CLONES float shiftedSum(const float *s, float by, float lse, int64_t n) {
  float sum = 0;
  for (int64_t i = 0; i < n; ++i)
    sum += vexp(by * s[i] - lse);
  return sum;
}
ZCC_CLONES void shiftRow(float *s, float by, float lse, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    s[i] = by * s[i] - lse;
}

} // namespace

FarRows::FarRows(const float *lse, int64_t rows) : lse_(lse), rows_(rows) {
  for (int64_t r = 0; r < rows; ++r) {
    any_ |= has_[r] = lse[r] < kFarLogSum && lse[r] != kMinusInf;
    sum_[r] = 0;
  }
}

void FarRows::add(const float *scores, int64_t ld, int64_t keys, float by) {
  for (int64_t r = 0; r < rows_; ++r)
    if (has_[r])
      sum_[r] += shiftedSum(scores + r * ld, by, lse_[r], keys);
}

float FarRows::shift(float *scores, int64_t row, int64_t keys, float by) const {
  shiftRow(scores, by, lse_[row], keys);
  return std::log(sum_[row]);
}

namespace {

struct Attention {
  Heads n;
  Blocks blocks;
  Rows q, k, v, y;
  char *arena;
  float *lse;

  Attention(char *arena, const zccrt_call *c)
      : n(c, 0), blocks(n), q(arena, operand(c, 0)), k(arena, operand(c, 1)), v(arena, operand(c, 2)), y(arena, result(c, 0)),
        arena(arena), lse(at<float>(arena, result(c, 1))) {}

  void block(int64_t b, int64_t h, int64_t r0, float *scores) const {
    int64_t rows = std::min(blocks.rows, n.s - r0), kv = h / n.group();
    int64_t end = n.keysBefore(r0 + rows);
    Running run;
    float *out = y.at(b, h, r0);
    for (int64_t t0 = 0; t0 < end; t0 += blocks.keys) {
      int64_t keys = std::min(blocks.keys, end - t0);
      maskedScores(n, arena, b, h, r0, rows, t0, keys, q.at(b, h, r0), q.row, k.at(b, kv, t0), k.row, scores, blocks.ld);
      run.add(Exp{}, 1.0f, t0 == 0, scores, blocks.ld, rows, keys, out, y.row, n.dv);
      smallGemm('N', 'N', rows, n.dv, keys, 1.0f, scores, blocks.ld, v.at(b, kv, t0), v.row, t0 ? 1.0f : 0.0f, out, y.row);
    }
    for (int64_t r = 0; r < rows; ++r) {
      if (end == 0)
        run.max[r] = run.sum[r] = 0.0f;
      if (run.sum[r] == 0.0f)
        memset(out + r * y.row, 0, size_t(n.dv) * sizeof(float));
      else
        scaleRow(out + r * y.row, 1.0f / run.sum[r], n.dv);
    }
    run.logSums(lse + (b * n.heads + h) * n.s + r0, rows);
  }
};

} // namespace

int64_t attentionWorkspace(const zccrt_call *c) {
  if (needsWide(c, attendsInHalf(c)))
    return wideWorkspace(c, attentionWorkspace);
  if (isHalf(operand(c, 0).elem))
    return attentionHalfWorkspace(c);
  Heads n(c, 0);
  return c->threads * (inDouble(c) ? n.t * 8 : Blocks(n).floats() * 4);
}

void attentionRun(char *arena, const zccrt_call *c) {
  useThreads(c);
  if (needsWide(c, attendsInHalf(c)))
    return wideRun(arena, c, attentionRun, attentionWorkspace);
  if (isHalf(operand(c, 0).elem))
    return attentionHalf(arena, c);
  if (!arena)
    return keepFreedMemory();
  if (inDouble(c))
    return attentionLoops(arena, c);
  Attention a(arena, c);
  int64_t perHead = (a.n.s + a.blocks.rows - 1) / std::max<int64_t>(1, a.blocks.rows);
  int64_t jobs = a.n.batch * a.n.heads * perHead;
#pragma omp parallel for schedule(dynamic) num_threads(c->threads)
  for (int64_t job = 0; job < jobs; ++job) {
    float *scores = scratchAt<float>(arena, c) + omp_get_thread_num() * a.blocks.floats();
    int64_t head = job / perHead;
    a.block(head / a.n.heads, head % a.n.heads, job % perHead * a.blocks.rows, scores);
  }
}

} // namespace zccrt::cpu
