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
  int64_t group() const { return heads / kvHeads; } ///< query heads of a key head
  /// Keys that queries before `row` may attend: [0, this).
  int64_t keysBefore(int64_t row) const { return causal ? std::clamp<int64_t>(row + t - s, 0, t) : t; }
};

/// Rows and keys of one block of scores; 64 rows by 512 keys are 128 KiB, so that scores, their
/// gradient, keys and values stay in a second-level cache.
struct Blocks {
  static constexpr int64_t kRows = 64, kMostRows = 128, kKeys = 512;
  int64_t rows, keys;
  int64_t ld; ///< floats from row to row, off powers of two: they collide in caches
  explicit Blocks(const Heads &n, int64_t mostRows = kRows, int64_t mostKeys = kKeys)
      : rows(std::clamp<int64_t>(n.s, 1, mostRows)), keys(std::clamp<int64_t>(n.t, 1, mostKeys)) {
    ld = (keys + 15) / 16 * 16 + 16;
  }
  int64_t floats() const { return rows * ld; }
};

/// y[m,n] = alpha * a[m,k] b[k,n] + beta * y on this thread alone; 'T': stored transposed.
void smallGemm(char ta, char tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda, const float *b,
               int64_t ldb, float beta, float *y, int64_t ldy);

/// Adds the mask to scores of rows [r0, r0 + rows) and keys [t0, t0 + keys); -infinity where row r may not attend key t.
void maskScores(const Heads &n, char *arena, int64_t b, int64_t h, int64_t r0, int64_t rows, int64_t t0, int64_t keys,
                float *scores, int64_t ld);

/// scores[r][t] = scale * q[r] . k[t], masked.
void maskedScores(const Heads &n, char *arena, int64_t b, int64_t h, int64_t r0, int64_t rows, int64_t t0, int64_t keys,
                  const float *q, int64_t ldq, const float *k, int64_t ldk, float *scores, int64_t ld);

/// The largest of a row of scores, and y *= by.
float largestOf(const float *s, int64_t n);
void scaleRow(float *y, float by, int64_t n);

/// Softmax so far of a block of rows.
struct Running {
  float max[Blocks::kMostRows], sum[Blocks::kMostRows];
  /// Takes in the next block of scores, which are to be multiplied by `by`. `exp.row(s, max, n)` takes exp(by * s - max) of a
  /// row, the maximum being that of all keys so far, and returns their sum; by `exp.of`, the exponential of a number, is rescaled
  /// what `y` and the sums hold.
  template <typename Exp>
  void add(Exp exp, float by, bool first, float *scores, int64_t ld, int64_t rows, int64_t keys, float *y, int64_t ldy,
           int64_t dv) {
    for (int64_t r = 0; r < rows; ++r) {
      float *row = scores + r * ld;
      const float before = first ? -__builtin_inff() : max[r], largest = largestOf(row, keys) * by;
      const float most = before > largest ? before : largest;
      // Nothing to attend yet: every exp(-infinity) is 0, and a NaN still shows.
      const float s = exp.row(row, most == -__builtin_inff() ? 0.0f : most, keys);
      if (!first && before != most) {
        const float change = exp.of(before - most);
        sum[r] *= change;
        scaleRow(y + r * ldy, change, dv);
      }
      sum[r] = first ? s : sum[r] + s;
      max[r] = most;
    }
  }
  /// Log-sums of rows: max + log(sum), -infinity for a sum of 0.
  void logSums(float *lse, int64_t rows) const;
};

/// Log-sums below are exact to 2^-12 at best.
inline constexpr float kFarLogSum = -0x1p12f;

/// Rows whose log-sums lie so far below 0 that the logarithm of the sum is lost in them: masked as a whole by finite values.
/// Their probabilities are computed from their scores alone, which are computed once more.
class FarRows {
public:
  FarRows(const float *lse, int64_t rows);
  bool any() const { return any_; }
  bool has(int64_t row) const { return has_[row]; }
  /// Adds what a block of scores has for the rows' sums; scores are still to be multiplied by `by`.
  void add(const float *scores, int64_t ld, int64_t keys, float by);
  /// Scores of a block of such a row become by * s - lse; returns their log-sum over all blocks.
  float shift(float *scores, int64_t row, int64_t keys, float by) const;

private:
  const float *lse_;
  int64_t rows_;
  bool any_ = false, has_[Blocks::kMostRows];
  float sum_[Blocks::kMostRows];
};

/// The operators in double, with a row of scores per thread as scratch.
void attentionLoops(char *arena, const zccrt_call *c);
void attentionGradLoops(char *arena, const zccrt_call *c);

/// Whether the operators compute in the 16-bit floats of `elem`, with sums, softmax and what is accumulated in f32.
bool attendsInHalf(const zccrt_call *c);
int64_t attentionHalfWorkspace(const zccrt_call *c);
void attentionHalf(char *arena, const zccrt_call *c);
int64_t attentionGradHalfWorkspace(const zccrt_call *c);
void attentionGradHalf(char *arena, const zccrt_call *c);

} // namespace zccrt::cpu
