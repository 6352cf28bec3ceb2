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

  /// Taps of a window are numbered row by row.
  int64_t taps() const { return kernel[0] * kernel[1] * kernel[2]; }
  /// How far from a window's first tap another lies in the input plane.
  int64_t offset(int64_t tap) const {
    int64_t w = tap % kernel[2], h = tap / kernel[2] % kernel[1], d = tap / kernel[2] / kernel[1];
    return (d * dilation[0] * in[1] + h * dilation[1]) * in[2] + w * dilation[2];
  }

  /// Calls f(position of its first element in the input plane, its first tap) for each row of the input under row `row` of an
  /// output plane.
  template <typename F> ZCC_INLINE void forRows(int64_t row, F f) const {
    int64_t d = row / out[1], h = row % out[1];
    for (int64_t kd = 0; kd < kernel[0]; ++kd) {
      int64_t id = source(0, d, kd);
      for (int64_t kh = 0; kh < kernel[1] && id >= 0 && id < in[0]; ++kh) {
        int64_t ih = source(1, h, kh);
        if (ih >= 0 && ih < in[1])
          f((id * in[1] + ih) * in[2], (kd * kernel[1] + kh) * kernel[2]);
      }
    }
  }

  /// Calls f(first output column, columns, position in the input plane of the first one, tap) for each tap of row `row`.
  template <typename F> ZCC_INLINE void forTaps(int64_t row, F f) const {
    forRows(row, [&](int64_t rowStart, int64_t tap) ZCC_INLINE {
      for (int64_t kw = 0; kw < kernel[2]; ++kw) {
        int64_t at = source(2, 0, kw), s = stride[2];
        int64_t first = at >= 0 ? 0 : (-at + s - 1) / s;
        int64_t end = at >= in[2] ? 0 : std::min(out[2], (in[2] - 1 - at) / s + 1);
        if (first < end)
          f(first, end - first, rowStart + at + first * s, tap + kw);
      }
    });
  }
};

// ---- one tap over a row; `step` may be a constant, which is what makes the loop vectorise

/// Of a window wholly in the padding: 255 as a byte, which no window has whose taps are bytes.
template <typename I> constexpr I kNoTap = I(-1);

