// Maximum and average pooling of [N, C, spatial...] and their gradients, 1 to 3 spatial axes. Taps are taken in row-major order,
// each over a whole row of the result at once, so that the inner loops vectorise.
#include "runtime/cpu/Call.h"
#include "runtime/cpu/Kernels.h"
#include "runtime/cpu/Lanes.h"
#include "runtime/cpu/Number.h"
#include "runtime/cpu/PoolShape.h"

namespace zccrt::cpu {

namespace {

struct Pool : PoolShape {
  using PoolShape::PoolShape;
  int64_t outRows() const { return out[0] * out[1]; }
  /// Position in the input of a tap, outside of it in the padding.
  int64_t source(int a, int64_t o, int64_t tap) const { return o * stride[a] - lo[a] + tap * dilation[a]; }
  /// Taps of output position o along axis a that lie inside the input.
  int64_t inside(int a, int64_t o) const {
    int64_t at = source(a, o, 0), d = dilation[a];
    int64_t first = at >= 0 ? 0 : (-at + d - 1) / d;
    int64_t end = at >= in[a] ? 0 : std::min(kernel[a], (in[a] - 1 - at) / d + 1);
    return std::max<int64_t>(0, end - first);
  }
  /// One window, which is the whole input.
  bool isWholePlane() const {
    bool whole = outPlane() == 1;
    for (int a = 0; a < 3; ++a)
      whole &= kernel[a] == in[a] && !lo[a];
    return whole;
  }
  /// What the sum of an output position is divided by.
  double divisor(int64_t d, int64_t h, int64_t w) const {
    if (countPad)
      return double(kernel[0] * kernel[1] * kernel[2]);
    return double(inside(0, d) * inside(1, h) * inside(2, w));
  }

  /// Calls f(position of its first element in the input plane) for each row of the input under row
  /// `row` of an output plane.
  template <typename F> ZCC_INLINE void forRows(int64_t row, F f) const {
    int64_t d = row / out[1], h = row % out[1];
    for (int64_t kd = 0; kd < kernel[0]; ++kd) {
      int64_t id = source(0, d, kd);
      for (int64_t kh = 0; kh < kernel[1] && id >= 0 && id < in[0]; ++kh) {
        int64_t ih = source(1, h, kh);
        if (ih >= 0 && ih < in[1])
          f((id * in[1] + ih) * in[2]);
      }
    }
  }

  /// Calls f(first output column, columns, position in the input plane of the first one) for each
  /// tap of row `row`.
  template <typename F> ZCC_INLINE void forTaps(int64_t row, F f) const {
    forRows(row, [&](int64_t rowStart) ZCC_INLINE {
      for (int64_t kw = 0; kw < kernel[2]; ++kw) {
        int64_t at = source(2, 0, kw), s = stride[2];
        int64_t first = at >= 0 ? 0 : (-at + s - 1) / s;
        int64_t end = at >= in[2] ? 0 : std::min(out[2], (in[2] - 1 - at) / s + 1);
        if (first < end)
          f(first, end - first, rowStart + at + first * s);
      }
    });
  }
};

// ---- one tap over a row; `step` may be a constant, which is what makes the loop vectorise

template <typename T, typename Step>
ZCC_INLINE inline void takeMax(T *__restrict y, int32_t *__restrict index, const T *__restrict x, int32_t at, Step step,
                               int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    T v = x[i * step], old = y[i];
    int32_t was = index[i];
    bool take = (was < 0) | (Sum<T>(v) > Sum<T>(old)) | (Sum<T>(v) != Sum<T>(v));
    y[i] = take ? v : old;
    index[i] = take ? at + int32_t(i) * int32_t(step) : was;
  }
}

template <typename T, typename Step>
ZCC_INLINE inline void addTap(Sum<T> *__restrict sum, const T *__restrict x, Step step, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    sum[i] += x[i * step];
}

/// Calls f with the stride, as a constant where it is a usual one.
template <typename F> ZCC_INLINE inline void withStep(int64_t stride, F f) {
  if (stride == 1)
    f(std::integral_constant<int64_t, 1>());
  else if (stride == 2)
    f(std::integral_constant<int64_t, 2>());
  else
    f(stride);
}

// ---- planes

template <typename T> ZCC_INLINE inline void maxPool(const Pool &p, const T *x, T *y, int32_t *index, int64_t plane) {
  const T *in = x + plane * p.inPlane();
  withStep(p.stride[2], [&](auto step) ZCC_INLINE {
    for (int64_t row = 0; row < p.outRows(); ++row) {
      int64_t at = plane * p.outPlane() + row * p.out[2];
      std::fill_n(y + at, p.out[2], T(-__builtin_inff()));
      std::fill_n(index + at, p.out[2], -1);
      p.forTaps(row, [&](int64_t first, int64_t n, int64_t from)
                         ZCC_INLINE { takeMax(y + at + first, index + at + first, in + from, int32_t(from), step, n); });
    }
  });
}

/// The same for floats of any width, with contiguous loops whatever the stride: each column's maximum over the
/// rows of a window first, then over the columns of windows that start at every column, of which
/// every stride-th is kept.
struct Columns {
  static constexpr int64_t kMost = 2048;
  static constexpr int32_t kNone = INT32_MAX; ///< index of the padding
  float max[kMost + 16], best[kMost + 16];
  int32_t index[kMost + 16], where[kMost + 16];

