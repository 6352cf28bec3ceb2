// The gradient of attention in 16-bit floats, as AttentionGrad.cpp has it in f32: probabilities and the scores' gradient are
// computed in f32 and rounded for the products, and dq, dk and dv are summed in f32 and rounded once.
#include "runtime/cpu/AttentionGrad.h"
#include "runtime/cpu/AttentionHalf.h"
#include "runtime/cpu/Lanes.h"
#include "runtime/cpu/VecMath.h"
#include <array>

namespace zccrt::cpu {

namespace {

/// The sum of a * b.
template <typename T> ZCC_INLINE inline float dotOf(const T *a, const T *b, int64_t n) {
  constexpr int64_t kPiece = 64;
  float x[kPiece], y[kPiece], sum = 0;
  for (int64_t at = 0; at < n; at += kPiece) {
    const int64_t count = std::min(kPiece, n - at);
    for (int64_t i = 0; i < count; ++i)
      x[i] = a[at + i];
    for (int64_t i = 0; i < count; ++i)
      y[i] = b[at + i];
    sum += rowDot(x, y, count);
  }
  return sum;
}
ZCC_CLONES float dot(const Bf16 *a, const Bf16 *b, int64_t n) { return dotOf(a, b, n); }
ZCC_CLONES float dot(const F16 *a, const F16 *b, int64_t n) { return dotOf(a, b, n); }

/// p = exp(by * s - lse), ds = p * (dp - delta), both rounded.
template <typename T>
ZCC_INLINE inline void gradOf(const float *__restrict s, const float *__restrict dp, T *__restrict p, T *__restrict ds, float by,
                              float lse, float delta, int64_t n) {
  const ScoreExp<T> exp(by, lse);
  for (int64_t i = 0; i < n; ++i) {
    const float x = exp(s[i]);
    p[i] = x;
    ds[i] = x * (dp[i] - delta);
  }
}
ZCC_CLONES void scoreGrad(const float *s, const float *dp, Bf16 *p, Bf16 *ds, float by, float lse, float delta, int64_t n) {
  gradOf(s, dp, p, ds, by, lse, delta, n);
}
ZCC_CLONES void scoreGrad(const float *s, const float *dp, F16 *p, F16 *ds, float by, float lse, float delta, int64_t n) {
  gradOf(s, dp, p, ds, by, lse, delta, n);
}

/// Keys of a block: half as many as forward take 2 % longer, and are twice the jobs of a head.
constexpr int64_t kKeys = 256;

/// Products and the places of scratch.
struct HalfGradPlan {
  struct Products {
    BlockProduct *scores, *dp, *dq, *dk, *dv;
    std::array<BlockProduct *, 5> all() const { return {scores, dp, dq, dk, dv}; }
  };
  Blocks blocks;
  ByBlock<Products> products;
  ThreadScratch part;
  int64_t scores, dp, p, ds, dq, dk, dv;
  Scratch scratch;

  explicit HalfGradPlan(const zccrt_call *c) : HalfGradPlan(c, Heads(c, 1)) {}

