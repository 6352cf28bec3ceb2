// Maximum and average pooling of [N, C, spatial...] and their gradients, 1 to 3 spatial axes. Taps are taken in row-major order,
// each over a whole row of the result at once, so that the inner loops vectorise.
#include "runtime/cpu/Call.h"
#include "runtime/cpu/Kernels.h"
#include "runtime/cpu/Lanes.h"
#include "runtime/cpu/Number.h"
#include "runtime/cpu/PoolShape.h"
#include "runtime/cpu/Wide.h"

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
    if (d == 1)
      return std::max<int64_t>(0, std::min(kernel[a], in[a] - at) - std::max<int64_t>(0, -at));
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
  /// Whether windows may share elements.
  bool overlaps() const {
    bool found = false;
    for (int a = 0; a < 3; ++a)
      found |= kernel[a] > 1 && stride[a] <= (kernel[a] - 1) * dilation[a];
    return found;
  }
  /// The sum of a window is divided by the product of both: of rows of a window in row `row` of the output, and of its columns.
  int64_t rowsCounted(int64_t row) const {
    return countPad ? kernel[0] * kernel[1] : inside(0, row / out[1]) * inside(1, row % out[1]);
  }
  int64_t columnsCounted(int64_t w) const { return countPad ? kernel[2] : inside(2, w); }

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