  static int64_t width(const Pool &p) { return (p.out[2] - 1) * p.stride[2] + (p.kernel[2] - 1) * p.dilation[2] + 1; }
  static bool fits(const Pool &p) { return std::max(width(p), p.in[2] + p.lo[2]) <= kMost; }

  /// A row of the input, from index `first` on, joins the columns at `at`. Later rows have larger
  /// indices.
  template <typename T> ZCC_INLINE void join(const T *__restrict x, int64_t at, int32_t first, int64_t n) {
    float *__restrict m = max + at;
    int32_t *__restrict ix = index + at;
    for (int64_t i = 0; i < n; ++i) {
      float v = float(x[i]), old = m[i];
      int32_t was = ix[i];
      bool take = (v > old) | (v != v) | (was == kNone);
      m[i] = take ? v : old;
      ix[i] = take ? first + int32_t(i) : was;
    }
  }
  /// The first of equal maxima, the last of NaNs.
  ZCC_INLINE void slide(int64_t by, int64_t n) {
    const float *__restrict m = max + by;
    const int32_t *__restrict ix = index + by;
    for (int64_t i = 0; i < n; ++i) {
      float v = m[i], old = best[i];
      int32_t vi = ix[i], was = where[i];
      bool first = (v == old) & (vi < was), nan = (v != v) & ((old == old) | (vi > was));
      bool take = (v > old) | first | nan;
      best[i] = take ? v : old;
      where[i] = take ? vi : was;
    }
  }
};

template <typename T> ZCC_INLINE inline void maxPoolColumns(const Pool &p, const T *x, T *y, int32_t *index, int64_t plane) {
  if (!Columns::fits(p))
    return maxPool(p, x, y, index, plane);
  Columns c;
  const T *in = x + plane * p.inPlane();
  int64_t width = (Columns::width(p) + 15) / 16 * 16, s = p.stride[2];
  int64_t starts = ((p.out[2] - 1) * s + 16) / 16 * 16;
  for (int64_t row = 0; row < p.outRows(); ++row) {
    std::fill_n(c.max, width, -__builtin_inff());
    std::fill_n(c.index, width, Columns::kNone);
    p.forRows(row, [&](int64_t from) ZCC_INLINE {
      int64_t n = std::min(p.in[2], Columns::width(p) - p.lo[2]);
      c.join(in + from, p.lo[2], int32_t(from), n);
    });
    std::copy_n(c.max, starts, c.best);
    std::copy_n(c.index, starts, c.where);
    for (int64_t k = 1; k < p.kernel[2]; ++k)
      c.slide(k * p.dilation[2], std::min(starts, width - k * p.dilation[2]));
    int64_t at = plane * p.outPlane() + row * p.out[2];
    for (int64_t w = 0; w < p.out[2]; ++w) {
      y[at + w] = T(c.best[w * s]);
      index[at + w] = c.where[w * s] == Columns::kNone ? -1 : c.where[w * s];
    }
  }
}
ZCC_CLONES void maxPoolOf(const Pool &p, const float *x, float *y, int32_t *index, int64_t plane) {
  maxPoolColumns(p, x, y, index, plane);
}
ZCC_CLONES void maxPoolOf(const Pool &p, const Bf16 *x, Bf16 *y, int32_t *index, int64_t plane) {
  maxPoolColumns(p, x, y, index, plane);
}
ZCC_CLONES void maxPoolOf(const Pool &p, const F16 *x, F16 *y, int32_t *index, int64_t plane) {
  maxPoolColumns(p, x, y, index, plane);
}
void maxPoolOf(const Pool &p, const double *x, double *y, int32_t *index, int64_t plane) { maxPool(p, x, y, index, plane); }

/// Sums of a row are held here, so that 16-bit results are rounded once.
constexpr int64_t kRow = 256;

template <typename T> ZCC_INLINE inline void avgPool(const Pool &p, const T *x, T *y, int64_t plane) {
  const T *in = x + plane * p.inPlane();
  Sum<T> sum[kRow];
  withStep(p.stride[2], [&](auto step) ZCC_INLINE {
    for (int64_t row = 0; row < p.outRows(); ++row)
      for (int64_t w0 = 0; w0 < p.out[2]; w0 += kRow) {
        int64_t w1 = std::min(w0 + kRow, p.out[2]);
        std::fill_n(sum, w1 - w0, Sum<T>(0));
        p.forTaps(row, [&](int64_t first, int64_t n, int64_t from) ZCC_INLINE {
          int64_t begin = std::max(first, w0), end = std::min(first + n, w1);
          addTap(sum + begin - w0, in + from + (begin - first) * step, step, end - begin);
        });
        T *to = y + plane * p.outPlane() + row * p.out[2];
        for (int64_t w = w0; w < w1; ++w)
          to[w] = T(sum[w - w0] / Sum<T>(p.divisor(row / p.out[1], row % p.out[1], w)));
      }
  });
}
ZCC_CLONES void avgPoolFloat(const Pool &p, const float *x, float *y, int64_t plane) {
  if (p.isWholePlane())
    y[plane] = rowSum(x + plane * p.inPlane(), p.inPlane()) / float(p.inPlane());
  else
    avgPool(p, x, y, plane);
}

template <typename T> ZCC_INLINE inline void avgPoolGrad(const Pool &p, const T *dy, T *dx, int64_t plane) {
  T *in = dx + plane * p.inPlane();
  if (p.isWholePlane())
    return (void)std::fill_n(in, p.inPlane(), T(dy[plane] / Sum<T>(p.inPlane())));
  std::fill_n(in, p.inPlane(), T(0));
  Sum<T> share[kRow];
  for (int64_t row = 0; row < p.outRows(); ++row)
    for (int64_t w0 = 0; w0 < p.out[2]; w0 += kRow) {
      int64_t w1 = std::min(w0 + kRow, p.out[2]);
      const T *from = dy + plane * p.outPlane() + row * p.out[2];
      for (int64_t w = w0; w < w1; ++w)
        share[w - w0] = from[w] / Sum<T>(p.divisor(row / p.out[1], row % p.out[1], w));
      p.forTaps(row, [&](int64_t first, int64_t n, int64_t to) ZCC_INLINE {
        int64_t begin = std::max(first, w0), end = std::min(first + n, w1);
        for (int64_t w = begin; w < end; ++w) {
          T &d = in[to + (w - first) * p.stride[2]];
          d = T(d + share[w - w0]);
        }
      });
    }
}

/// Calls f(null pointer to the element's type, plane) for each plane, in parallel.
template <typename F> void forPlanes(const zccrt_call *c, int32_t elem, const Pool &p, F f) {
  bool known = withFloat(elem, [&](auto *type) {
    forEach(p.planes, threadsFor(c, p.planes * p.inPlane() * 4), [&](int64_t plane) { f(type, plane); });
  });
  if (!known)
    zccrt_fail(c->node, "pooling has no kernel for integers");
}

} // namespace

