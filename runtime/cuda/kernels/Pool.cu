// Maximum and average pooling of [N, C, spatial...] and their gradients, 1 to 3 spatial axes: a thread for each element of the
// result, which goes through its window, or through the windows that it is in, in row-major order.
#include "runtime/cpu/PoolShape.h"
#include "runtime/cuda/Each.h"
#include "runtime/cuda/Kernels.h"

namespace zccrt::cuda {

namespace {

/// Positions along an axis have 32 bits, those in a plane the index's type.
struct Pool : cpu::PoolShape {
  using PoolShape::PoolShape;

  /// Calls f(position in the input plane, tap) for each tap of output position o that reads inside the input.
  template <typename I, typename F> __device__ void forTaps(I o, F f) const {
    const int z = int(o / I(out[1] * out[2])), y = int(o / I(out[2]) % I(out[1])), x = int(o % I(out[2]));
    for (int a = 0; a < kernel[0]; ++a)
      for (int b = 0; b < kernel[1]; ++b)
        for (int c = 0; c < kernel[2]; ++c) {
          const int d = read(0, z, a), h = read(1, y, b), w = read(2, x, c);
          if (d >= 0 && h >= 0 && w >= 0)
            f((I(d) * I(in[1]) + I(h)) * I(in[2]) + I(w), tapOf(a, b, c));
        }
  }
  /// Calls f(output position, tap, its positions along the axes) for each window, and tap of it, that input position i is in;
  /// positions ascend.
  template <typename I, typename F> __device__ void forReaders(I i, F f) const {
    const int z = int(i / I(in[1] * in[2])), y = int(i / I(in[2]) % I(in[1])), x = int(i % I(in[2]));
    for (int a = int(kernel[0]); a-- > 0;) {
      const int d = reader(0, z, a);
      for (int b = int(kernel[1]); d >= 0 && b-- > 0;) {
        const int h = reader(1, y, b);
        for (int c = int(kernel[2]); h >= 0 && c-- > 0;)
          if (const int w = reader(2, x, c); w >= 0)
            f((I(d) * I(out[1]) + I(h)) * I(out[2]) + I(w), tapOf(a, b, c), d, h, w);
      }
    }
  }
  /// What the sum of a window is divided by.
  __device__ double divisor(int d, int h, int w) const {
    if (countPad)
      return double(kernel[0] * kernel[1] * kernel[2]);
    return double(tapsInside(0, d)) * tapsInside(1, h) * tapsInside(2, w);
  }

private:
  /// Taps of a window are numbered row by row.
  __device__ int tapOf(int a, int b, int c) const { return int((a * kernel[1] + b) * kernel[2] + c); }
  /// The input position along an axis that a tap of output position o reads; below 0: none.
  __device__ int read(int axis, int o, int tap) const {
    const int i = o * int(stride[axis]) - int(lo[axis]) + tap * int(dilation[axis]);
    return i < int(in[axis]) ? i : -1;
  }
  /// The output position along an axis that reads input position i with a tap; -1: none.
  __device__ int reader(int axis, int i, int tap) const {
    return readerOf(i, tap, int(stride[axis]), int(dilation[axis]), int(lo[axis]), int(out[axis]));
  }
  __device__ int tapsInside(int axis, int o) const {
    int taps = 0;
    for (int tap = 0; tap < kernel[axis]; ++tap)
      taps += read(axis, o, tap) >= 0;
    return taps;
  }
};

} // namespace

/// Of a window wholly in the padding there is no tap: -1, 255 as a byte.
template <typename T, typename I> static void maxima(const Pool p, const T *x, T *y, I *taps) {
  eachIndex(p.planes * p.outPlane(), [=] __device__(auto e) {
    using N = decltype(e);
    const T *in = x + e / N(p.outPlane()) * p.inPlane();
    T best = T(-__builtin_inff());
    int taken = -1;
    p.forTaps(e % N(p.outPlane()), [&](N at, int tap) {
      T v = in[at];
      if (taken < 0 || Sum<T>(v) > Sum<T>(best) || Sum<T>(v) != Sum<T>(v)) {
        best = v;
        taken = tap;
      }
    });
    y[e] = best;
    taps[e] = I(taken);
  });
}

template <typename T, typename I> static void maximaGrad(const Pool p, const T *dy, const I *taps, T *dx) {
  eachIndex(p.planes * p.inPlane(), [=] __device__(auto e) {
    using N = decltype(e);
    const int64_t plane = e / N(p.inPlane()) * p.outPlane();
    Sum<T> sum = 0;
    p.forReaders(e % N(p.inPlane()), [&](N o, int tap, int, int, int) {
      if (taps[plane + o] == I(tap))
        sum += Sum<T>(dy[plane + o]);
    });
    dx[e] = T(sum);
  });
}

template <typename T> static void means(const Pool p, const T *x, T *y) {
  eachIndex(p.planes * p.outPlane(), [=] __device__(auto e) {
    using N = decltype(e);
    const N o = e % N(p.outPlane());
    const T *in = x + e / N(p.outPlane()) * p.inPlane();
    Sum<T> sum = 0;
    p.forTaps(o, [&](N at, int) { sum += in[at]; });
    y[e] = T(sum / Sum<T>(p.divisor(int(o / N(p.out[1] * p.out[2])), int(o / N(p.out[2]) % N(p.out[1])), int(o % N(p.out[2])))));
  });
}

template <typename T> static void meansGrad(const Pool p, const T *dy, T *dx) {
  eachIndex(p.planes * p.inPlane(), [=] __device__(auto e) {
    using N = decltype(e);
    const T *from = dy + e / N(p.inPlane()) * p.outPlane();
    Sum<T> sum = 0;
    p.forReaders(e % N(p.inPlane()), [&](N o, int, int d, int h, int w) { sum += Sum<T>(from[o]) / Sum<T>(p.divisor(d, h, w)); });
    dx[e] = T(sum);
  });
}

/// Calls f with a null pointer to the element's type.
template <typename F> static void withPooled(const zccrt_call *c, F f) {
  if (!cpu::withFloat(operand(c, 0).elem, f))
    zccrt_fail(c->node, "pooling has no kernel for integers");
}

void maxPoolRun(char *arena, const zccrt_call *c) {
  if (!arena)
    return;
  const zccrt_tensor &x = operand(c, 0), &y = result(c, 0);
  withPooled(c, [&](auto *type) {
    using T = std::remove_pointer_t<decltype(type)>;
    Pool p(c, x, y);
    cpu::withTaps(arena, result(c, 1), [&](auto *taps) { maxima(p, at<const T>(arena, x), at<T>(arena, y), taps); });
  });
}

void maxPoolGradRun(char *arena, const zccrt_call *c) {
  if (!arena)
    return;
  const zccrt_tensor &dy = operand(c, 0), &dx = result(c, 0);
  withPooled(c, [&](auto *type) {
    using T = std::remove_pointer_t<decltype(type)>;
    Pool p(c, dx, dy);
    cpu::withTaps(arena, operand(c, 1), [&](auto *taps) { maximaGrad(p, at<const T>(arena, dy), taps, at<T>(arena, dx)); });
  });
}

void avgPoolRun(char *arena, const zccrt_call *c) {
  if (!arena)
    return;
  const zccrt_tensor &x = operand(c, 0), &y = result(c, 0);
  withPooled(c, [&](auto *type) {
    using T = std::remove_pointer_t<decltype(type)>;
    means<T>(Pool(c, x, y), at<T>(arena, x), at<T>(arena, y));
  });
}

void avgPoolGradRun(char *arena, const zccrt_call *c) {
  if (!arena)
    return;
  const zccrt_tensor &dy = operand(c, 0), &dx = result(c, 0);
  withPooled(c, [&](auto *type) {
    using T = std::remove_pointer_t<decltype(type)>;
    meansGrad<T>(Pool(c, dx, dy), at<T>(arena, dy), at<T>(arena, dx));
  });
}

} // namespace zccrt::cuda