template <typename A, typename S, typename Step>
ZCC_INLINE inline void spreadTap(A *__restrict x, const S *__restrict share, Step step, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    x[i * step] = A(x[i * step] + share[i]);
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

/// Row `row` of a plane of the result; `in`: the input's plane.
template <typename T, typename I> ZCC_INLINE inline void maxPoolRow(const Pool &p, const T *in, T *y, I *taps, int64_t row) {
  std::fill_n(y, p.out[2], T(-__builtin_inff()));
  std::fill_n(taps, p.out[2], kNoTap<I>);
  withStep(p.stride[2], [&](auto step) ZCC_INLINE {
    p.forTaps(row, [&](int64_t first, int64_t n, int64_t from, int64_t tap)
                       ZCC_INLINE { takeMax(y + first, taps + first, in + from, I(tap), step, n); });
  });
}

template <typename T, typename I> ZCC_INLINE inline void maxPool(const Pool &p, const T *x, T *y, I *taps, int64_t plane) {
  for (int64_t row = 0; row < p.outRows(); ++row) {
    const int64_t at = plane * p.outPlane() + row * p.out[2];
    maxPoolRow(p, x + plane * p.inPlane(), y + at, taps + at, row);
  }
}

/// The part of an input's plane that lies under some rows of windows, as floats with the padding around them, rows and columns
/// sorted by what they are modulo the stride: one tap of all these windows, a row of them behind the other, lies side by side.
struct Phases {
  static constexpr int64_t kFloats = 1 << 13, kMostWindows = 1 << 12;
  const Pool &p;
  const int64_t below, width; ///< rows beyond those of the windows, elements of a row
  const int64_t most;         ///< rows of windows at once
  const int64_t image;        ///< elements of one class of rows and columns; loops may read kLanes - 1 beyond what they need
  float data[kFloats];

  explicit Phases(const Pool &p)
      : p(p), below((p.kernel[1] - 1) * p.dilation[1] / p.stride[1]),
        width(p.out[2] + (p.kernel[2] - 1) * p.dilation[2] / p.stride[2]), most(rowsAtOnce(p, below, width)),
        image((most + below + 1) * width + kLanes) {
    if (most > 0)
      std::fill_n(data, p.stride[1] * p.stride[2] * image, -__builtin_inff());
  }
  static int64_t rowsAtOnce(const Pool &p, int64_t below, int64_t width) {
    if (p.lo[2] < 0)
      return 0;
    const int64_t fit = (kFloats / (p.stride[1] * p.stride[2]) - kLanes) / width - below - 1;
    return std::min({p.out[1], fit, (kMostWindows - kLanes) / width});
  }
  /// Where an element lies, so many rows and columns from the first one, padding included.
  ZCC_INLINE int64_t at(int64_t down, int64_t right) const {
    return (down % p.stride[1] * p.stride[2] + right % p.stride[2]) * image + down / p.stride[1] * width + right / p.stride[2];
  }
  /// Tap (h, w) of the first window.
  ZCC_INLINE const float *tap(int64_t h, int64_t w) const { return data + at(h * p.dilation[1], w * p.dilation[2]); }
  /// Takes what lies under `rows` rows of windows from row `first` on; `in`: the plane, or one of its slices in depth.
  template <typename T> ZCC_INLINE void take(const T *in, int64_t first, int64_t rows) {
    const int64_t end = (rows - 1) * p.stride[1] + (p.kernel[1] - 1) * p.dilation[1] + 1;
    for (int64_t down = 0; down < end; ++down) {
      float *row = data + at(down, 0);
      const int64_t ih = first * p.stride[1] + down - p.lo[1];
      if (ih >= 0 && ih < p.in[1])
        takeRow(in + ih * p.in[2], row);
      else
        for (int64_t c = 0; c < p.stride[2]; ++c)
          std::fill_n(row + c * image, width, -__builtin_inff());
    }
  }

private:
  /// Of a row's elements from column c on, those of c's class: where the first one goes, and how many.
  ZCC_INLINE std::pair<float *, int64_t> part(float *row, int64_t c) const {
    const int64_t right = c + p.lo[2], s = p.stride[2];
    return {row + at(0, right), std::min((p.in[2] - c + s - 1) / s, width - right / s)};
  }
  template <typename T> ZCC_INLINE void takeRow(const T *__restrict x, float *row) const {
    if (p.stride[2] == 2) { // both classes in one loop
      auto [even, evens] = part(row, 0);
      auto [odd, odds] = part(row, 1);
      float *__restrict a = even, *__restrict b = odd;
      const int64_t n = std::min(evens, odds);
      for (int64_t i = 0; i < n; ++i) {
        a[i] = float(x[2 * i]);
        b[i] = float(x[2 * i + 1]);
      }
      if (n < evens)
        a[n] = float(x[2 * n]);
      return;
    }
    for (int64_t c = 0; c < std::min(p.stride[2], p.in[2]); ++c) {
      auto [to, n] = part(row, c);
      for (int64_t i = 0; i < n; ++i)
        to[i] = float(x[c + i * p.stride[2]]);
    }
  }
};

/// `N` neighbouring taps join the maxima of n windows and the taps these are at.
template <int N>
ZCC_INLINE inline void joinTaps(const Phases &in, int64_t h, int64_t w, int32_t first, float *__restrict max,
                                int32_t *__restrict taps, int64_t n) {
  const float *from[N];
  for (int k = 0; k < N; ++k)
    from[k] = in.tap(h, w + k);
  for (int64_t i = 0; i < n; ++i) {
    float best = max[i];
    int32_t tap = taps[i];
    for (int k = 0; k < N; ++k) {
      const float v = from[k][i];
      const bool take = (v > best) | (v != v);
      best = take ? v : best;
      tap = take ? first + k : tap;
    }
    max[i] = best;
    taps[i] = tap;
  }
}

/// A row of the result; false where a window has no tap yet.
template <typename T, typename I>
ZCC_INLINE inline bool storeMax(const float *__restrict max, const int32_t *__restrict tap, T *__restrict y, I *__restrict taps,
                                int64_t n) {
  int32_t least = 0;
  for (int64_t i = 0; i < n; ++i) {
    y[i] = T(max[i]);
    taps[i] = I(tap[i]);
    least = std::min(least, tap[i]);
  }
  return least >= 0;
}

/// An element of each of n windows joins their maxima and the taps these are at.
template <typename T>
ZCC_INLINE inline void joinBeside(const T *__restrict x, int32_t number, float *__restrict max, int32_t *__restrict taps,
                                  int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const float v = float(x[i]), best = max[i];
    const int32_t tap = taps[i];
    const bool take = (v > best) | (v != v);
    max[i] = take ? v : best;
    taps[i] = take ? number : tap;
  }
}