  void prepare(const zccrt_call *c) {
    products.forms(Heads(c, 1), [&](int64_t, int64_t, Products &s) {
      for (BlockProduct *p : s.all())
        p->prepare(c->threads);
    });
    scratch.prepare(c, part.bytes() * c->threads);
  }

private:
  HalfGradPlan(const zccrt_call *c, const Heads &n) : blocks(halfBlocks(n, kKeys)), products(blocks) {
    scores = part.take(blocks.floats() * 4);
    dp = part.take(blocks.floats() * 4);
    p = part.take(blocks.floats() * 2);
    ds = part.take(blocks.floats() * 2);
    dq = part.take(blocks.rows * n.d * 4);
    dk = part.take(n.t * n.d * 4);
    dv = part.take(n.t * n.dv * 4);
    const int32_t elem = operand(c, 1).elem;
    const int64_t ld = blocks.ld;
    auto rowsOf = [&](int i, bool transposed = false) { return factorOf(operand(c, i), transposed); };
    const BlockFactor dy = rowsOf(0), q = rowsOf(1), k = rowsOf(2), kt = rowsOf(2, true), vt = rowsOf(3, true);
    products.forms(n, [&](int64_t rows, int64_t keys, Products &s) {
      s.scores = &BlockProduct::of({elem, rows, keys, n.d, q, kt, ld, /*adds=*/false});
      s.dp = &BlockProduct::of({elem, rows, keys, n.dv, dy, vt, ld, /*adds=*/false});
      s.dq = &BlockProduct::of({elem, rows, n.d, keys, {false, ld}, k, n.d, /*adds=*/true});
      s.dk = &BlockProduct::of({elem, keys, n.d, rows, {true, ld}, q, n.d, /*adds=*/true});
      s.dv = &BlockProduct::of({elem, keys, n.dv, rows, {true, ld}, dy, n.dv, /*adds=*/true});
      for (BlockProduct *product : s.all())
        part.library(product->bytes());
    });
  }
};

template <typename T> struct HalfAttentionGrad {
  /// A thread's scratch.
  struct Own {
    int thread;
    float *scores, *dp, *dq, *dk, *dv;
    T *p, *ds;
    char *library;
  };
  Heads n;
  HalfGradPlan &plan;
  Rows dy, q, k, v, y, dq, dk, dv;
  char *arena, *scratch;
  const float *lse;

  HalfAttentionGrad(char *arena, const zccrt_call *c, HalfGradPlan &plan)
      : n(c, 1), plan(plan), dy(arena, operand(c, 0)), q(arena, operand(c, 1)), k(arena, operand(c, 2)), v(arena, operand(c, 3)),
        y(arena, operand(c, 5)), dq(arena, result(c, 0)), dk(arena, result(c, 1)), dv(arena, result(c, 2)), arena(arena),
        scratch(plan.scratch.get(arena, c)), lse(at<float>(arena, operand(c, 6))) {}

  Own own() const {
    const int thread = omp_get_thread_num();
    char *at = scratch + thread * plan.part.bytes();
    auto floats = [&](int64_t place) { return reinterpret_cast<float *>(at + place); };
    auto halves = [&](int64_t place) { return reinterpret_cast<T *>(at + place); };
    return {thread,          floats(plan.scores), floats(plan.dp), floats(plan.dq),           floats(plan.dk),
            floats(plan.dv), halves(plan.p),      halves(plan.ds), at + plan.part.libraryAt()};
  }

  const float *logSums(int64_t b, int64_t h, int64_t r0) const { return lse + (b * n.heads + h) * n.s + r0; }

  /// Scores of a block, masked; returns by what they are still to be multiplied.
  float scoresOf(const Own &o, int64_t b, int64_t h, int64_t kv, int64_t r0, int64_t rows, int64_t t0, int64_t keys) const {
    plan.products.at(rows, keys).scores->run(o.thread, q.at<T>(b, h, r0), k.at<T>(b, kv, t0), o.scores, o.library);
    return scaleAndMask(n, arena, b, h, r0, rows, t0, keys, o.scores, plan.blocks.ld);
  }

  void keyBlock(const Own &o, GradPass pass, int64_t b, int64_t h, int64_t kv, int64_t r0, int64_t rows, int64_t t0, int64_t keys,
                const FarRows &far, const float *delta) const {
    const int64_t ld = plan.blocks.ld;
    const auto &products = plan.products.at(rows, keys);
    const T *dyRow = dy.at<T>(b, h, r0), *qRow = q.at<T>(b, h, r0), *kRow = k.at<T>(b, kv, t0);
    const float by = scoresOf(o, b, h, kv, r0, rows, t0, keys);
    products.dp->run(o.thread, dyRow, v.at<T>(b, kv, t0), o.dp, o.library);
    const int64_t width = fillUp(o.scores, ld, rows, keys);
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t at = r * ld;
      float log = far.has(r) ? far.shift(o.scores + at, r, width, by) : logSums(b, h, r0)[r];
      // A row that attends nothing: all scores are -infinity, and exp(-infinity) is 0.
      log = log == -__builtin_inff() ? 0.0f : log;
      scoreGrad(o.scores + at, o.dp + at, o.p + at, o.ds + at, far.has(r) ? 1.0f : by, log, delta[r], width);
    }
    if (pass != GradPass::Queries) {
      products.dv->run(o.thread, o.p, dyRow, o.dv + t0 * n.dv, o.library);
      products.dk->run(o.thread, o.ds, qRow, o.dk + t0 * n.d, o.library);
    }
    if (pass != GradPass::Keys)
      products.dq->run(o.thread, o.ds, kRow, o.dq, o.library);
  }

