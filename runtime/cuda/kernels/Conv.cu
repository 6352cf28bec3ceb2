// conv, conv_grad_input, conv_grad_weight as products: the taps of images are laid out as the columns of matrices, of as many
// images at once as scratch holds. A convolution of single points is its own matrix, unless its rows are unaligned;
// ConvDepthwise.cu has depthwise ones.
//   y[n] = w col(x[n])      dcol[n] = w^T dy[n], dx[n] = what of dcol each point is read from      dw = [dy] [col(x)]^T, [] of
//   all images side by side
#include "runtime/cuda/Conv.h"
#include "runtime/cuda/Kernels.h"
#include "runtime/cuda/Loops.h"
#include "runtime/cuda/Product.h"
#include <algorithm>

namespace zccrt::cuda {

namespace {

/// A convolution and its matrices. Those in scratch have rows of whole vectors of 16 bytes, of operands with zeros behind an
/// image's own elements: products of 16-bit factors whose rows begin anywhere are several times as slow.
struct ConvMatrices : Conv {
  using Conv::Conv;

  int64_t bytes() const { return cpu::elemBytes(elem); }
  int64_t imageBytes() const { return channels * ins() * bytes(); }
  int64_t resultBytes() const { return filters * outs() * bytes(); }
  int64_t whole(int64_t n) const { return (n * bytes() + kVector - 1) / kVector * kVector / bytes(); }
  /// Elements from row to row in scratch.
  int64_t ld() const { return whole(outs()); }
  /// Of an image's matrix.
  int64_t columns() const { return channels * taps() * ld(); }
  int64_t columnBytes() const { return columns() * bytes(); }
  /// Images that are laid out at once.
  int64_t atOnce() const {
    constexpr int64_t kMostBytes = 64 << 20;
    return std::clamp<int64_t>(kMostBytes / std::max<int64_t>(1, columnBytes()), 1, std::max<int64_t>(1, batch));
  }
  int64_t allColumnBytes() const { return aligned(atOnce() * columnBytes()); }
  /// Of results, or their gradients, that are laid out.
  int64_t allResultBytes() const { return aligned(atOnce() * filters * ld() * bytes()); }
  /// Whether rows of so many elements in 16 bits begin anywhere.
  bool isUnaligned(int64_t n) const { return cpu::isHalf(elem) && n != whole(n); }
  /// 16-bit gradients of weights are summed in f32.
  bool sumsApart() const { return cpu::isHalf(elem) && batch > atOnce(); }
  int64_t weightBytes() const { return sumsApart() ? aligned(filters * perGroup() * taps() * 4) : 0; }

private:
  static constexpr int64_t kVector = 16; ///< bytes
};

/// Where an element of the matrices lies.
struct ColumnStrides {
  int64_t image, row;
};

/// col[image, channel, tap, o] = what the tap of output position o reads: a vector of neighbours along o.
template <typename T> struct LayOut {
  static constexpr int kNeighbours = 16 / sizeof(T);

  ConvMatrices s;
  int64_t ld;
  const T *images;
  T *col;
  ColumnStrides to;

  template <typename I> __device__ void operator()(I e) const {
    const I vectors = I(ld) / kNeighbours, taps = I(s.taps()), line = e / vectors, row = line % (I(s.channels) * taps),
            image = line / (I(s.channels) * taps), channel = row / taps;
    const int first = int(e % vectors) * kNeighbours, outs = int(s.outs()), tap = int(row % taps);
    int o[3] = {first / int(s.out[1] * s.out[2]), first / int(s.out[2]) % int(s.out[1]), first % int(s.out[2])};
    const int t[3] = {tap / int(s.kernel[1] * s.kernel[2]), tap / int(s.kernel[2]) % int(s.kernel[1]), tap % int(s.kernel[2])};
    const T *plane = images + (int64_t(image) * s.channels + channel) * s.ins();
    Vector<T, kNeighbours> v;
    for (int j = 0; j < kNeighbours; ++j) {
      int64_t at = 0;
      bool isInside = first + j < outs;
      for (int a = 0; a < 3; ++a) {
        const int64_t i = o[a] * s.stride[a] + t[a] * s.dilation[a] - s.lo[a];
        isInside &= i >= 0 && i < s.in[a];
        at = at * s.in[a] + i;
      }
      v.at[j] = isInside ? plane[at] : T(0);
      for (int a = 2; a >= 0 && ++o[a] == s.out[a] && a > 0; --a)
        o[a] = 0;
    }
    store(col + image * to.image + row * to.row + first, v);
  }
};

/// Rows of `length` elements, [image, row], and zeros behind them: rows of `ld` elements.
template <typename T> struct LayRows {
  const T *from;
  T *to;
  int64_t rows, length, ld;
  ColumnStrides at;

  template <typename I> __device__ void operator()(I e) const {
    const I i = e % I(ld), line = e / I(ld), row = line % I(rows), image = line / I(rows);
    to[image * at.image + row * at.row + i] = int64_t(i) < length ? from[int64_t(line) * length + i] : T(0);
  }
};

/// Each point of the images is the sum of what its readers' taps are in col.
template <typename T> struct SumTaps {
  ConvMatrices s;
  int64_t ld;
  const T *col;
  T *images;

  template <typename I> __device__ void operator()(I e) const {
    const I i = e % I(s.ins()), channel = e / I(s.ins()); // of all images
    const int is[3] = {int(i / I(s.in[1] * s.in[2])), int(i / I(s.in[2]) % I(s.in[1])), int(i % I(s.in[2]))};
    const T *rows = col + int64_t(channel) * s.taps() * ld;
    Sum<T> sum = 0;
    for (int a = 0; a < s.kernel[0]; ++a) {
      const int z = s.reader(0, is[0], a);
      for (int b = 0; z >= 0 && b < s.kernel[1]; ++b) {
        const int y = s.reader(1, is[1], b);
        for (int c = 0; y >= 0 && c < s.kernel[2]; ++c)
          if (const int x = s.reader(2, is[2], c); x >= 0)
            sum += rows[((a * s.kernel[1] + b) * s.kernel[2] + c) * ld + (z * s.out[1] + y) * s.out[2] + x];
      }
    }
    images[e] = T(sum);
  }
};

} // namespace

/// Images, their columns for some of them.
template <typename T> static void layOut(const ConvMatrices &s, int64_t count, const char *images, char *col, ColumnStrides to) {
  using Columns = LayOut<T>;
  eachIndex(count * s.columns() / Columns::kNeighbours, Columns{s, s.ld(), (const T *)images, (T *)col, to});
}

template <typename T>
static void layRows(int64_t count, int64_t rows, int64_t length, int64_t ld, const char *from, char *to, ColumnStrides at) {
  eachIndex(count * rows * ld, LayRows<T>{(const T *)from, (T *)to, rows, length, ld, at});
}

template <typename T> static void spreadBias(const ConvMatrices s, const T *bias, T *y) {
  eachIndex(s.batch * s.filters * s.outs(), [=] __device__(auto e) {
    using I = decltype(e);
    y[e] = bias[e / I(s.outs()) % I(s.filters)];
  });
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

/// Forward: in scratch are the images' columns, and weights.
static bool laysOutImages(const ConvMatrices &s) { return !s.isPoints || s.isUnaligned(s.outs()); }
static int64_t laidWeightBytes(const ConvMatrices &s) {
  const int64_t k = s.perGroup() * s.taps();
  return s.isUnaligned(k) ? aligned(s.filters * s.whole(k) * s.bytes()) : 0;
}

int64_t convWorkspace(const zccrt_call *c) {
  ConvMatrices s = forwardShape(c);
  return s.isDepthwise ? 0 : laidWeightBytes(s) + (laysOutImages(s) ? s.allColumnBytes() : 0);
}

void convRun(char *arena, const zccrt_call *c) {
  ConvMatrices s = forwardShape(c);
  if (s.isDepthwise)
    return arena ? depthwise(arena, c, s) : void();
  if (!arena)
    return startProducts();
  bool hasBias = hasOperand(c, 2);
  const bool isLaid = laysOutImages(s), laysWeights = laidWeightBytes(s);
  const int64_t m = s.filtersPerGroup(), k = s.perGroup() * s.taps(), n = s.outs();
  const int64_t ldW = laysWeights ? s.whole(k) : k, ldX = isLaid ? s.ld() : n;
  char *y = arena + result(c, 0).offset, *weights = arena + operand(c, 1).offset,
       *columns = arena + c->scratch + laidWeightBytes(s);
  withConvolved(c, [&](auto *type) {
    using T = std::remove_pointer_t<decltype(type)>;
    if (hasBias)
      spreadBias<T>(s, at<T>(arena, operand(c, 2)), (T *)y);
    if (laysWeights)
      layRows<T>(1, s.filters, k, ldW, weights, arena + c->scratch, {0, ldW});
  });
  if (laysWeights)
    weights = arena + c->scratch;
  forPieces(s, [&](int64_t first, int64_t count) {
    const char *x = arena + operand(c, 0).offset + first * s.imageBytes();
    if (isLaid)
      withConvolved(c,
                    [&](auto *type) { layOut<std::remove_pointer_t<decltype(type)>>(s, count, x, columns, {s.columns(), ldX}); });
    multiplyImages(s, count,
                   {.m = m,
                    .n = n,
                    .k = k,
                    .a = {weights, ldW, m * ldW, false},
                    .b = {isLaid ? columns : x, ldX, k * ldX, false},
                    .y = y + first * s.resultBytes(),
                    .ldY = n,
                    .stepY = m * n,
                    .elem = s.elem,
                    .elemY = s.elem,
                    .isAdded = hasBias,
                    .node = c->node},
                   s.channels * s.taps() * ldX, s.filters * n);
  });
}

/// In scratch: the gradients of the images' columns, and results' gradients.
int64_t convGradInputWorkspace(const zccrt_call *c) {
  ConvMatrices s = inputShape(c);
  return s.isDepthwise ? 0 : (s.isPoints ? 0 : s.allColumnBytes()) + (s.isUnaligned(s.outs()) ? s.allResultBytes() : 0);
}

void convGradInputRun(char *arena, const zccrt_call *c) {
  ConvMatrices s = inputShape(c);
  if (s.isDepthwise)
    return arena ? depthwiseGradInput(arena, c, s) : void();
  if (!arena)
    return startProducts();
  const bool isLaid = s.isUnaligned(s.outs());
  const int64_t m = s.perGroup() * s.taps(), k = s.filtersPerGroup(), n = s.outs();
  const int64_t ldY = isLaid ? s.ld() : n, ldX = s.isPoints ? n : s.ld();
  char *columns = arena + c->scratch, *laid = columns + (s.isPoints ? 0 : s.allColumnBytes());
  forPieces(s, [&](int64_t first, int64_t count) {
    const char *dy = arena + operand(c, 0).offset + first * s.resultBytes();
    char *dx = arena + result(c, 0).offset + first * s.imageBytes();
    if (isLaid)
      withConvolved(c, [&](auto *type) {
        layRows<std::remove_pointer_t<decltype(type)>>(count, s.filters, n, ldY, dy, laid, {s.filters * ldY, ldY});
      });
    multiplyImages(s, count,
                   {.m = m,
                    .n = n,
                    .k = k,
                    .a = {arena + operand(c, 1).offset, m, m * k, true},
                    .b = {isLaid ? laid : dy, ldY, k * ldY, false},
                    .y = s.isPoints ? dx : columns,
                    .ldY = ldX,
                    .stepY = m * ldX,
                    .elem = s.elem,
                    .elemY = s.elem,
                    .isAdded = false,
                    .node = c->node},
                   s.filters * ldY, s.channels * s.taps() * ldX);
    if (!s.isPoints)
      withConvolved(c, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        eachIndex(count * s.channels * s.ins(), SumTaps<T>{s, s.ld(), (const T *)columns, (T *)dx});
      });
  });
}

/// In scratch: the sum if it is apart, the images' matrices side by side, the rows of their gradients likewise.
int64_t convGradWeightWorkspace(const zccrt_call *c) {
  ConvMatrices s = weightShape(c);
  if (s.isDepthwise)
    return depthwiseWorkspace(s);
  return s.weightBytes() + s.allColumnBytes() + s.allResultBytes();
}

void convGradWeightRun(char *arena, const zccrt_call *c) {
  ConvMatrices s = weightShape(c);
  if (s.isDepthwise)
    return arena ? depthwiseGradWeight(arena, c, s) : void();
  if (!arena)
    return startProducts();
  char *dw = arena + result(c, 0).offset, *scratch = arena + c->scratch, *sum = s.sumsApart() ? scratch : dw;
  char *col = scratch + s.weightBytes(), *rows = col + s.allColumnBytes();
  int64_t m = s.filtersPerGroup(), n = s.perGroup() * s.taps();
  forPieces(s, [&](int64_t first, int64_t count) {
    const int64_t k = count * s.ld();
    withConvolved(c, [&](auto *type) {
      using T = std::remove_pointer_t<decltype(type)>;
      layOut<T>(s, count, arena + operand(c, 0).offset + first * s.imageBytes(), col, {s.ld(), k});
      layRows<T>(count, s.filters, s.outs(), s.ld(), arena + operand(c, 1).offset + first * s.resultBytes(), rows, {s.ld(), k});
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