/// Windows of one element of the last axis, as where channels lie in blocks, side by side.
template <typename T, typename I> ZCC_INLINE inline void maxPoolBeside(const Pool &p, const T *x, T *y, I *taps, int64_t plane) {
  constexpr int64_t kWindows = 64;
  float max[kWindows];
  int32_t tap[kWindows];
  x += plane * p.inPlane();
  for (int64_t row = 0; row < p.outRows(); ++row) {
    const int64_t at = plane * p.outPlane() + row * p.out[2];
    bool isWhole = true;
    for (int64_t w = 0; w < p.out[2]; w += kWindows) {
      const int64_t n = std::min(kWindows, p.out[2] - w);
      std::fill_n(max, n, -__builtin_inff());
      std::fill_n(tap, n, -1);
      p.forRows(row, [&](int64_t from, int64_t number) ZCC_INLINE { joinBeside(x + from + w, int32_t(number), max, tap, n); });
      isWhole &= storeMax(max, tap, y + at + w, taps + at + w, n);
    }
    if (!isWhole)
      maxPoolRow(p, x, y + at, taps + at, row);
  }
}

/// The same for floats of any width, several taps of many windows in registers. Rows with windows of which no tap is above
/// -infinity and none NaN are left to the loops above, which tell such taps from the padding.
template <typename T, typename I> ZCC_INLINE inline void maxPoolPhases(const Pool &p, const T *x, T *y, I *taps, int64_t plane) {
  if (p.kernel[2] == 1 && p.stride[2] == 1 && p.out[2] == p.in[2])
    return maxPoolBeside(p, x, y, taps, plane);
  Phases in(p);
  if (in.most < 1)
    return maxPool(p, x, y, taps, plane);
  float max[Phases::kMostWindows];
  int32_t tap[Phases::kMostWindows];
  x += plane * p.inPlane();
  for (int64_t d = 0; d < p.out[0]; ++d)
    for (int64_t h = 0, rows; h < p.out[1]; h += rows) {
      rows = std::min(in.most, p.out[1] - h);
      const int64_t n = (rows * in.width + kLanes - 1) / kLanes * kLanes;
      std::fill_n(max, n, -__builtin_inff());
      std::fill_n(tap, n, -1);
      for (int64_t kd = 0; kd < p.kernel[0]; ++kd) {
        const int64_t id = p.source(0, d, kd);
        if (id < 0 || id >= p.in[0])
          continue;
        in.take(x + id * p.in[1] * p.in[2], h, rows);
        for (int64_t kh = 0; kh < p.kernel[1]; ++kh) {
          const int32_t first = int32_t((kd * p.kernel[1] + kh) * p.kernel[2]);
          int64_t kw = 0;
          for (; kw + 3 <= p.kernel[2]; kw += 3)
            joinTaps<3>(in, kh, kw, first + int32_t(kw), max, tap, n);
          if (kw + 2 == p.kernel[2])
            joinTaps<2>(in, kh, kw, first + int32_t(kw), max, tap, n);
          else if (kw < p.kernel[2])
            joinTaps<1>(in, kh, kw, first + int32_t(kw), max, tap, n);
        }
      }
      for (int64_t r = 0; r < rows; ++r) {
        const int64_t row = d * p.out[1] + h + r, at = plane * p.outPlane() + row * p.out[2];
        if (!storeMax(max + r * in.width, tap + r * in.width, y + at, taps + at, p.out[2]))
          maxPoolRow(p, x, y + at, taps + at, row);
      }
    }
}

ZCC_CLONES void maxPoolOf(const Pool &p, const float *x, float *y, char *arena, const zccrt_tensor &taps, int64_t plane) {
  withTaps(arena, taps, [&](auto *t) ZCC_INLINE { maxPoolPhases(p, x, y, t, plane); });
}
ZCC_CLONES void maxPoolOf(const Pool &p, const Bf16 *x, Bf16 *y, char *arena, const zccrt_tensor &taps, int64_t plane) {
  withTaps(arena, taps, [&](auto *t) ZCC_INLINE { maxPoolPhases(p, x, y, t, plane); });
}
ZCC_CLONES void maxPoolOf(const Pool &p, const F16 *x, F16 *y, char *arena, const zccrt_tensor &taps, int64_t plane) {
  withTaps(arena, taps, [&](auto *t) ZCC_INLINE { maxPoolPhases(p, x, y, t, plane); });
}
void maxPoolOf(const Pool &p, const double *x, double *y, char *arena, const zccrt_tensor &taps, int64_t plane) {
  withTaps(arena, taps, [&](auto *t) { maxPool(p, x, y, t, plane); });
}

// Gradients are added up in planes of T, or of f32 where they are 16-bit floats that several windows share.

