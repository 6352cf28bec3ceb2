// conv, conv_grad_input, conv_grad_weight as products: the taps of images are laid out as the columns of matrices, of as many
// images at once as scratch holds. A convolution of single points is its own matrix; ConvDepthwise.cu has depthwise ones.
//   y[n] = w col(x[n])      dcol[n] = w^T dy[n], dx[n] = what of dcol each point is read from      dw = [dy] [col(x)]^T, [] of
//   all images side by side
#include "runtime/cuda/Conv.h"
#include "runtime/cuda/Kernels.h"
#include "runtime/cuda/Product.h"
#include <algorithm>

namespace zccrt::cuda {

namespace {

/// A convolution and its matrices.
struct ConvMatrices : Conv {
  using Conv::Conv;

  int64_t imageBytes() const { return channels * ins() * cpu::elemBytes(elem); }
  int64_t resultBytes() const { return filters * outs() * cpu::elemBytes(elem); }
  /// Of an image's matrix.
  int64_t columns() const { return channels * taps() * outs(); }
  int64_t columnBytes() const { return columns() * cpu::elemBytes(elem); }
  /// Images that are laid out at once.
  int64_t atOnce() const {
    constexpr int64_t kMostBytes = 64 << 20;
    return std::clamp<int64_t>(kMostBytes / std::max<int64_t>(1, columnBytes()), 1, std::max<int64_t>(1, batch));
  }
  /// 16-bit gradients of weights are summed in f32.
  bool sumsApart() const { return cpu::isHalf(elem) && batch > atOnce(); }
  int64_t weightBytes() const { return sumsApart() ? aligned(filters * perGroup() * taps() * 4) : 0; }
};

/// Where an element of the matrices lies.
struct ColumnStrides {
  int64_t image, row;
};

/// col[image, channel, tap, o] = what the tap of output position o reads.
template <typename T> struct LayOut {
  ConvMatrices s;
  const T *images;
  T *col;
  ColumnStrides to;

  template <typename I> __device__ void operator()(I e) const {
    const I outs = I(s.outs()), taps = I(s.taps()), o = e % outs, line = e / outs, row = line % (I(s.channels) * taps),
            image = line / (I(s.channels) * taps), tap = row % taps, channel = row / taps;
    const I os[3] = {o / I(s.out[1] * s.out[2]), o / I(s.out[2]) % I(s.out[1]), o % I(s.out[2])};
    const I ts[3] = {tap / I(s.kernel[1] * s.kernel[2]), tap / I(s.kernel[2]) % I(s.kernel[1]), tap % I(s.kernel[2])};
    int64_t at = 0;
    bool isInside = true;
    for (int a = 0; a < 3; ++a) {
      const int64_t i = os[a] * s.stride[a] + ts[a] * s.dilation[a] - s.lo[a];
      isInside &= i >= 0 && i < s.in[a];
      at = at * s.in[a] + i;
    }
    col[image * to.image + row * to.row + o] = isInside ? images[(image * s.channels + channel) * s.ins() + at] : T(0);
  }
};

/// Each point of the images is the sum of what its readers' taps are in col.
template <typename T> struct SumTaps {
  ConvMatrices s;
  const T *col;
  T *images;

  template <typename I> __device__ void operator()(I e) const {
    const I i = e % I(s.ins()), channel = e / I(s.ins()); // of all images
    const I is[3] = {i / I(s.in[1] * s.in[2]), i / I(s.in[2]) % I(s.in[1]), i % I(s.in[2])};
    Sum<T> sum = 0;
    for (int a = 0, tap = 0; a < s.kernel[0]; ++a)
      for (int b = 0; b < s.kernel[1]; ++b)
        for (int c = 0; c < s.kernel[2]; ++c, ++tap) {
          const int z = s.reader(0, int(is[0]), a), y = s.reader(1, int(is[1]), b), x = s.reader(2, int(is[2]), c);
          if (z >= 0 && y >= 0 && x >= 0)
            sum += col[(int64_t(channel) * s.taps() + tap) * s.outs() + (z * s.out[1] + y) * s.out[2] + x];
        }
    images[e] = T(sum);
  }
};

} // namespace

/// rows[row, image, i] of what lies as [image, row, i].
template <typename T> static void gatherRows(const T *from, T *to, int64_t count, int64_t rows, int64_t length) {
  each(count * rows * length, [=] __device__(int64_t e) {
    int64_t i = e % length, row = e / length % rows, image = e / length / rows;
    to[(row * count + image) * length + i] = from[e];
  });
}

template <typename T> static void spreadBias(const ConvMatrices s, const T *bias, T *y) {
  each(s.batch * s.filters * s.outs(), [=] __device__(int64_t e) { y[e] = bias[e / s.outs() % s.filters]; });
}

template <typename T> static void roundSums(const float *from, T *to, int64_t n) {
  each(n, [=] __device__(int64_t i) { to[i] = T(from[i]); });
}

static ConvMatrices forwardShape(const zccrt_call *c) { return ConvMatrices(c, operand(c, 0), operand(c, 1), result(c, 0)); }
static ConvMatrices inputShape(const zccrt_call *c) { return ConvMatrices(c, result(c, 0), operand(c, 1), operand(c, 0)); }
static ConvMatrices weightShape(const zccrt_call *c) { return ConvMatrices(c, operand(c, 0), result(c, 0), operand(c, 1)); }

/// Calls f(first, count) for pieces of the batch.
template <typename F> static void forPieces(const ConvMatrices &s, F f) {
  for (int64_t i = 0; i < s.batch; i += s.atOnce())
    f(i, std::min(s.atOnce(), s.batch - i));
}

/// A product of w, or of its transpose, with a matrix of each group and image: in as few batches as there are of one of both.
static void multiplyImages(const ConvMatrices &s, int64_t count, Product p, int64_t perImageB, int64_t perImageY) {
  const int64_t bytes = cpu::elemBytes(s.elem);
  const bool byGroup = s.group <= count;
  for (int64_t i = 0; i < (byGroup ? s.group : count); ++i) {
    Product one = p;
    one.batches = byGroup ? count : s.group;
    one.a.data += byGroup ? i * p.a.step * bytes : 0;
    one.b.data += i * (byGroup ? p.b.step : perImageB) * bytes;
    one.y += i * (byGroup ? p.stepY : perImageY) * bytes;
    if (byGroup) {
      one.a.step = 0;
      one.b.step = perImageB;
      one.stepY = perImageY;
    }
    multiply(one);
  }
}

static int64_t imageColumnBytes(const ConvMatrices &s) {
  return s.isPoints || s.isDepthwise ? 0 : aligned(s.atOnce() * s.columnBytes());
}
int64_t convWorkspace(const zccrt_call *c) { return imageColumnBytes(forwardShape(c)); }

void convRun(char *arena, const zccrt_call *c) {
  ConvMatrices s = forwardShape(c);
  if (s.isDepthwise)
    return arena ? depthwise(arena, c, s) : void();
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
  forPieces(s, [&](int64_t first, int64_t count) {
    const char *x = arena + operand(c, 0).offset + first * s.imageBytes(), *col = s.isPoints ? x : arena + c->scratch;
    if (!s.isPoints)
      withConvolved(c, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        eachIndex(count * s.columns(), LayOut<T>{s, (const T *)x, (T *)(arena + c->scratch), {s.columns(), n}});
      });
    multiplyImages(s, count,
                   {.m = m,
                    .n = n,
                    .k = k,
                    .a = {arena + operand(c, 1).offset, k, m * k, false},
                    .b = {col, n, k * n, false},
                    .y = y + first * s.resultBytes(),
                    .ldY = n,
                    .stepY = m * n,
                    .elem = s.elem,
                    .elemY = s.elem,
                    .isAdded = hasBias,
                    .node = c->node},
                   s.columns(), s.filters * n);
  });
}

