// Attention in 16-bit floats, where the machine multiplies them: scores and softmax are f32, and probabilities are rounded for
// the product with the values. By blocks as in f32.
#include "runtime/cpu/AttentionHalf.h"
#include "runtime/cpu/Lanes.h"
#include "runtime/cpu/VecMath.h"
#include "runtime/cpu/Wide.h"

namespace zccrt::cpu {

bool attendsInHalf(const zccrt_call *c) {
  if (!isHalf(result(c, 0).elem) || !computesNatively(result(c, 0).elem))
    return false;
  for (int i = 0; i < c->nin + c->nout; ++i)
    if (c->t[i].offset >= 0 && count(c->t[i]) == 0)
      return false; // libraries have no products of nothing
  return true;
}

template <typename T> ZCC_INLINE static inline void narrow(const float *x, float by, T *y, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    y[i] = x[i] * by;
}
ZCC_CLONES void narrowRow(const float *x, float by, Bf16 *y, int64_t n) { narrow(x, by, y, n); }
ZCC_CLONES void narrowRow(const float *x, float by, F16 *y, int64_t n) { narrow(x, by, y, n); }

Blocks halfBlocks(const Heads &n, int64_t keys) {
  if (n.causal)
    return Blocks(n, Blocks::kRows, keys);
  const int64_t count = (n.s + Blocks::kMostRows - 1) / Blocks::kMostRows;
  return Blocks(n, (n.s + count - 1) / count, keys);
}

int64_t fillUp(float *s, int64_t ld, int64_t rows, int64_t keys) {
  const int64_t width = filledUp(keys);
  for (int64_t r = 0; r < rows; ++r)
    std::fill_n(s + r * ld + keys, width - keys, -__builtin_inff());
  return width;
}

ZCC_CLONES void scaleRows(float *s, int64_t ld, int64_t rows, int64_t n, float by) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < n; ++i)
      s[r * ld + i] *= by;
}

/// Masks near the least float become -2^100: a multiple of it is finite, and its difference from itself is 0. -infinity stays.
ZCC_CLONES static void boundRows(float *s, int64_t ld, int64_t rows, int64_t n) {
  constexpr float kLeast = -0x1p100f;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < n; ++i) {
      const float x = s[r * ld + i];
      s[r * ld + i] = x < kLeast && x != -__builtin_inff() ? kLeast : x;
    }
}

float scaleAndMask(const Heads &n, char *arena, int64_t b, int64_t h, int64_t r0, int64_t rows, int64_t t0, int64_t keys,
                   float *scores, int64_t ld) {
  if (n.scale > 0.0f && !n.mask && n.keysBefore(r0 + 1) >= t0 + keys)
    return n.scale;
  scaleRows(scores, ld, rows, keys, n.scale);
  maskScores(n, arena, b, h, r0, rows, t0, keys, scores, ld);
  if (n.mask && n.mask->elem != ZCCRT_BOOL)
    boundRows(scores, ld, rows, keys);
  return 1.0f;
}

namespace {

/// s = exp(by * s - max), p the same, rounded; returns the sum of s.
template <typename T> ZCC_INLINE inline float expOf(float *__restrict s, T *__restrict p, float by, float max, int64_t n) {
  const ScoreExp<T> exp(by, max);
  for (int64_t i = 0; i < n; ++i) {
    s[i] = exp(s[i]);
    p[i] = s[i];
  }
  return rowSum(s, n);
}
ZCC_CLONES float expRow(float *s, Bf16 *p, float by, float max, int64_t n) { return expOf(s, p, by, max, n); }
ZCC_CLONES float expRow(float *s, F16 *p, float by, float max, int64_t n) { return expOf(s, p, by, max, n); }

/// Writes probabilities of the scores at `scores` to the same places of `p`.
template <typename T> struct HalfExp {
  float by;
  const float *scores;
  T *p;
  float row(float *s, float max, int64_t n) const { return expRow(s, p + (s - scores), by, max, n); }
  float of(float x) const {
    T rounded;
    return expRow(&x, &rounded, 1.0f, 0.0f, 1);
  }
};

/// Products and the places of scratch.
struct HalfPlan {
  struct Products {
    BlockProduct *scores, *values;
  };
  Blocks blocks;
  ByBlock<Products> products;
  ThreadScratch part;
  int64_t scores, p, y;
  Scratch scratch;

  explicit HalfPlan(const zccrt_call *c) : HalfPlan(c, Heads(c, 0)) {}