/// `to`: a plane of the gradient.
template <typename T, typename I, typename A>
ZCC_INLINE inline void maxPoolGrad(const Pool &p, const T *dy, const I *taps, A *to, int64_t plane) {
  int64_t offsets[256];
  for (int64_t tap = 0; sizeof(I) == 1 && tap < p.taps(); ++tap)
    offsets[tap] = p.offset(tap);
  std::fill_n(to, p.inPlane(), A(0));
  for (int64_t row = 0; row < p.outRows(); ++row) {
    const int64_t first = (p.source(0, row / p.out[1], 0) * p.in[1] + p.source(1, row % p.out[1], 0)) * p.in[2] - p.lo[2];
    const int64_t at = plane * p.outPlane() + row * p.out[2];
    for (int64_t w = 0; w < p.out[2]; ++w) {
      const I tap = taps[at + w];
      if (tap == kNoTap<I>)
        continue;
      A &d = to[first + w * p.stride[2] + (sizeof(I) == 1 ? offsets[tap] : p.offset(tap))];
      d = A(d + dy[at + w]);
    }
  }
}

/// Sums of a row are held here, so that 16-bit results are rounded once.
constexpr int64_t kRow = 256;

template <typename T> ZCC_INLINE inline void avgPool(const Pool &p, const T *x, T *y, int64_t plane) {
  const T *in = x + plane * p.inPlane();
  Sum<T> sum[kRow];
  withStep(p.stride[2], [&](auto step) ZCC_INLINE {
    for (int64_t row = 0; row < p.outRows(); ++row) {
      const int64_t counted = p.rowsCounted(row);
      for (int64_t w0 = 0; w0 < p.out[2]; w0 += kRow) {
        int64_t w1 = std::min(w0 + kRow, p.out[2]);
        std::fill_n(sum, w1 - w0, Sum<T>(0));
        p.forTaps(row, [&](int64_t first, int64_t n, int64_t from, int64_t) ZCC_INLINE {
          int64_t begin = std::max(first, w0), end = std::min(first + n, w1);
          addTap(sum + begin - w0, in + from + (begin - first) * step, step, end - begin);
        });
        T *to = y + plane * p.outPlane() + row * p.out[2];
        for (int64_t w = w0; w < w1; ++w)
          to[w] = T(sum[w - w0] / Sum<T>(counted * p.columnsCounted(w)));
      }
    }
  });
}
ZCC_CLONES void avgPoolOf(const Pool &p, const float *x, float *y, int64_t plane) {
  if (p.isWholePlane())
    y[plane] = rowSum(x + plane * p.inPlane(), p.inPlane()) / float(p.inPlane());
  else
    avgPool(p, x, y, plane);
}
ZCC_CLONES void avgPoolOf(const Pool &p, const Bf16 *x, Bf16 *y, int64_t plane) { avgPool(p, x, y, plane); }
ZCC_CLONES void avgPoolOf(const Pool &p, const F16 *x, F16 *y, int64_t plane) { avgPool(p, x, y, plane); }
void avgPoolOf(const Pool &p, const double *x, double *y, int64_t plane) { avgPool(p, x, y, plane); }

/// `in`: a plane of the gradient.
template <typename T, typename A> ZCC_INLINE inline void avgPoolGrad(const Pool &p, const T *dy, A *in, int64_t plane) {
  if (p.isWholePlane())
    return (void)std::fill_n(in, p.inPlane(), A(dy[plane] / Sum<T>(p.inPlane())));
  std::fill_n(in, p.inPlane(), A(0));
  Sum<T> share[kRow];
  withStep(p.stride[2], [&](auto step) ZCC_INLINE {
    for (int64_t row = 0; row < p.outRows(); ++row) {
      const int64_t counted = p.rowsCounted(row);
      for (int64_t w0 = 0; w0 < p.out[2]; w0 += kRow) {
        int64_t w1 = std::min(w0 + kRow, p.out[2]);
        const T *from = dy + plane * p.outPlane() + row * p.out[2];
        for (int64_t w = w0; w < w1; ++w)
          share[w - w0] = from[w] / Sum<T>(counted * p.columnsCounted(w));
        p.forTaps(row, [&](int64_t first, int64_t n, int64_t to, int64_t) ZCC_INLINE {
          int64_t begin = std::max(first, w0), end = std::min(first + n, w1);
          spreadTap(in + to + (begin - first) * step, share + (begin - w0), step, end - begin);
        });
      }
    }
  });
}
ZCC_CLONES void avgPoolGradOf(const Pool &p, const float *dy, float *dx, int64_t plane) { avgPoolGrad(p, dy, dx, plane); }
ZCC_CLONES void avgPoolGradOf(const Pool &p, const Bf16 *dy, Bf16 *dx, int64_t plane) { avgPoolGrad(p, dy, dx, plane); }
ZCC_CLONES void avgPoolGradOf(const Pool &p, const Bf16 *dy, float *dx, int64_t plane) { avgPoolGrad(p, dy, dx, plane); }
ZCC_CLONES void avgPoolGradOf(const Pool &p, const F16 *dy, F16 *dx, int64_t plane) { avgPoolGrad(p, dy, dx, plane); }
ZCC_CLONES void avgPoolGradOf(const Pool &p, const F16 *dy, float *dx, int64_t plane) { avgPoolGrad(p, dy, dx, plane); }
void avgPoolGradOf(const Pool &p, const double *dy, double *dx, int64_t plane) { avgPoolGrad(p, dy, dx, plane); }

