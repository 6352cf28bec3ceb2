// How threads share the gradient of attention.
#pragma once

#include "runtime/cpu/Attention.h"

namespace zccrt::cpu {

/// The gradients that a pass over blocks of scores computes.
enum class GradPass { All, Queries, Keys };

inline int64_t blocksOf(int64_t extent, int64_t block) { return (extent + block - 1) / block; }

/// Whether two passes, which compute the scores and their gradient twice (seven products instead of five), end sooner than one
/// over key heads: products of a head, times the heads that the busiest thread has.
inline bool inTwoPasses(const Heads &n, const Blocks &blocks, int64_t threads) {
  auto most = [&](int64_t parts) { return double(blocksOf(n.batch * n.kvHeads * parts, threads)) / double(parts); };
  return 3 * most(n.group() * blocksOf(n.s, blocks.rows)) + 4 * most(blocksOf(n.t, blocks.keys)) < 5 * most(1);
}

/// A thread has all of a key head, its group of query heads one after the other; where that leaves threads without work, blocks
/// of keys and then blocks of queries. Each sum is taken by one thread in the same order either way, without synchronisation.
/// `g.keysOf(pass, b, kv, first, last)` computes the gradients of keys [first, last) of a key head and, with GradPass::All, of
/// its queries, too; `g.queriesOf(b, h, kv, r0)` those of a block of queries.
template <typename Gradient> void shareGradient(const Gradient &g, const Heads &n, const Blocks &blocks, int threads) {
  const bool isTwo = inTwoPasses(n, blocks, threads);
  const int64_t parts = isTwo ? blocksOf(n.t, blocks.keys) : 1, width = isTwo ? blocks.keys : n.t;
  const int64_t rowBlocks = isTwo ? blocksOf(n.s, blocks.rows) : 0;
#pragma omp parallel num_threads(threads)
  {
#pragma omp for schedule(dynamic) nowait
    for (int64_t job = 0; job < n.batch * n.kvHeads * parts; ++job) {
      const int64_t head = job / parts, first = job % parts * width;
      g.keysOf(isTwo ? GradPass::Keys : GradPass::All, head / n.kvHeads, head % n.kvHeads, first, std::min(first + width, n.t));
    }
#pragma omp for schedule(dynamic)
    for (int64_t job = 0; job < n.batch * n.heads * rowBlocks; ++job) {
      const int64_t head = job / rowBlocks, h = head % n.heads;
      g.queriesOf(head / n.heads, h, h / n.group(), job % rowBlocks * blocks.rows);
    }
  }
}

} // namespace zccrt::cpu