void maxPoolRun(char *arena, const zccrt_call *c) {
  if (!arena)
    return;
  const zccrt_tensor &x = operand(c, 0), &y = result(c, 0);
  Pool p(c, x, y);
  forPlanes(c, x.elem, p, [&](auto *type, int64_t plane) {
    using T = std::remove_pointer_t<decltype(type)>;
    int32_t *index = at<int32_t>(arena, result(c, 1));
    maxPoolOf(p, at<T>(arena, x), at<T>(arena, y), index, plane);
  });
}

void maxPoolGradRun(char *arena, const zccrt_call *c) {
  if (!arena)
    return;
  const zccrt_tensor &dy = operand(c, 0), &dx = result(c, 0);
  Pool p(c, dx, dy);
  const int32_t *index = at<int32_t>(arena, operand(c, 1));
  forPlanes(c, dy.elem, p, [&](auto *type, int64_t plane) {
    using T = std::remove_pointer_t<decltype(type)>;
    T *to = at<T>(arena, dx) + plane * p.inPlane();
    const T *from = at<T>(arena, dy) + plane * p.outPlane();
    const int32_t *where = index + plane * p.outPlane();
    std::fill_n(to, p.inPlane(), T(0));
    for (int64_t i = 0; i < p.outPlane(); ++i)
      if (where[i] >= 0)
        to[where[i]] = T(to[where[i]] + from[i]);
  });
}

void avgPoolRun(char *arena, const zccrt_call *c) {
  if (!arena)
    return;
  const zccrt_tensor &x = operand(c, 0), &y = result(c, 0);
  Pool p(c, x, y);
  forPlanes(c, x.elem, p, [&](auto *type, int64_t plane) {
    using T = std::remove_pointer_t<decltype(type)>;
    if constexpr (std::is_same_v<T, float>)
      avgPoolFloat(p, at<T>(arena, x), at<T>(arena, y), plane);
    else
      avgPool(p, at<T>(arena, x), at<T>(arena, y), plane);
  });
}

void avgPoolGradRun(char *arena, const zccrt_call *c) {
  if (!arena)
    return;
  const zccrt_tensor &dy = operand(c, 0), &dx = result(c, 0);
  Pool p(c, dx, dy);
  forPlanes(c, dy.elem, p, [&](auto *type, int64_t plane) {
    using T = std::remove_pointer_t<decltype(type)>;
    avgPoolGrad(p, at<T>(arena, dy), at<T>(arena, dx), plane);
  });
}

} // namespace zccrt::cpu