int threadsOf(const zccrt_call *c, const Pool &p) { return threadsFor(c, p.planes * p.inPlane() * 4); }

/// Calls f(null pointer to the element's type, plane) for each plane, in parallel.
template <typename F> void forPlanes(const zccrt_call *c, int32_t elem, const Pool &p, F f) {
  bool known = withFloat(elem, [&](auto *type) { forEach(p.planes, threadsOf(c, p), [&](int64_t plane) { f(type, plane); }); });
  if (!known)
    zccrt_fail(c->node, "pooling has no kernel for integers");
}

/// Whether a gradient is added up in scratch.
bool sumsApart(const zccrt_call *c, const Pool &p) { return isHalf(result(c, 0).elem) && p.overlaps(); }

/// Of scratch for the gradient of a pooling: a plane of f32 a thread.
int64_t sumsBytes(const zccrt_call *c) {
  Pool p(c, result(c, 0), operand(c, 0));
  return sumsApart(c, p) ? c->threads * p.inPlane() * 4 : 0;
}

/// Calls f(pooling, gradient of the result, where a plane of the input's is added up, plane) for each plane, in parallel.
template <typename F> void forGradients(char *arena, const zccrt_call *c, F f) {
  if (!arena)
    return;
  const zccrt_tensor &dy = operand(c, 0), &dx = result(c, 0);
  Pool p(c, dx, dy);
  const bool apart = sumsApart(c, p), isShared = threadsOf(c, p) > 1;
  forPlanes(c, dy.elem, p, [&](auto *type, int64_t plane) {
    using T = std::remove_pointer_t<decltype(type)>;
    const T *from = at<T>(arena, dy);
    T *to = at<T>(arena, dx) + plane * p.inPlane();
    if constexpr (sizeof(T) == 2)
      if (apart) {
        float *sums = scratchAt<float>(arena, c) + (isShared ? omp_get_thread_num() : 0) * p.inPlane();
        f(p, from, sums, plane);
        return narrowRow(sums, to, p.inPlane());
      }
    f(p, from, to, plane);
  });
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

int64_t maxPoolGradWorkspace(const zccrt_call *c) { return sumsBytes(c); }

void maxPoolGradRun(char *arena, const zccrt_call *c) {
  forGradients(arena, c, [&](const Pool &p, const auto *dy, auto *to, int64_t plane) {
    withTaps(arena, operand(c, 1), [&](auto *taps) { maxPoolGrad(p, dy, taps, to, plane); });
  });
}

void avgPoolRun(char *arena, const zccrt_call *c) {
  if (!arena)
    return;
  const zccrt_tensor &x = operand(c, 0), &y = result(c, 0);
  Pool p(c, x, y);
  forPlanes(c, x.elem, p, [&](auto *type, int64_t plane) {
    using T = std::remove_pointer_t<decltype(type)>;
    avgPoolOf(p, at<T>(arena, x), at<T>(arena, y), plane);
  });
}

int64_t avgPoolGradWorkspace(const zccrt_call *c) { return sumsBytes(c); }

void avgPoolGradRun(char *arena, const zccrt_call *c) {
  forGradients(arena, c, [&](const Pool &p, const auto *dy, auto *to, int64_t plane) { avgPoolGradOf(p, dy, to, plane); });
}

} // namespace zccrt::cpu
