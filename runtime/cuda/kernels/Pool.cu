// Maximum and average pooling of [N, C, spatial...] and their gradients, 1 to 3 spatial axes: a thread for each element of the
// result, which goes through its window, or through the windows that it is in, in row-major order.
#include "runtime/cpu/PoolShape.h"
#include "runtime/cuda/Each.h"
#include "runtime/cuda/Kernels.h"

namespace zccrt::cuda {

namespace {

struct Pool : cpu::PoolShape {
  using PoolShape::PoolShape;

  /// Calls f(position in the input plane, tap) for each tap of output position o that reads inside the input.
  template <typename F> __device__ void forTaps(int64_t o, F f) const {
    int64_t at[3] = {o / (out[1] * out[2]), o / out[2] % out[1], o % out[2]};
    for (int64_t a = 0; a < kernel[0]; ++a)
      for (int64_t b = 0; b < kernel[1]; ++b)
        for (int64_t c = 0; c < kernel[2]; ++c) {
          int64_t d = at[0] * stride[0] - lo[0] + a * dilation[0], h = at[1] * stride[1] - lo[1] + b * dilation[1],
                  w = at[2] * stride[2] - lo[2] + c * dilation[2];
          if (d >= 0 && d < in[0] && h >= 0 && h < in[1] && w >= 0 && w < in[2])
            f((d * in[1] + h) * in[2] + w, tapOf(a, b, c));
        }
  }
  /// Taps of a window are numbered row by row.
  __device__ int64_t tapOf(int64_t a, int64_t b, int64_t c) const { return (a * kernel[1] + b) * kernel[2] + c; }
  /// The output position along an axis that reads input position i with a tap; -1: none.
  __device__ int64_t reader(int axis, int64_t i, int64_t tap) const {
    return readerOf(i, tap, stride[axis], dilation[axis], lo[axis], out[axis]);
  }
  /// Calls f(output position, tap) for each window, and tap of it, that input position i is in; positions ascend.
  template <typename F> __device__ void forReaders(int64_t i, F f) const {
    int64_t at[3] = {i / (in[1] * in[2]), i / in[2] % in[1], i % in[2]};
    for (int64_t a = kernel[0]; a-- > 0;)
      for (int64_t b = kernel[1]; b-- > 0;)
        for (int64_t c = kernel[2]; c-- > 0;) {
          int64_t d = reader(0, at[0], a), h = reader(1, at[1], b), w = reader(2, at[2], c);
          if (d >= 0 && h >= 0 && w >= 0)
            f((d * out[1] + h) * out[2] + w, tapOf(a, b, c));
        }
  }
  /// What the sum of an output position is divided by.
  __device__ double divisor(int64_t o) const {
    if (countPad)
      return double(kernel[0] * kernel[1] * kernel[2]);
    int64_t taps = 0;
    forTaps(o, [&](int64_t, int64_t) { ++taps; });
    return double(taps);
  }
};

} // namespace

/// Of a window wholly in the padding there is no tap: -1, 255 as a byte.
template <typename T, typename I> static void maxima(const Pool p, const T *x, T *y, I *taps) {
  each(p.planes * p.outPlane(), [=] __device__(int64_t e) {
    const T *in = x + e / p.outPlane() * p.inPlane();
    T best = T(-__builtin_inff());
    int64_t taken = -1;
    p.forTaps(e % p.outPlane(), [&](int64_t at, int64_t tap) {
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
  each(p.planes * p.inPlane(), [=] __device__(int64_t e) {
    const int64_t plane = e / p.inPlane() * p.outPlane();
    Sum<T> sum = 0;
    p.forReaders(e % p.inPlane(), [&](int64_t o, int64_t tap) {
      if (taps[plane + o] == I(tap))
        sum += Sum<T>(dy[plane + o]);
    });
    dx[e] = T(sum);
  });
}

template <typename T> static void means(const Pool p, const T *x, T *y) {
  each(p.planes * p.outPlane(), [=] __device__(int64_t e) {
    const T *in = x + e / p.outPlane() * p.inPlane();
    Sum<T> sum = 0;
    p.forTaps(e % p.outPlane(), [&](int64_t at, int64_t) { sum += in[at]; });
    y[e] = T(sum / Sum<T>(p.divisor(e % p.outPlane())));
  });
}

template <typename T> static void meansGrad(const Pool p, const T *dy, T *dx) {
  each(p.planes * p.inPlane(), [=] __device__(int64_t e) {
    const T *from = dy + e / p.inPlane() * p.outPlane();
    Sum<T> sum = 0;
    p.forReaders(e % p.inPlane(), [&](int64_t o, int64_t) { sum += Sum<T>(from[o]) / Sum<T>(p.divisor(o)); });
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
