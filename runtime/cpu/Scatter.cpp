// scatter_add, scatter_elements, scatter_nd: rows of updates combined with the rows where indices point. Every element takes its
// updates in the order of the indices, whatever the number of threads: threads share out columns of rows, or, where rows are
// short, the parts of the data that have indices of their own, or else the rows themselves, each thread reading all indices.
#include "runtime/cpu/Index.h"
#include "runtime/cpu/Kernels.h"
#include "runtime/cpu/Number.h"

namespace zccrt::cpu {

namespace {

struct Replace {
  template <typename T> T operator()(T, T b) const { return b; }
};
struct Add {
  template <typename T> T operator()(T a, T b) const { return T(Sum<T>(a) + Sum<T>(b)); }
};
struct Mul {
  template <typename T> T operator()(T a, T b) const { return T(Sum<T>(a) * Sum<T>(b)); }
};
struct Max {
  template <typename T> T operator()(T a, T b) const { return z_max<Sum<T>>(a, b); }
};
struct Min {
  template <typename T> T operator()(T a, T b) const { return z_min<Sum<T>>(a, b); }
};

template <typename T, typename Op> void combine(T *y, const T *update, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    y[i] = Op()(y[i], update[i]);
}
template <> ZCC_CLONES void combine<float, Add>(float *__restrict y, const float *__restrict update, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    y[i] += update[i];
}

/// Of the indices, those of a thread's slices.
template <typename Rows> Share sliceShare(const Rows &target, int64_t thread, int64_t threads) {
  Share s(target.slices(), thread, threads);
  const int64_t each = target.rows / std::max<int64_t>(target.slices(), 1);
  s.begin *= each;
  s.end *= each;
  return s;
}

template <typename T, typename Op, typename Rows> void combineRows(const Rows &target, T *y, const T *updates, int threads) {
  constexpr int64_t kRowsTogether = 16; // a cache line of short rows stays with one thread
  int64_t inner = target.inner;
  bool byColumns = inner >= 32 * threads, bySlices = !byColumns && target.slices() >= threads;
  forEach(threads, threads, [&](int64_t thread) {
    Share columns = byColumns ? Share(inner, thread, threads) : Share(inner, 0, 1);
    Share indices = bySlices ? sliceShare(target, thread, threads) : Share(target.rows, 0, 1);
    for (int64_t i = indices.begin; i < indices.end; ++i) {
      int64_t row = target(i);
      if (byColumns || bySlices || row / kRowsTogether % threads == thread)
        combine<T, Op>(y + row * inner + columns.begin, updates + i * inner + columns.begin, columns.end - columns.begin);
    }
  });
}

/// Columns [begin, begin + n) of a row and of all updates that go to it, summed in f32 and rounded once.
template <typename T>
inline ZCC_INLINE void addChain(T *y, const T *updates, const int32_t *next, int64_t first, int64_t inner, int64_t begin,
                                int64_t n, float *sum) {
  for (int64_t k = 0; k < n; ++k)
    sum[k] = y[begin + k];
  for (int64_t i = first; i >= 0; i = next[i]) {
    const T *update = updates + i * inner + begin;
    for (int64_t k = 0; k < n; ++k)
      sum[k] += float(update[k]);
  }
  for (int64_t k = 0; k < n; ++k)
    y[begin + k] = T(sum[k]);
}
ZCC_CLONES void addChainOf(Bf16 *y, const Bf16 *updates, const int32_t *next, int64_t first, int64_t inner, int64_t begin,
                           int64_t n, float *sum) {
  addChain(y, updates, next, first, inner, begin, n, sum);
}
ZCC_CLONES void addChainOf(F16 *y, const F16 *updates, const int32_t *next, int64_t first, int64_t inner, int64_t begin,
                           int64_t n, float *sum) {
  addChain(y, updates, next, first, inner, begin, n, sum);
}

/// Sums of 16-bit floats: the updates of each row are linked in order, `head` by row and `next` by update.
template <typename T, typename Rows>
void addHalfRows(const Rows &target, T *y, int64_t rows, const T *updates, int32_t *head, int threads) {
  constexpr int64_t kWidth = 512;
  if (!target.inner)
    return;
  int32_t *next = head + rows;
  forEach(threads, threads, [&](int64_t thread) {
    Share s(rows, thread, threads);
    std::fill(head + s.begin, head + s.end, -1);
  });
  const int linking = target.slices() >= threads ? threads : 1;
  forEach(linking, linking, [&](int64_t thread) {
    const Share s = sliceShare(target, thread, linking);
    for (int64_t i = s.end; i-- > s.begin;) {
      int64_t row = target(i);
      next[i] = head[row];
      head[row] = int32_t(i);
    }
  });
  forEachUneven(target.rows, threads, [&](int64_t i) {
    int64_t row = target(i);
    if (head[row] != i)
      return;
    float sum[kWidth];
    for (int64_t begin = 0; begin < target.inner; begin += kWidth)
      addChainOf(y + row * target.inner, updates, next, i, target.inner, begin, std::min(kWidth, target.inner - begin), sum);
  });
}

template <typename Rows> int64_t rowsOf(const zccrt_call *c, const Rows &target) {
  return target.inner ? count(operand(c, 0)) / target.inner : 0;
}

/// Sums of 16-bit floats need a number for each row of the data, and for each update.
template <typename Rows> int64_t chainBytes(const zccrt_call *c, const char *reduce) {
  if (!isHalf(operand(c, 0).elem) || strcmp(reduce, "add"))
    return 0;
  const Rows target(nullptr, c);
  return (rowsOf(c, target) + target.rows) * int64_t(sizeof(int32_t));
}

void copyBase(char *arena, const zccrt_call *c) {
  const zccrt_tensor &base = operand(c, 0), &y = result(c, 0);
  if (base.offset == y.offset)
    return;
  int64_t bytes = count(base) * elemBytes(base.elem);
  int threads = threadsFor(c, 2 * bytes);
  forEach(threads, threads, [&](int64_t t) {
    Share s(bytes, t, threads);
    memcpy(arena + y.offset + s.begin, arena + base.offset + s.begin, size_t(s.end - s.begin));
  });
}

template <typename Rows> void scatterRows(char *arena, const zccrt_call *c, const char *reduce) {
  if (!arena)
    return;
  copyBase(arena, c);
  const Rows target(arena, c);
  int32_t elem = operand(c, 0).elem;
  int threads = threadsFor(c, target.rows * (target.inner * elemBytes(elem) + 16));
  withNumber(elem, [&](auto *type) {
    using T = std::remove_pointer_t<decltype(type)>;
    T *y = at<T>(arena, result(c, 0));
    const T *updates = at<T>(arena, operand(c, 2));
    if (!strcmp(reduce, "none"))
      combineRows<T, Replace>(target, y, updates, threads);
    else if (!strcmp(reduce, "add"))
      if constexpr (kIsHalf<T>)
        addHalfRows<T>(target, y, rowsOf(c, target), updates, scratchAt<int32_t>(arena, c), threads);
      else
        combineRows<T, Add>(target, y, updates, threads);
    else if (!strcmp(reduce, "mul"))
      combineRows<T, Mul>(target, y, updates, threads);
    else if (!strcmp(reduce, "max"))
      combineRows<T, Max>(target, y, updates, threads);
    else if (!strcmp(reduce, "min"))
      combineRows<T, Min>(target, y, updates, threads);
    else
      zccrt_fail(c->node, "unknown reduction '%s'", reduce);
  });
}

} // namespace

static const char *reduceOf(const zccrt_call *c) { return attrString(c, "reduce", "none"); }

int64_t scatterAddWorkspace(const zccrt_call *c) { return chainBytes<AxisRows>(c, "add"); }
void scatterAddRun(char *arena, const zccrt_call *c) { scatterRows<AxisRows>(arena, c, "add"); }
int64_t scatterElementsWorkspace(const zccrt_call *c) { return chainBytes<AxisElements>(c, reduceOf(c)); }
void scatterElementsRun(char *arena, const zccrt_call *c) { scatterRows<AxisElements>(arena, c, reduceOf(c)); }
int64_t scatterNdWorkspace(const zccrt_call *c) { return chainBytes<TupleRows>(c, reduceOf(c)); }
void scatterNdRun(char *arena, const zccrt_call *c) { scatterRows<TupleRows>(arena, c, reduceOf(c)); }

} // namespace zccrt::cpu
