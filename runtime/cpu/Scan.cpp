// Operators along one axis that are no plain reductions: argmax, argmin, cumsum, topk.
#include "runtime/cpu/Kernels.h"
#include "runtime/cpu/Lines.h"
#include <algorithm>

namespace zccrt::cpu {

constexpr int64_t kTogether = 64;

/// Calls f(first element, first line, lines) for up to kTogether lines side by side: what comes into a cache for one is of use to
/// the others.
template <typename F> static void forStrips(const zccrt_call *c, const Lines &l, F f) {
  const int64_t strips = (l.inner + kTogether - 1) / kTogether;
  forEach(l.outer * strips, threadsFor(c, l.count() * l.n * 8), [&](int64_t i) {
    const int64_t outer = i / strips, from = i % strips * kTogether;
    f(outer * l.n * l.inner + from, outer * l.inner + from, std::min(kTogether, l.inner - from));
  });
}

static void extremeIndex(char *arena, const zccrt_call *c, bool largest) {
  if (!arena)
    return;
  Lines lines(c);
  bool last = attrInt(c, "last", 0);
  int64_t *y = at<int64_t>(arena, result(c, 0));
  withNumber(operand(c, 0).elem, [&](auto *type) {
    using T = std::remove_pointer_t<decltype(type)>;
    using S = Sum<T>;
    const T *x = at<T>(arena, operand(c, 0));
    forStrips(c, lines, [&](int64_t first, int64_t line, int64_t together) {
      S best[kTogether];
      std::copy_n(x + first, together, best);
      std::fill_n(y + line, together, 0);
      for (int64_t j = 1; j < lines.n; ++j)
        for (int64_t k = 0; k < together; ++k)
          if (S a = x[first + j * lines.inner + k]; replaces(a, best[k], largest, last)) {
            best[k] = a;
            y[line + k] = j;
          }
    });
  });
}

void argmaxRun(char *arena, const zccrt_call *c) { extremeIndex(arena, c, true); }
void argminRun(char *arena, const zccrt_call *c) { extremeIndex(arena, c, false); }

void cumsumRun(char *arena, const zccrt_call *c) {
  if (!arena)
    return;
  Lines lines(c);
  bool exclusive = attrInt(c, "exclusive", 0), reverse = attrInt(c, "reverse", 0);
  withNumber(operand(c, 0).elem, [&](auto *type) {
    using T = std::remove_pointer_t<decltype(type)>;
    using W = typename WideOf<T>::type;
    const T *x = at<T>(arena, operand(c, 0));
    T *y = at<T>(arena, result(c, 0));
    forStrips(c, lines, [&](int64_t first, int64_t, int64_t together) {
      W sums[kTogether] = {};
      for (int64_t j = 0; j < lines.n; ++j)
        for (int64_t k = 0; k < together; ++k) {
          const int64_t e = first + (reverse ? lines.n - 1 - j : j) * lines.inner + k;
          const W value = W(x[e]); // read first: the result may lie in the operand's place
          y[e] = T(exclusive ? sums[k] : sums[k] + value);
          sums[k] += value;
        }
    });
  });
}

int64_t topkWorkspace(const zccrt_call *c) { return aligned(Lines(c).n * 4) * c->threads; }

void topkRun(char *arena, const zccrt_call *c) {
  if (!arena)
    return;
  Lines lines(c);
  int64_t k = attrInt(c, "k", 1), orderBytes = aligned(lines.n * 4);
  bool largest = attrInt(c, "largest", 1);
  int64_t *indices = at<int64_t>(arena, result(c, 1));
  withNumber(operand(c, 0).elem, [&](auto *type) {
    using T = std::remove_pointer_t<decltype(type)>;
    using S = Sum<T>;
    const T *x = at<T>(arena, operand(c, 0));
    T *values = at<T>(arena, result(c, 0));
    forEach(lines.count(), threadsFor(c, lines.count() * lines.n * 16), [&](int64_t i) {
      const T *line = x + lines.first(i, lines.n);
      int32_t *order = scratchAt<int32_t>(arena, c, omp_get_thread_num() * orderBytes);
      for (int64_t j = 0; j < lines.n; ++j)
        order[j] = int32_t(j);
      auto comesBefore = [&](int32_t a, int32_t b) {
        S u = line[a * lines.inner], v = line[b * lines.inner];
        bool before = largest ? wins(u, v, true) : wins(v, u, true);
        bool after = largest ? wins(v, u, true) : wins(u, v, true);
        return before != after ? before : a < b;
      };
      if (k == lines.n)
        std::sort(order, order + k, comesBefore);
      else
        std::partial_sort(order, order + k, order + lines.n, comesBefore);
      int64_t to = lines.first(i, k);
      for (int64_t j = 0; j < k; ++j) {
        values[to + j * lines.inner] = line[order[j] * lines.inner];
        indices[to + j * lines.inner] = order[j];
      }
    });
  });
}

} // namespace zccrt::cpu
