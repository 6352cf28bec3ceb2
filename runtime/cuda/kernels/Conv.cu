// conv, conv_grad_input, conv_grad_weight as products: the taps of an image are laid out as the columns of a matrix, image by
// image, so that scratch holds one. A convolution of single points is its own matrix.
//   y[n] = w col(x[n])      dcol = w^T dy[n], dx[n] = what of dcol each point is read from      dw += dy[n] col(x[n])^T
#include "runtime/cpu/ConvShape.h"
#include "runtime/cuda/Each.h"
#include "runtime/cuda/Kernels.h"
#include "runtime/cuda/Product.h"

namespace zccrt::cuda {

namespace {

/// A convolution seen with three spatial axes; missing ones, in front, have extent 1.
struct Conv {
  int64_t batch, channels, filters, group, in[3], out[3], kernel[3], stride[3], dilation[3], lo[3];
  bool isPoints = true; ///< every result is one point's
  int32_t elem;

  Conv(const zccrt_call *c, const zccrt_tensor &x, const zccrt_tensor &w, const zccrt_tensor &y) : elem(x.elem) {
    cpu::ConvShape s(c, x, w, y);
    batch = s.batch;
    channels = s.channels;
    filters = s.filters;
    group = s.group;
    for (int a = 0; a < 3; ++a) {
      int i = a - (3 - s.spatial);
      in[a] = i < 0 ? 1 : s.in[i];
      out[a] = i < 0 ? 1 : s.out[i];
      kernel[a] = i < 0 ? 1 : s.kernel[i];
      stride[a] = i < 0 ? 1 : s.stride[i];
      dilation[a] = i < 0 ? 1 : s.dilation[i];
      lo[a] = i < 0 ? 0 : s.padLo[i];
      isPoints &= kernel[a] == 1 && stride[a] == 1 && !lo[a] && in[a] == out[a];
    }
  }
  ZCC_ANYWHERE int64_t ins() const { return in[0] * in[1] * in[2]; }
  ZCC_ANYWHERE int64_t outs() const { return out[0] * out[1] * out[2]; }
  ZCC_ANYWHERE int64_t taps() const { return kernel[0] * kernel[1] * kernel[2]; }
  int64_t perGroup() const { return channels / group; }
  int64_t filtersPerGroup() const { return filters / group; }
  int64_t imageBytes() const { return channels * ins() * cpu::elemBytes(elem); }
  int64_t resultBytes() const { return filters * outs() * cpu::elemBytes(elem); }
  /// Of an image's matrix.
  int64_t columnBytes() const { return isPoints ? 0 : aligned(channels * taps() * outs() * cpu::elemBytes(elem)); }
  /// 16-bit gradients of weights are summed in f32.
  bool sumsApart() const { return cpu::isHalf(elem) && batch > 1; }
  int64_t weightBytes() const { return sumsApart() ? aligned(filters * perGroup() * taps() * 4) : 0; }
};

} // namespace

/// col[channel, tap, o] = what the tap of output position o reads.
template <typename T> static void layOut(const Conv s, const T *image, T *col) {
  each(s.channels * s.taps() * s.outs(), [=] __device__(int64_t e) {
    int64_t o = e % s.outs(), tap = e / s.outs() % s.taps(), channel = e / s.outs() / s.taps();
    int64_t at = 0;
    bool isInside = true;
    const int64_t os[3] = {o / (s.out[1] * s.out[2]), o / s.out[2] % s.out[1], o % s.out[2]};
    const int64_t ts[3] = {tap / (s.kernel[1] * s.kernel[2]), tap / s.kernel[2] % s.kernel[1], tap % s.kernel[2]};
    for (int a = 0; a < 3; ++a) {
      int64_t i = os[a] * s.stride[a] + ts[a] * s.dilation[a] - s.lo[a];
      isInside &= i >= 0 && i < s.in[a];
      at = at * s.in[a] + i;
    }
    col[e] = isInside ? image[channel * s.ins() + at] : T(0);
  });
}

/// Each point of the image is the sum of what its readers' taps are in col.
template <typename T> static void sumTaps(const Conv s, const T *col, T *image) {
  each(s.channels * s.ins(), [=] __device__(int64_t e) {
    int64_t i = e % s.ins(), channel = e / s.ins();
    const int64_t is[3] = {i / (s.in[1] * s.in[2]), i / s.in[2] % s.in[1], i % s.in[2]};
    Sum<T> sum = 0;
    for (int64_t tap = 0; tap < s.taps(); ++tap) {
      const int64_t ts[3] = {tap / (s.kernel[1] * s.kernel[2]), tap / s.kernel[2] % s.kernel[1], tap % s.kernel[2]};
      int64_t o = 0;
      bool isRead = true;
      for (int a = 0; a < 3; ++a) {
        int64_t from = is[a] + s.lo[a] - ts[a] * s.dilation[a];
        isRead &= from >= 0 && from % s.stride[a] == 0 && from / s.stride[a] < s.out[a];
        o = o * s.out[a] + from / s.stride[a];
      }
      if (isRead)
        sum += col[(channel * s.taps() + tap) * s.outs() + o];
    }
    image[e] = T(sum);
  });
}

template <typename T> static void spreadBias(const Conv s, const T *bias, T *y) {
  each(s.batch * s.filters * s.outs(), [=] __device__(int64_t e) { y[e] = bias[e / s.outs() % s.filters]; });
}

template <typename T> static void roundSums(const float *from, T *to, int64_t n) {
  each(n, [=] __device__(int64_t i) { to[i] = T(from[i]); });
}

/// Calls f with a null pointer to the element's type.
template <typename F> static void withConvolved(const zccrt_call *c, F f) {
  if (!cpu::withFloat(operand(c, 0).elem, f))
    zccrt_fail(c->node, "convolutions have no kernel for integers");
}

static Conv forwardShape(const zccrt_call *c) { return Conv(c, operand(c, 0), operand(c, 1), result(c, 0)); }
static Conv inputShape(const zccrt_call *c) { return Conv(c, result(c, 0), operand(c, 1), operand(c, 0)); }
static Conv weightShape(const zccrt_call *c) { return Conv(c, operand(c, 0), result(c, 0), operand(c, 1)); }

/// The matrix of image n.
static const char *columnsOf(const Conv &s, char *arena, const zccrt_call *c, const char *image) {
  if (s.isPoints)
    return image;
  char *col = arena + c->scratch;
  withConvolved(c, [&](auto *type) {
    using T = std::remove_pointer_t<decltype(type)>;
    layOut<T>(s, (const T *)image, (T *)col);
  });
  return col;
}

int64_t convWorkspace(const zccrt_call *c) { return forwardShape(c).columnBytes(); }

void convRun(char *arena, const zccrt_call *c) {
  Conv s = forwardShape(c);
  if (!arena)
    return startProducts();
  bool hasBias = hasOperand(c, 2);
  char *y = arena + result(c, 0).offset;
  if (hasBias)
    withConvolved(c, [&](auto *type) {
      using T = std::remove_pointer_t<decltype(type)>;
      spreadBias<T>(s, at<T>(arena, operand(c, 2)), (T *)y);
    });
  int64_t m = s.filtersPerGroup(), k = s.perGroup() * s.taps(), n = s.outs();
  for (int64_t i = 0; i < s.batch; ++i) {
    const char *col = columnsOf(s, arena, c, arena + operand(c, 0).offset + i * s.imageBytes());
    multiply({m,
              n,
              k,
              s.group,
              {arena + operand(c, 1).offset, k, m * k, false},
              {col, n, k * n, false},
              y + i * s.resultBytes(),
              n,
              m * n,
              s.elem,
              s.elem,
              hasBias,
              c->node});
  }
}

int64_t convGradInputWorkspace(const zccrt_call *c) { return inputShape(c).columnBytes(); }

void convGradInputRun(char *arena, const zccrt_call *c) {
  Conv s = inputShape(c);
  if (!arena)
    return startProducts();
  int64_t m = s.perGroup() * s.taps(), k = s.filtersPerGroup(), n = s.outs();
  for (int64_t i = 0; i < s.batch; ++i) {
    char *dx = arena + result(c, 0).offset + i * s.imageBytes(), *col = s.isPoints ? dx : arena + c->scratch;
    multiply({m,
              n,
              k,
              s.group,
              {arena + operand(c, 1).offset, m, m * k, true},
              {arena + operand(c, 0).offset + i * s.resultBytes(), n, k * n, false},
              col,
              n,
              m * n,
              s.elem,
              s.elem,
              false,
              c->node});
    if (!s.isPoints)
      withConvolved(c, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        sumTaps<T>(s, (const T *)col, (T *)dx);
      });
  }
}