int64_t convGradInputWorkspace(const zccrt_call *c) { return imageColumnBytes(inputShape(c)); }

void convGradInputRun(char *arena, const zccrt_call *c) {
  ConvMatrices s = inputShape(c);
  if (s.isDepthwise)
    return arena ? depthwiseGradInput(arena, c, s) : void();
  if (!arena)
    return startProducts();
  int64_t m = s.perGroup() * s.taps(), k = s.filtersPerGroup(), n = s.outs();
  forPieces(s, [&](int64_t first, int64_t count) {
    char *dx = arena + result(c, 0).offset + first * s.imageBytes(), *col = s.isPoints ? dx : arena + c->scratch;
    multiplyImages(s, count,
                   {.m = m,
                    .n = n,
                    .k = k,
                    .a = {arena + operand(c, 1).offset, m, m * k, true},
                    .b = {arena + operand(c, 0).offset + first * s.resultBytes(), n, k * n, false},
                    .y = col,
                    .ldY = n,
                    .stepY = m * n,
                    .elem = s.elem,
                    .elemY = s.elem,
                    .isAdded = false,
                    .node = c->node},
                   s.filters * n, s.columns());
    if (!s.isPoints)
      withConvolved(c, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        eachIndex(count * s.channels * s.ins(), SumTaps<T>{s, (const T *)col, (T *)dx});
      });
  });
}