  void prepare(const zccrt_call *c) {
    products.forms(Heads(c, 0), [&](int64_t, int64_t, Products &s) {
      s.scores->prepare(c->threads);
      s.values->prepare(c->threads);
    });
    scratch.prepare(c, part.bytes() * c->threads);
  }

private:
  HalfPlan(const zccrt_call *c, const Heads &n) : blocks(halfBlocks(n, Blocks::kKeys)), products(blocks) {
    scores = part.take(blocks.floats() * 4);
    p = part.take(blocks.floats() * 2);
    y = part.take(blocks.rows * n.dv * 4);
    const int32_t elem = operand(c, 0).elem;
    const BlockFactor q = factorOf(operand(c, 0), false), kt = factorOf(operand(c, 1), true), v = factorOf(operand(c, 2), false);
    products.forms(n, [&](int64_t rows, int64_t keys, Products &s) {
      s.scores = &BlockProduct::of({elem, rows, keys, n.d, q, kt, blocks.ld, /*adds=*/false});
      s.values = &BlockProduct::of({elem, rows, n.dv, keys, {false, blocks.ld}, v, n.dv, /*adds=*/true});
      part.library(std::max(s.scores->bytes(), s.values->bytes()));
    });
  }
};

template <typename T> struct HalfAttention {
  Heads n;
  HalfPlan &plan;
  Rows q, k, v, y;
  char *arena, *scratch;
  float *lse;

  HalfAttention(char *arena, const zccrt_call *c, HalfPlan &plan)
      : n(c, 0), plan(plan), q(arena, operand(c, 0)), k(arena, operand(c, 1)), v(arena, operand(c, 2)), y(arena, result(c, 0)),
        arena(arena), scratch(plan.scratch.get(arena, c)), lse(at<float>(arena, result(c, 1))) {}

  void block(int64_t b, int64_t h, int64_t r0) const {
    const int thread = omp_get_thread_num();
    const int64_t rows = std::min(plan.blocks.rows, n.s - r0), kv = h / n.group(), ld = plan.blocks.ld;
    char *own = scratch + thread * plan.part.bytes(), *library = own + plan.part.libraryAt();
    auto *scores = reinterpret_cast<float *>(own + plan.scores), *sum = reinterpret_cast<float *>(own + plan.y);
    T *p = reinterpret_cast<T *>(own + plan.p);
    Running run;
    const int64_t end = plan.products.end(n, r0 + rows);
    std::fill_n(sum, rows * n.dv, 0.0f);
    std::fill_n(run.max, rows, 0.0f);
    std::fill_n(run.sum, rows, 0.0f);
    for (int64_t t0 = 0; t0 < end; t0 += plan.blocks.keys) {
      const int64_t keys = std::min(plan.blocks.keys, end - t0);
      auto &products = plan.products.at(rows, keys);
      products.scores->run(thread, q.at<T>(b, h, r0), k.at<T>(b, kv, t0), scores, library);
      const float by = scaleAndMask(n, arena, b, h, r0, rows, t0, keys, scores, ld);
      const int64_t width = fillUp(scores, ld, rows, keys);
      run.add(HalfExp<T>{by, scores, p}, by, t0 == 0, scores, ld, rows, width, sum, n.dv, n.dv);
      products.values->run(thread, p, v.at<T>(b, kv, t0), sum, library);
    }
    for (int64_t r = 0; r < rows; ++r)
      narrowRow(sum + r * n.dv, run.sum[r] == 0.0f ? 0.0f : 1.0f / run.sum[r], y.at<T>(b, h, r0 + r), n.dv);
    run.logSums(lse + (b * n.heads + h) * n.s + r0, rows);
  }
};

} // namespace

int64_t attentionHalfWorkspace(const zccrt_call *c) { return planBytes<HalfPlan>(c); }

void attentionHalf(char *arena, const zccrt_call *c) {
  planAndRun<HalfPlan>(arena, c, [&](HalfPlan &plan, auto *type) {
    HalfAttention<std::remove_pointer_t<decltype(type)>> a(arena, c, plan);
    const int64_t perHead = (a.n.s + plan.blocks.rows - 1) / plan.blocks.rows, jobs = a.n.batch * a.n.heads * perHead;
#pragma omp parallel for schedule(dynamic) num_threads(c->threads)
    for (int64_t job = 0; job < jobs; ++job) {
      int64_t head = job / perHead;
      a.block(head / a.n.heads, head % a.n.heads, job % perHead * plan.blocks.rows);
    }
  });
}

} // namespace zccrt::cpu
