// What attention in 16-bit floats and its gradient share: the products of a block, and what a thread keeps in scratch.
#pragma once

#include "runtime/cpu/Attention.h"
#include "runtime/cpu/BlockProduct.h"
#include "runtime/cpu/Number.h"
#include <utility>

namespace zccrt::cpu {

/// y = by * x, rounded.
void narrowRow(const float *x, float by, Bf16 *y, int64_t n);
void narrowRow(const float *x, float by, F16 *y, int64_t n);

/// The exponential of by * s - less for scores s, whose probabilities are rounded to a 16-bit float: of bfloat16, roughly.
template <typename T> struct ScoreExp {
  static constexpr bool kIsRough = std::is_same_v<T, Bf16>;
  float by, less;
  ZCC_INLINE ScoreExp(float by, float less) : by(by), less(less) {}
  ZCC_INLINE float operator()(float s) const {
    if constexpr (!kIsRough)
      return vexpNormal(s * by - less);
    const float y = __builtin_fmaf(s, by, -less) * kPerLn2; // of the difference: that of far products is no power of 2
    return vexp2Rough(y < -127.0f ? -127.0f : y);
  }

private:
  static constexpr float kPerLn2 = 1.44269504f;
};

/// s *= by for rows of scores.
void scaleRows(float *s, int64_t ld, int64_t rows, int64_t n, float by);

/// Scales and masks the scores of a block where they are masked, and where a negative scale turns their order; returns by what
/// they are still to be multiplied.
float scaleAndMask(const Heads &n, char *arena, int64_t b, int64_t h, int64_t r0, int64_t rows, int64_t t0, int64_t keys,
                   float *scores, int64_t ld);

/// Rows of scores are filled up with -infinity to whole vectors, for which Blocks::ld has room: loops over what is left over
/// would take longer than those.
inline int64_t filledUp(int64_t keys) { return (keys + 31) / 32 * 32; }

/// Without a causal limit, rows in equal blocks of up to kMostRows: a product of more rows pays better for the library's packing
/// (197 rows and keys: 64 rows take 9 % longer).
Blocks halfBlocks(const Heads &n, int64_t keys);

/// Fills rows of scores up; returns their width.
int64_t fillUp(float *s, int64_t ld, int64_t rows, int64_t keys);

/// Products by the rows and keys of a block. Few forms occur, so that each has its primitives: rows of a block or those left
/// over, and keys in steps of kStep, for a causal limit is rounded up.
template <typename Products> class ByBlock {
public:
  static constexpr int64_t kStep = 64;

  explicit ByBlock(const Blocks &b) : blocks_(b), made_(size_t(2 * (b.keys + 1))) {}
  Products &at(int64_t rows, int64_t keys) { return made_[size_t((rows == blocks_.rows ? 0 : blocks_.keys + 1) + keys)]; }
  /// Keys [0, this) are computed for queries before `row`.
  static int64_t end(const Heads &n, int64_t row) { return std::min(n.t, (n.keysBefore(row) + kStep - 1) / kStep * kStep); }
  /// Calls f(rows, keys, products) for all forms that occur.
  template <typename F> void forms(const Heads &n, F f) {
    std::vector<char> seen(made_.size());
    for (int64_t r0 = 0; r0 < n.s; r0 += blocks_.rows) {
      int64_t rows = std::min(blocks_.rows, n.s - r0), last = end(n, r0 + rows);
      for (int64_t t0 = 0; t0 < last; t0 += blocks_.keys) {
        int64_t keys = std::min(blocks_.keys, last - t0);
        Products &p = at(rows, keys);
        if (!std::exchange(seen[size_t(&p - made_.data())], 1))
          f(rows, keys, p);
      }
    }
  }

private:
  Blocks blocks_;
  std::vector<Products> made_;
};

/// A thread's part of the scratch.
class ThreadScratch {
public:
  int64_t take(int64_t bytes) { return std::exchange(bytes_, bytes_ + aligned(bytes)); }
  /// What the library needs comes last.
  void library(int64_t bytes) { library_ = std::max(library_, bytes); }
  int64_t libraryAt() const { return bytes_; }
  int64_t bytes() const { return bytes_ + aligned(library_); }

private:
  int64_t bytes_ = 0, library_ = 0;
};

/// The rows of an operand or result as a factor of width `width`.
inline BlockFactor factorOf(const zccrt_tensor &t, bool transposed) {
  return {transposed, t.dims[2] == 1 ? t.dims[3] : t.strides[2]};
}

/// Scratch that a plan of either operator needs.
template <typename Plan> int64_t planBytes(const zccrt_call *c) {
  return orFail(c, [&] { return Plan(c).part.bytes() * c->threads; });
}

/// Calls f with the plan, which is kept in the call's cache, and a null pointer to the 16-bit type; only plans without an arena.
template <typename Plan, typename F> void planAndRun(char *arena, const zccrt_call *c, F f) {
  orFail(c, [&] {
    if (!*c->cache) {
      keepFreedMemory();
      auto *made = new Plan(c);
      made->prepare(c);
      *c->cache = made;
    }
    Plan &plan = *static_cast<Plan *>(*c->cache);
    if (arena && result(c, 0).elem == ZCCRT_BF16)
      f(plan, (Bf16 *)nullptr);
    else if (arena)
      f(plan, (F16 *)nullptr);
  });
}

} // namespace zccrt::cpu