int64_t convGradWeightWorkspace(const zccrt_call *c) {
  Conv s = weightShape(c);
  return s.columnBytes() + s.weightBytes();
}

void convGradWeightRun(char *arena, const zccrt_call *c) {
  Conv s = weightShape(c);
  if (!arena)
    return startProducts();
  char *dw = arena + result(c, 0).offset, *sum = s.sumsApart() ? arena + c->scratch + s.columnBytes() : dw;
  int64_t m = s.filtersPerGroup(), k = s.outs(), n = s.perGroup() * s.taps();
  for (int64_t i = 0; i < s.batch; ++i) {
    const char *col = columnsOf(s, arena, c, arena + operand(c, 0).offset + i * s.imageBytes());
    multiply({m,
              n,
              k,
              s.group,
              {arena + operand(c, 1).offset + i * s.resultBytes(), k, m * k, false},
              {col, k, n * k, true},
              sum,
              n,
              m * n,
              s.elem,
              s.sumsApart() ? int32_t(ZCCRT_F32) : s.elem,
              i > 0,
              c->node});
  }
  if (s.sumsApart())
    withConvolved(c, [&](auto *type) {
      using T = std::remove_pointer_t<decltype(type)>;
      roundSums<T>((const float *)sum, (T *)dw, s.filters * n);
    });
}

} // namespace zccrt::cuda