template <typename T, typename I, typename Step>
ZCC_INLINE inline void takeMax(T *__restrict y, I *__restrict taps, const T *__restrict x, I tap, Step step, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    T v = x[i * step], old = y[i];
    I was = taps[i];
    bool take = (was == kNoTap<I>) | (Sum<T>(v) > Sum<T>(old)) | (Sum<T>(v) != Sum<T>(v));
    y[i] = take ? v : old;
    taps[i] = take ? tap : was;
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

template <typename T, typename I> ZCC_INLINE inline void maxPool(const Pool &p, const T *x, T *y, I *taps, int64_t plane) {
  const T *in = x + plane * p.inPlane();
  withStep(p.stride[2], [&](auto step) ZCC_INLINE {
    for (int64_t row = 0; row < p.outRows(); ++row) {
      int64_t at = plane * p.outPlane() + row * p.out[2];
      std::fill_n(y + at, p.out[2], T(-__builtin_inff()));
      std::fill_n(taps + at, p.out[2], kNoTap<I>);
      p.forTaps(row, [&](int64_t first, int64_t n, int64_t from, int64_t tap)
                         ZCC_INLINE { takeMax(y + at + first, taps + at + first, in + from, I(tap), step, n); });
    }
  });
}

/// The same for floats of any width, with contiguous loops whatever the stride: each column's maximum over the
/// rows of a window first, then over the columns of windows that start at every column, of which
/// every stride-th is kept.
struct Columns {
  static constexpr int64_t kMost = 2048;
  static constexpr int32_t kNone = INT32_MAX - kMost; ///< first tap of the padding's rows: behind all others
  float max[kMost + 16], best[kMost + 16];
  int32_t rowTap[kMost + 16], tap[kMost + 16]; ///< the first tap of a column's row; the tap of a window's maximum

  static int64_t width(const Pool &p) { return (p.out[2] - 1) * p.stride[2] + (p.kernel[2] - 1) * p.dilation[2] + 1; }
  static bool fits(const Pool &p) { return std::max(width(p), p.in[2] + p.lo[2]) <= kMost; }

  /// A row of the input joins the columns at `at`. Later rows have larger taps.
  template <typename T> ZCC_INLINE void join(const T *__restrict x, int64_t at, int32_t first, int64_t n) {
    float *__restrict m = max + at;
    int32_t *__restrict rows = rowTap + at;
    for (int64_t i = 0; i < n; ++i) {
      float v = float(x[i]), old = m[i];
      int32_t was = rows[i];
      bool take = (v > old) | (v != v) | (was == kNone);
      m[i] = take ? v : old;
      rows[i] = take ? first : was;
    }
  }
  /// The columns `by` to the right, which are the windows' tap `kw` of a row. The first of equal maxima, the last of NaNs.
  ZCC_INLINE void slide(int64_t by, int32_t kw, int64_t n) {
    const float *__restrict m = max + by;
    const int32_t *__restrict rows = rowTap + by;
    for (int64_t i = 0; i < n; ++i) {
      float v = m[i], old = best[i];
      int32_t vt = rows[i] + kw, was = tap[i];
      bool first = (v == old) & (vt < was), nan = (v != v) & ((old == old) | (vt > was));
      bool take = (v > old) | first | nan;
      best[i] = take ? v : old;
      tap[i] = take ? vt : was;
    }
  }
};

template <typename T, typename I> ZCC_INLINE inline void maxPoolColumns(const Pool &p, const T *x, T *y, I *taps, int64_t plane) {
  if (!Columns::fits(p))
    return maxPool(p, x, y, taps, plane);
  Columns c;
  const T *in = x + plane * p.inPlane();
  int64_t width = (Columns::width(p) + 15) / 16 * 16, s = p.stride[2];
  int64_t starts = ((p.out[2] - 1) * s + 16) / 16 * 16;
  for (int64_t row = 0; row < p.outRows(); ++row) {
    std::fill_n(c.max, width, -__builtin_inff());
    std::fill_n(c.rowTap, width, Columns::kNone);
    p.forRows(row, [&](int64_t from, int64_t tap) ZCC_INLINE {
      int64_t n = std::min(p.in[2], Columns::width(p) - p.lo[2]);
      c.join(in + from, p.lo[2], int32_t(tap), n);
    });
    std::copy_n(c.max, starts, c.best);
    std::copy_n(c.rowTap, starts, c.tap);
    for (int64_t k = 1; k < p.kernel[2]; ++k)
      c.slide(k * p.dilation[2], int32_t(k), std::min(starts, width - k * p.dilation[2]));
    int64_t at = plane * p.outPlane() + row * p.out[2];
    for (int64_t w = 0; w < p.out[2]; ++w) {
      y[at + w] = T(c.best[w * s]);
      taps[at + w] = c.tap[w * s] >= Columns::kNone ? kNoTap<I> : I(c.tap[w * s]);
    }
  }
}

ZCC_CLONES void maxPoolOf(const Pool &p, const float *x, float *y, char *arena, const zccrt_tensor &taps, int64_t plane) {
  withTaps(arena, taps, [&](auto *t) ZCC_INLINE { maxPoolColumns(p, x, y, t, plane); });
}
ZCC_CLONES void maxPoolOf(const Pool &p, const Bf16 *x, Bf16 *y, char *arena, const zccrt_tensor &taps, int64_t plane) {
  withTaps(arena, taps, [&](auto *t) ZCC_INLINE { maxPoolColumns(p, x, y, t, plane); });
}
ZCC_CLONES void maxPoolOf(const Pool &p, const F16 *x, F16 *y, char *arena, const zccrt_tensor &taps, int64_t plane) {
  withTaps(arena, taps, [&](auto *t) ZCC_INLINE { maxPoolColumns(p, x, y, t, plane); });
}
void maxPoolOf(const Pool &p, const double *x, double *y, char *arena, const zccrt_tensor &taps, int64_t plane) {
  withTaps(arena, taps, [&](auto *t) { maxPool(p, x, y, t, plane); });
}

template <typename T, typename I>
ZCC_INLINE inline void maxPoolGrad(const Pool &p, const T *dy, const I *taps, T *dx, int64_t plane) {
  int64_t offsets[256];
  for (int64_t tap = 0; sizeof(I) == 1 && tap < p.taps(); ++tap)
    offsets[tap] = p.offset(tap);
  T *to = dx + plane * p.inPlane();
  std::fill_n(to, p.inPlane(), T(0));
  for (int64_t row = 0; row < p.outRows(); ++row) {
    const int64_t first = (p.source(0, row / p.out[1], 0) * p.in[1] + p.source(1, row % p.out[1], 0)) * p.in[2] - p.lo[2];
    const int64_t at = plane * p.outPlane() + row * p.out[2];
    for (int64_t w = 0; w < p.out[2]; ++w) {
      const I tap = taps[at + w];
      if (tap == kNoTap<I>)
        continue;
      T &d = to[first + w * p.stride[2] + (sizeof(I) == 1 ? offsets[tap] : p.offset(tap))];
      d = T(d + dy[at + w]);
    }
  }
}

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
        p.forTaps(row, [&](int64_t first, int64_t n, int64_t from, int64_t) ZCC_INLINE {
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
      p.forTaps(row, [&](int64_t first, int64_t n, int64_t to, int64_t) ZCC_INLINE {
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
    maxPoolOf(p, at<T>(arena, x), at<T>(arena, y), arena, result(c, 1), plane);
  });
}

void maxPoolGradRun(char *arena, const zccrt_call *c) {
  if (!arena)
    return;
  const zccrt_tensor &dy = operand(c, 0), &dx = result(c, 0);
  Pool p(c, dx, dy);
  forPlanes(c, dy.elem, p, [&](auto *type, int64_t plane) {
    using T = std::remove_pointer_t<decltype(type)>;
    withTaps(arena, operand(c, 1), [&](auto *taps) { maxPoolGrad(p, at<T>(arena, dy), taps, at<T>(arena, dx), plane); });
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