/// In scratch: the sum if it is apart, the images' matrices side by side, the rows of their gradients likewise.
static int64_t gradientBytes(const ConvMatrices &s) { return aligned(s.atOnce() * s.resultBytes()); }
int64_t convGradWeightWorkspace(const zccrt_call *c) {
  ConvMatrices s = weightShape(c);
  if (s.isDepthwise)
    return depthwiseWorkspace(s);
  return s.weightBytes() + aligned(s.atOnce() * s.columnBytes()) + gradientBytes(s);
}

void convGradWeightRun(char *arena, const zccrt_call *c) {
  ConvMatrices s = weightShape(c);
  if (s.isDepthwise)
    return arena ? depthwiseGradWeight(arena, c, s) : void();
  if (!arena)
    return startProducts();
  char *dw = arena + result(c, 0).offset, *scratch = arena + c->scratch, *sum = s.sumsApart() ? scratch : dw;
  char *col = scratch + s.weightBytes(), *rows = col + aligned(s.atOnce() * s.columnBytes());
  int64_t m = s.filtersPerGroup(), n = s.perGroup() * s.taps();
  forPieces(s, [&](int64_t first, int64_t count) {
    const int64_t k = count * s.outs();
    withConvolved(c, [&](auto *type) {
      using T = std::remove_pointer_t<decltype(type)>;
      const T *x = (const T *)(arena + operand(c, 0).offset + first * s.imageBytes());
      eachIndex(count * s.columns(), LayOut<T>{s, x, (T *)col, {s.outs(), k}});
      gatherRows<T>((const T *)(arena + operand(c, 1).offset + first * s.resultBytes()), (T *)rows, count, s.filters, s.outs());
    });
    multiply({.m = m,
              .n = n,
              .k = k,
              .batches = s.group,
              .a = {rows, k, m * k, false},
              .b = {col, k, n * k, true},
              .y = sum,
              .ldY = n,
              .stepY = m * n,
              .elem = s.elem,
              .elemY = s.sumsApart() ? int32_t(ZCCRT_F32) : s.elem,
              .isAdded = first > 0,
              .node = c->node});
  });
  if (s.sumsApart())
    withConvolved(c, [&](auto *type) {
      using T = std::remove_pointer_t<decltype(type)>;
      roundSums<T>((const float *)sum, (T *)dw, s.filters * n);
    });
}

} // namespace zccrt::cuda
