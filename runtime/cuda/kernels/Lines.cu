// Operators along one axis that are no plain reductions: argmax, argmin, cumsum, topk; a thread for each line.
#include "runtime/cpu/Lines.h"
#include "runtime/cuda/Each.h"
#include "runtime/cuda/Kernels.h"

namespace zccrt::cuda {

using cpu::Lines;
using cpu::wins;

template <typename T> static void extremeIndices(const Lines lines, const T *x, int64_t *y, bool largest, bool last) {
  each(lines.count(), [=] __device__(int64_t i) {
    const T *line = x + lines.first(i, lines.n);
    int64_t best = 0;
    for (int64_t j = 1; j < lines.n; ++j) {
      Sum<T> a = line[j * lines.inner], b = line[best * lines.inner];
      if (cpu::replaces(a, b, largest, last))
        best = j;
    }
    y[i] = best;
  });
}

static void extremeIndex(char *arena, const zccrt_call *c, bool largest) {
  if (!arena)
    return;
  bool last = attrInt(c, "last", 0);
  cpu::withNumber(operand(c, 0).elem, [&](auto *type) {
    using T = std::remove_pointer_t<decltype(type)>;
    extremeIndices<T>(Lines(c), at<T>(arena, operand(c, 0)), at<int64_t>(arena, result(c, 0)), largest, last);
  });
}

void argmaxRun(char *arena, const zccrt_call *c) { extremeIndex(arena, c, true); }
void argminRun(char *arena, const zccrt_call *c) { extremeIndex(arena, c, false); }

template <typename T> static void runningSums(const Lines lines, const T *x, T *y, bool exclusive, bool reverse) {
  using W = typename cpu::WideOf<T>::type;
  each(lines.count(), [=] __device__(int64_t i) {
    int64_t first = lines.first(i, lines.n);
    W sum = 0;
    for (int64_t j = 0; j < lines.n; ++j) {
      int64_t e = first + (reverse ? lines.n - 1 - j : j) * lines.inner;
      W value = W(x[e]); // read first: the result may lie in the operand's place
      y[e] = T(exclusive ? sum : sum + value);
      sum += value;
    }
  });
}

void cumsumRun(char *arena, const zccrt_call *c) {
  if (!arena)
    return;
  bool exclusive = attrInt(c, "exclusive", 0), reverse = attrInt(c, "reverse", 0);
  cpu::withNumber(operand(c, 0).elem, [&](auto *type) {
    using T = std::remove_pointer_t<decltype(type)>;
    runningSums<T>(Lines(c), at<T>(arena, operand(c, 0)), at<T>(arena, result(c, 0)), exclusive, reverse);
  });
}

/// The k-th is the best behind the one before: better ones come first, of equal ones the first.
template <typename T>
static void selectBest(const Lines lines, const T *x, T *values, int64_t *indices, int64_t k, bool largest) {
  each(lines.count(), [=] __device__(int64_t i) {
    const T *line = x + lines.first(i, lines.n);
    // Whether element u stands before element v.
    auto before = [&](int64_t u, int64_t v) {
      Sum<T> a = line[u * lines.inner], b = line[v * lines.inner];
      bool isBefore = largest ? wins(a, b, true) : wins(b, a, true), isBehind = largest ? wins(b, a, true) : wins(a, b, true);
      return isBefore != isBehind ? isBefore : u < v;
    };
    int64_t to = lines.first(i, k), last = -1;
    for (int64_t j = 0; j < k; ++j) {
      int64_t best = -1;
      for (int64_t e = 0; e < lines.n; ++e)
        if ((last < 0 || before(last, e)) && e != last && (best < 0 || before(e, best)))
          best = e;
      values[to + j * lines.inner] = line[best * lines.inner];
      indices[to + j * lines.inner] = best;
      last = best;
    }
  });
}

void topkRun(char *arena, const zccrt_call *c) {
  if (!arena)
    return;
  int64_t k = attrInt(c, "k", 1);
  bool largest = attrInt(c, "largest", 1);
  cpu::withNumber(operand(c, 0).elem, [&](auto *type) {
    using T = std::remove_pointer_t<decltype(type)>;
    selectBest<T>(Lines(c), at<T>(arena, operand(c, 0)), at<T>(arena, result(c, 0)), at<int64_t>(arena, result(c, 1)), k,
                  largest);
  });
}

} // namespace zccrt::cuda
