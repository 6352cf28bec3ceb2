// scatter_add, scatter_elements, scatter_nd: rows of updates combined with the rows where indices point, each element with its
// updates in the order of the indices and without atomics. Of rows, each update first finds the next one for the same row; then
// the first one of a row goes through all of them. Elements are taken line by line: only those of a line can meet.
#include "runtime/cuda/Index.h"
#include "runtime/cuda/Kernels.h"

namespace zccrt::cuda {

namespace {

enum class Combine { Replace, Add, Mul, Max, Min };

Combine combineOf(const zccrt_call *c) {
  const char *names[] = {"none", "add", "mul", "max", "min"}, *reduce = attrString(c, "reduce", "none");
  for (int i = 0; i < 5; ++i)
    if (!strcmp(reduce, names[i]))
      return Combine(i);
  zccrt_fail(c->node, "unknown reduction '%s'", reduce);
}

template <typename S> __device__ S combined(Combine how, S a, S b) {
  switch (how) {
  case Combine::Replace:
    return b;
  case Combine::Add:
    return S(a + b);
  case Combine::Mul:
    return S(a * b);
  case Combine::Max:
    return z_max<S>(a, b);
  default:
    return z_min<S>(a, b);
  }
}

/// In scratch, by update: its row; the row again if it is the first of it, else -1; the next update of the row, -1: none.
int64_t chainBytes(int64_t updates) { return updates * int64_t(8 + 8 + 4); }

void copyBase(char *arena, const zccrt_call *c) {
  const zccrt_tensor &base = operand(c, 0), &y = result(c, 0);
  if (base.offset != y.offset)
    copyBytes(arena + y.offset, arena + base.offset, count(base) * cpu::elemBytes(base.elem));
}

} // namespace

template <typename Rows> static void findChains(const Rows target, int64_t *row, int64_t *first, int32_t *next) {
  const int64_t n = target.rows;
  each(n, [=] __device__(int64_t i) { row[i] = target(i); });
  each(n, [=] __device__(int64_t i) {
    int64_t mine = row[i], j = i + 1, k = i - 1;
    while (j < n && row[j] != mine)
      ++j;
    next[i] = j < n ? int32_t(j) : -1;
    while (k >= 0 && row[k] != mine)
      --k;
    first[i] = k < 0 ? mine : -1;
  });
}

/// What the chains of a row say, summed up and rounded once.
template <typename T>
static void followChains(T *y, const T *updates, const int64_t *first, const int32_t *next, int64_t rows, int64_t inner,
                         Combine how) {
  each(rows * inner, [=] __device__(int64_t e) {
    int64_t i = e / inner, column = e % inner;
    if (first[i] < 0)
      return;
    T &to = y[first[i] * inner + column];
    Sum<T> value = Sum<T>(to);
    for (int64_t u = i; u >= 0; u = next[u])
      value = combined<Sum<T>>(how, value, Sum<T>(updates[u * inner + column]));
    to = T(value);
  });
}

template <typename Rows> static void scatterRows(char *arena, const zccrt_call *c, Combine how) {
  if (!arena)
    return;
  copyBase(arena, c);
  const Rows target(arena, c);
  int64_t *row = scratchAt<int64_t>(arena, c), *first = row + target.rows;
  int32_t *next = scratchAt<int32_t>(arena, c, target.rows * 16);
  findChains<Rows>(target, row, first, next);
  cpu::withNumber(operand(c, 0).elem, [&](auto *type) {
    using T = std::remove_pointer_t<decltype(type)>;
    followChains<T>(at<T>(arena, result(c, 0)), at<T>(arena, operand(c, 2)), first, next, target.rows, target.inner, how);
  });
}

int64_t scatterAddWorkspace(const zccrt_call *c) { return chainBytes(AxisRows(nullptr, c).rows); }
void scatterAddRun(char *arena, const zccrt_call *c) { scatterRows<AxisRows>(arena, c, Combine::Add); }

int64_t scatterNdWorkspace(const zccrt_call *c) { return chainBytes(TupleRows(nullptr, c).rows); }
void scatterNdRun(char *arena, const zccrt_call *c) { scatterRows<TupleRows>(arena, c, combineOf(c)); }

template <typename T> static void scatterLines(const AxisElements target, T *y, const T *updates, Combine how) {
  each(target.lines(), [=] __device__(int64_t line) {
    for (int64_t j = 0; j < target.dims[target.axisAt]; ++j) {
      int64_t i = target.at(line, j), row = target(i);
      if (row >= 0)
        y[row] = T(combined<Sum<T>>(how, Sum<T>(y[row]), Sum<T>(updates[i])));
    }
  });
}

void scatterElementsRun(char *arena, const zccrt_call *c) {
  Combine how = combineOf(c);
  if (!arena)
    return;
  copyBase(arena, c);
  const AxisElements target(arena, c);
  cpu::withNumber(operand(c, 0).elem, [&](auto *type) {
    using T = std::remove_pointer_t<decltype(type)>;
    scatterLines<T>(target, at<T>(arena, result(c, 0)), at<T>(arena, operand(c, 2)), how);
  });
}

} // namespace zccrt::cuda