  /// Adds what a block of rows has for keys [first, last) to dk and dv.
  void rowBlock(const Own &o, GradPass pass, int64_t b, int64_t h, int64_t kv, int64_t r0, int64_t first, int64_t last) const {
    const int64_t rows = std::min(plan.blocks.rows, n.s - r0), end = plan.products.end(n, r0 + rows);
    if (pass == GradPass::Keys && end <= first)
      return;
    float delta[Blocks::kMostRows];
    for (int64_t r = 0; r < rows; ++r)
      delta[r] = dot(dy.at<T>(b, h, r0 + r), y.at<T>(b, h, r0 + r), n.dv);
    if (pass != GradPass::Keys)
      std::fill_n(o.dq, rows * n.d, 0.0f);
    FarRows far(logSums(b, h, r0), rows); // of a pass over keys: again for each block of them, where there are such rows
    for (int64_t t0 = 0; far.any() && t0 < end; t0 += plan.blocks.keys) {
      const int64_t keys = std::min(plan.blocks.keys, end - t0);
      const float by = scoresOf(o, b, h, kv, r0, rows, t0, keys);
      far.add(o.scores, plan.blocks.ld, keys, by);
    }
    for (int64_t t0 = first; t0 < std::min(last, end); t0 += plan.blocks.keys)
      keyBlock(o, pass, b, h, kv, r0, rows, t0, std::min(plan.blocks.keys, end - t0), far, delta);
    if (pass != GradPass::Keys)
      for (int64_t r = 0; r < rows; ++r)
        narrowRow(o.dq + r * n.d, n.scale, dq.at<T>(b, h, r0 + r), n.d);
  }

  /// The gradients of keys [first, last) of a key head; with GradPass::All, of its queries, too.
  void keysOf(GradPass pass, int64_t b, int64_t kv, int64_t first, int64_t last) const {
    const Own o = own();
    std::fill_n(o.dk + first * n.d, (last - first) * n.d, 0.0f);
    std::fill_n(o.dv + first * n.dv, (last - first) * n.dv, 0.0f);
    for (int64_t h = kv * n.group(); h < (kv + 1) * n.group(); ++h)
      for (int64_t r0 = 0; r0 < n.s; r0 += plan.blocks.rows)
        rowBlock(o, pass, b, h, kv, r0, first, last);
    for (int64_t t = first; t < last; ++t) {
      narrowRow(o.dk + t * n.d, n.scale, dk.at<T>(b, kv, t), n.d);
      narrowRow(o.dv + t * n.dv, 1.0f, dv.at<T>(b, kv, t), n.dv);
    }
  }

  void queriesOf(int64_t b, int64_t h, int64_t kv, int64_t r0) const { rowBlock(own(), GradPass::Queries, b, h, kv, r0, 0, n.t); }

  void run(int threads) const { shareGradient(*this, n, plan.blocks, threads); }
};

} // namespace

int64_t attentionGradHalfWorkspace(const zccrt_call *c) { return planBytes<HalfGradPlan>(c); }

void attentionGradHalf(char *arena, const zccrt_call *c) {
  planAndRun<HalfGradPlan>(arena, c, [&](HalfGradPlan &plan, auto *type) {
    HalfAttentionGrad<std::remove_pointer_t<decltype(type)>>(arena, c, plan).run(c->threads);
  });
}

} // namespace zccrt::cpu
