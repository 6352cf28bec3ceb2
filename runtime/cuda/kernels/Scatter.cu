// scatter_add, scatter_elements, scatter_nd: rows of updates combined with the rows where indices point, without atomics, in an
// order that the indices give. The updates are sorted by their row first; elements of short lines are taken line by line, for
// only those of a line can meet.
#include "runtime/cuda/Index.h"
#include "runtime/cuda/Kernels.h"
#include <utility>

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

/// Sorted updates of a row are combined in chunks of so many, then the chunks, each in order: a row that has most of all updates
/// costs a thread no more than a few hundred.
constexpr int64_t kChunk = 64;

/// In scratch: the updates sorted by the row that they are for, those of a row in their order, each as row * updates + number;
/// there once more, to be merged into; what a chunk of a row that has more than one comes to.
struct Sorted {
  int64_t updates, inner;
  int64_t *keys = nullptr, *other = nullptr;
  char *chunks = nullptr;

  Sorted(char *arena, const zccrt_call *c, int64_t updates, int64_t inner) : updates(updates), inner(inner) {
    if (!arena)
      return;
    keys = scratchAt<int64_t>(arena, c);
    other = keys + updates;
    chunks = reinterpret_cast<char *>(other + updates);
  }
  /// A chunk of such a row begins at most once in as many updates, and so does the first of one.
  int64_t bytes() const { return updates * 16 + 2 * (updates / kChunk + 1) * inner * 8; }
  template <typename S> ZCC_ANYWHERE S *chunk(int64_t begin, bool isFirst) const {
    return reinterpret_cast<S *>(chunks) + (begin / kChunk * 2 + isFirst) * inner;
  }
};

void copyBase(char *arena, const zccrt_call *c) {
  const zccrt_tensor &base = operand(c, 0), &y = result(c, 0);
  if (base.offset != y.offset)
    copyBytes(arena + y.offset, arena + base.offset, count(base) * cpu::elemBytes(base.elem));
}

} // namespace

// ---- sorting

/// The first of sorted keys that is not below a key.
static __device__ int64_t lowerBound(const int64_t *keys, int64_t begin, int64_t end, int64_t key) {
  while (begin < end) {
    int64_t middle = begin + (end - begin) / 2;
    if (keys[middle] < key)
      begin = middle + 1;
    else
      end = middle;
  }
  return begin;
}

/// A block sorts as many as it has threads: each counts those below its own.
static __global__ void sortBlock(const int64_t *keys, int64_t n, int64_t *sorted) {
  __shared__ int64_t all[kBlock];
  const int64_t begin = int64_t(blockIdx.x) * kBlock, count = n - begin < kBlock ? n - begin : kBlock;
  if (threadIdx.x < count)
    all[threadIdx.x] = keys[begin + threadIdx.x];
  __syncthreads();
  if (threadIdx.x >= count)
    return;
  int below = 0;
  for (int i = 0; i < count; ++i)
    below += all[i] < all[threadIdx.x];
  sorted[begin + below] = all[threadIdx.x];
}

/// All keys differ. Neighbouring runs are merged, each element finding how many of the other run come before it.
static void sortKeys(Sorted &s) {
  const int64_t n = s.updates;
  if (n == 0)
    return;
  ZCC_LAUNCH(sortBlock, unsigned((n + kBlock - 1) / kBlock), kBlock, s.keys, n, s.other);
  std::swap(s.keys, s.other);
  for (int64_t run = kBlock; run < n; run *= 2) {
    const int64_t *from = s.keys;
    int64_t *to = s.other;
    each(n, [=] __device__(int64_t i) {
      int64_t pair = i / (2 * run) * (2 * run), middle = pair + run < n ? pair + run : n,
              end = middle + run < n ? middle + run : n;
      bool isFirst = i < middle;
      int64_t others = isFirst ? lowerBound(from, middle, end, from[i]) - middle : lowerBound(from, pair, middle, from[i]) - pair;
      to[(isFirst ? i : i - run) + others] = from[i];
    });
    std::swap(s.keys, s.other);
  }
}

// ---- combining

/// Where the updates of the row begin of which sorted update `i` is one.
static __device__ int64_t firstOfRow(const Sorted &s, int64_t i, int64_t row) {
  return i == 0 || s.keys[i - 1] < row * s.updates ? i : lowerBound(s.keys, 0, i, row * s.updates);
}

