// What attention and its gradient share: extents, operands as rows, the block of scores.
#pragma once

#include "runtime/cpu/Call.h"

namespace zccrt::cpu {

/// A [batch, heads, rows, width] operand or result whose last axis is contiguous.
struct Rows {
  char *data = nullptr;
  int64_t batch, head, row; ///< strides, elements
  int64_t bytes;            ///< of an element

  Rows(char *arena, const zccrt_tensor &t)
      : data(arena + t.offset), batch(t.strides[0]), head(t.strides[1]), row(t.strides[2]), bytes(elemBytes(t.elem)) {}
  template <typename T = float> T *at(int64_t b, int64_t h, int64_t r) const {
    return reinterpret_cast<T *>(data + (b * batch + h * head + r * row) * bytes);
  }
};

/// q[B,H,S,D], k[B,Hk,T,D], v[B,Hk,T,Dv], mask broadcast to [B,H,S,T].
struct Heads {
  int64_t batch, heads, kvHeads, s, t, d, dv;
  double exactScale;
  float scale;
  bool causal;
  const zccrt_tensor *mask = nullptr;

  /// Operand `first` is q; k, v and the mask follow.
  Heads(const zccrt_call *c, int first);
  /// What the mask adds to a score, an f64 or bool mask's value.
  double maskAt(char *arena, int64_t b, int64_t h, int64_t row, int64_t key) const;
  /// Offset, in elements, of the mask's value for a score.
  int64_t maskOffset(int64_t b, int64_t h, int64_t row, int64_t key) const;
  /// Keys that queries before `row` may attend: [0, this).
  int64_t keysBefore(int64_t row) const { return causal ? std::clamp<int64_t>(row + t - s, 0, t) : t; }
};

/// Rows and keys of one block of scores; 64 rows by 512 keys are 128 KiB, so that scores, their
/// gradient, keys and values stay in a second-level cache.
struct Blocks {
  static constexpr int64_t kRows = 64, kKeys = 512;
  int64_t rows, keys;
  int64_t ld; ///< floats from row to row, off powers of two: they collide in caches
  explicit Blocks(const Heads &n) : rows(std::min(n.s, kRows)), keys(std::min(n.t, kKeys)), ld((keys + 15) / 16 * 16 + 16) {}
  int64_t floats() const { return rows * ld; }
};

/// y[m,n] = alpha * a[m,k] b[k,n] + beta * y on this thread alone; 'T': stored transposed.
void smallGemm(char ta, char tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda, const float *b,
               int64_t ldb, float beta, float *y, int64_t ldy);

/// scores[r][t] = scale * q[r] . k[t] for rows [r0, r0 + rows) and keys [t0, t0 + keys) with the
/// mask; -infinity where row r may not attend key t.
void maskedScores(const Heads &n, char *arena, int64_t b, int64_t h, int64_t r0, int64_t rows, int64_t t0, int64_t keys,
                  const float *q, int64_t ldq, const float *k, int64_t ldk, float *scores, int64_t ld);

/// The operators in double, with a row of scores per thread as scratch.
void attentionLoops(char *arena, const zccrt_call *c);
void attentionGradLoops(char *arena, const zccrt_call *c);

} // namespace zccrt::cpu