/// Chunks begin at multiples of kChunk behind the first update of a row. A row's only one is combined with the row.
template <typename T> static void combineChunks(T *y, const T *updates, const Sorted s, Combine how) {
  each(s.updates * s.inner, [=] __device__(int64_t e) {
    const int64_t i = e / s.inner, column = e % s.inner, n = s.updates;
    if (s.keys[i] < 0) // its index is outside
      return;
    const int64_t row = s.keys[i] / n, end = (row + 1) * n, first = firstOfRow(s, i, row);
    if ((i - first) % kChunk)
      return;
    bool isOnly = first + kChunk >= n || s.keys[first + kChunk] >= end;
    auto update = [&](int64_t k) { return Sum<T>(updates[(s.keys[k] - row * n) * s.inner + column]); };
    T &to = y[row * s.inner + column];
    Sum<T> value = isOnly ? combined<Sum<T>>(how, Sum<T>(to), update(i)) : update(i);
    for (int64_t k = i + 1; k < i + kChunk && k < n && s.keys[k] < end; ++k)
      value = combined<Sum<T>>(how, value, update(k));
    if (isOnly)
      to = T(value);
    else
      s.chunk<Sum<T>>(i, i == first)[column] = value;
  });
}

/// The rows that have several.
template <typename T> static void combineRows(T *y, const Sorted s, Combine how) {
  each(s.updates * s.inner, [=] __device__(int64_t e) {
    const int64_t i = e / s.inner, column = e % s.inner, n = s.updates;
    if (s.keys[i] < 0)
      return;
    const int64_t row = s.keys[i] / n, end = (row + 1) * n;
    bool isFirst = i == 0 || s.keys[i - 1] < row * n, isOnly = i + kChunk >= n || s.keys[i + kChunk] >= end;
    if (!isFirst || isOnly)
      return;
    T &to = y[row * s.inner + column];
    Sum<T> value = Sum<T>(to);
    for (int64_t k = i; k < n && s.keys[k] < end; k += kChunk)
      value = combined<Sum<T>>(how, value, s.chunk<Sum<T>>(k, k == i)[column]);
    to = T(value);
  });
}

template <typename Rows> static void scatterRows(char *arena, const zccrt_call *c, Combine how) {
  if (!arena)
    return;
  copyBase(arena, c);
  const Rows target(arena, c);
  Sorted s(arena, c, target.rows, target.inner);
  each(s.updates, [=] __device__(int64_t i) { s.keys[i] = target(i) * s.updates + i; }); // below 0 where an index is outside
  sortKeys(s);
  cpu::withNumber(operand(c, 0).elem, [&](auto *type) {
    using T = std::remove_pointer_t<decltype(type)>;
    T *y = at<T>(arena, result(c, 0));
    combineChunks<T>(y, at<T>(arena, operand(c, 2)), s, how);
    if (s.updates > kChunk)
      combineRows<T>(y, s, how);
  });
}

template <typename Rows> static int64_t workspace(const zccrt_call *c) {
  const Rows target(nullptr, c);
  return Sorted(nullptr, c, target.rows, target.inner).bytes();
}

int64_t scatterAddWorkspace(const zccrt_call *c) { return workspace<AxisRows>(c); }
void scatterAddRun(char *arena, const zccrt_call *c) { scatterRows<AxisRows>(arena, c, Combine::Add); }

int64_t scatterNdWorkspace(const zccrt_call *c) { return workspace<TupleRows>(c); }
void scatterNdRun(char *arena, const zccrt_call *c) { scatterRows<TupleRows>(arena, c, combineOf(c)); }

// ---- elements

/// Whether a thread takes a whole line: only elements of a line can meet, and lines are short.
static bool takesLines(const AxisElements &target) { return target.dims[target.axisAt] <= kChunk; }

template <typename T> static void scatterLines(const AxisElements target, T *y, const T *updates, Combine how) {
  each(target.lines(), [=] __device__(int64_t line) {
    for (int64_t j = 0; j < target.dims[target.axisAt]; ++j) {
      int64_t i = target.at(line, j), row = target(i);
      if (row >= 0)
        y[row] = T(combined<Sum<T>>(how, Sum<T>(y[row]), Sum<T>(updates[i])));
    }
  });
}

int64_t scatterElementsWorkspace(const zccrt_call *c) {
  return takesLines(AxisElements(nullptr, c)) ? 0 : workspace<AxisElements>(c);
}

void scatterElementsRun(char *arena, const zccrt_call *c) {
  Combine how = combineOf(c);
  if (!arena)
    return;
  const AxisElements target(arena, c);
  if (!takesLines(target))
    return scatterRows<AxisElements>(arena, c, how);
  copyBase(arena, c);
  cpu::withNumber(operand(c, 0).elem, [&](auto *type) {
    using T = std::remove_pointer_t<decltype(type)>;
    scatterLines<T>(target, at<T>(arena, result(c, 0)), at<T>(arena, operand(c, 2)), how);
  });
}

} // namespace zccrt::cuda
