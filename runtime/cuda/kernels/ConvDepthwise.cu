// Convolutions each of whose filters sees one channel: no product of matrices, but windows over a plane. Their extents decide the
// order of every sum.
#include "runtime/cuda/Conv.h"
#include "runtime/cuda/Loops.h"

namespace zccrt::cuda {

namespace {

constexpr int kRun = 4;  ///< results of a row that a thread has
constexpr int kTaps = 8; ///< taps of a row whose sums a thread has

/// to[plane, o] = bias[plane] + the sum of w[tap] from[source, o * stride + tap * dilation - lo] over the plane's sources and the
/// taps: the forward, where several filters may have one source; and the gradient of an input without strides, whose sources are
/// its channel's filters, with the taps reversed.
template <typename T> struct Slide {
  cpu::ConvAxes s;        ///< from `in` to `out`
  int planes;             ///< of an image's results
  int sources, perSource; ///< planes that one reads; that read one
  bool isReversed;
  const T *from, *w, *bias;
  T *to;

  ZCC_ANYWHERE int64_t runs() const { return (s.out[2] + kRun - 1) / kRun; } ///< of a row

  /// Run e of all images' planes.
  template <typename I> __device__ void operator()(I e) const {
    const I row = e / I(runs()), column = e % I(runs()) * kRun, plane = row / I(s.out[0] * s.out[1]);
    const I image = plane / I(planes), channel = plane % I(planes);
    const int d = int(row / I(s.out[1]) % I(s.out[0])), h = int(row % I(s.out[1]));
    Sum<T> sums[kRun];
    for (int r = 0; r < kRun; ++r)
      sums[r] = bias ? Sum<T>(bias[channel]) : Sum<T>(0);
    for (int j = 0; j < sources; ++j) {
      const int64_t source = int64_t(channel) / perSource * sources + j, ofImage = int64_t(planes) / perSource * sources;
      addPlane(from + (image * ofImage + source) * s.ins(), w + (isReversed ? source : int64_t(channel)) * s.taps(), d, h,
               int(column), sums);
    }
    T *y = to + int64_t(row) * s.out[2] + column;
    for (int r = 0; r < kRun; ++r)
      if (column + r < s.out[2])
        y[r] = T(sums[r]);
  }

private:
  __device__ void addPlane(const T *x, const T *taps, int d, int h, int column, Sum<T> *sums) const {
    const int last = int(s.taps()) - 1;
    int tap = 0;
    for (int a = 0; a < s.kernel[0]; ++a)
      for (int b = 0; b < s.kernel[1]; ++b, tap += int(s.kernel[2])) {
        const int64_t z = d * s.stride[0] + a * s.dilation[0] - s.lo[0], y = h * s.stride[1] + b * s.dilation[1] - s.lo[1];
        if (z < 0 || z >= s.in[0] || y < 0 || y >= s.in[1])
          continue;
        addRow(x + (z * s.in[1] + y) * s.in[2], isReversed ? taps + last - tap : taps + tap, isReversed ? -1 : 1, column, sums);
      }
  }
  /// Where neighbours' windows overlap, each point of the row is read once.
  __device__ void addRow(const T *x, const T *taps, int step, int column, Sum<T> *sums) const {
    const int first = int(column * s.stride[2] - s.lo[2]), kernel = int(s.kernel[2]), dilation = int(s.dilation[2]),
              stride = int(s.stride[2]), in = int(s.in[2]);
    auto read = [&](int i) { return i >= 0 && i < in ? Sum<T>(x[i]) : Sum<T>(0); };
    Sum<T> seen[kRun];
    if (stride == 1 && dilation == 1) {
      for (int r = 1; r < kRun; ++r)
        seen[r] = read(first + r - 1);
      for (int t = 0; t < kernel; ++t) {
        for (int r = 1; r < kRun; ++r)
          seen[r - 1] = seen[r];
        seen[kRun - 1] = read(first + t + kRun - 1);
        for (int r = 0; r < kRun; ++r)
          sums[r] += Sum<T>(taps[t * step]) * seen[r];
      }
      return;
    }
    for (int t = 0; t < kernel; ++t)
      for (int r = 0; r < kRun; ++r)
        sums[r] += Sum<T>(taps[t * step]) * read(first + r * stride + t * dilation);
  }
};

/// dx of a convolution with strides: a thread for each element goes through the taps that read it.
template <typename T> struct Spread {
  Conv s;
  const T *dy, *w;
  T *dx;

  template <typename I> __device__ void operator()(I e) const {
    const I ins = I(s.ins()), plane = e / ins, i = e % ins, image = plane / I(s.channels), channel = plane % I(s.channels);
    const int is[3] = {int(i / I(s.in[1] * s.in[2])), int(i / I(s.in[2]) % I(s.in[1])), int(i % I(s.in[2]))};
    Sum<T> sum = 0;
    for (int64_t f = channel * s.filtersPerGroup(), j = 0; j < s.filtersPerGroup(); ++j, ++f) {
      const T *g = dy + (int64_t(image) * s.filters + f) * s.outs(), *taps = w + f * s.taps();
      for (int a = 0; a < s.kernel[0]; ++a)
        for (int b = 0; b < s.kernel[1]; ++b) {
          const int z = s.reader(0, is[0], a), y = s.reader(1, is[1], b);
          for (int c = 0; z >= 0 && y >= 0 && c < s.kernel[2]; ++c)
            if (const int x = s.reader(2, is[2], c); x >= 0)
              sum += Sum<T>(taps[(a * s.kernel[1] + b) * s.kernel[2] + c]) * Sum<T>(g[(z * s.out[1] + y) * s.out[2] + x]);
        }
    }
    dx[e] = T(sum);
  }
};

/// How the sums of a weights' gradient are parted: a block has some taps of a row of a filter, and some images.
struct Gather {
  int64_t rows, runs, images, parts;

  explicit Gather(const Conv &s) : rows(s.kernel[0] * s.kernel[1]), runs((s.kernel[2] + kTaps - 1) / kTaps) {
    constexpr int64_t kWanted = 1024; ///< blocks that keep a large device busy
    const int64_t batch = std::max<int64_t>(1, s.batch),
                  most = std::max<int64_t>(1, kWanted / std::max<int64_t>(1, s.filters * rows * runs));
    images = (batch + most - 1) / most;
    parts = (batch + images - 1) / images;
  }
  int64_t blocks(const Conv &s) const { return parts * s.filters * rows * runs; }
};

} // namespace

/// parts[part, filter, tap], each over its images.
template <typename I, typename T>
static __global__ void gatherTaps(const Conv s, const Gather g, const T *x, const T *dy, Sum<T> *parts) {
  const int64_t run = blockIdx.x % g.runs, row = blockIdx.x / g.runs % g.rows,
                filter = blockIdx.x / (g.runs * g.rows) % s.filters, part = blockIdx.x / (g.runs * g.rows * s.filters),
                first = run * kTaps;
  const int64_t begin = part * g.images, images = s.batch - begin < g.images ? s.batch - begin : g.images;
  const int taps = int(s.kernel[2] - first < kTaps ? s.kernel[2] - first : kTaps);
  const int64_t a = row / s.kernel[1] * s.dilation[0] - s.lo[0], b = row % s.kernel[1] * s.dilation[1] - s.lo[1],
                c = first * s.dilation[2] - s.lo[2];
  const I outs = I(s.outs());
  Sum<T> sums[kTaps] = {};
  for (I q = I(threadIdx.x); q < I(images) * outs; q += I(kBlock)) {
    const int64_t image = begin + q / outs;
    const I o = q % outs;
    const int64_t z = o / I(s.out[1] * s.out[2]) * s.stride[0] + a, y = o / I(s.out[2]) % I(s.out[1]) * s.stride[1] + b,
                  at = o % I(s.out[2]) * s.stride[2] + c;
    if (z < 0 || z >= s.in[0] || y < 0 || y >= s.in[1])
      continue;
    const T *from = x + ((image * s.channels + filter / s.filtersPerGroup()) * s.ins() + (z * s.in[1] + y) * s.in[2]);
    const Sum<T> gradient = Sum<T>(dy[(image * s.filters + filter) * s.outs() + o]);
    for (int t = 0; t < kTaps; ++t)
      if (const int64_t i = at + t * s.dilation[2]; t < taps && i >= 0 && i < s.in[2])
        sums[t] += gradient * Sum<T>(from[i]);
  }
  for (int t = 0; t < kTaps; ++t) {
    const Sum<T> sum = blockReduce(sums[t], [](Sum<T> l, Sum<T> r) { return l + r; });
    if (threadIdx.x == 0 && t < taps)
      parts[(part * s.filters + filter) * s.taps() + row * s.kernel[2] + first + t] = sum;
  }
}

template <typename T> static void addParts(const Sum<T> *parts, int64_t count, int64_t n, T *to) {
  each(n, [=] __device__(int64_t i) {
    Sum<T> sum = 0;
    for (int64_t p = 0; p < count; ++p)
      sum += parts[p * n + i];
    to[i] = T(sum);
  });
}

void depthwise(char *arena, const zccrt_call *c, const Conv &s) {
  withConvolved(c, [&](auto *type) {
    using T = std::remove_pointer_t<decltype(type)>;
    Slide<T> f{.s = s,
               .planes = int(s.filters),
               .sources = 1,
               .perSource = int(s.filtersPerGroup()),
               .isReversed = false,
               .from = at<T>(arena, operand(c, 0)),
               .w = at<T>(arena, operand(c, 1)),
               .bias = hasOperand(c, 2) ? at<T>(arena, operand(c, 2)) : nullptr,
               .to = at<T>(arena, result(c, 0))};
    eachIndex(s.batch * s.filters * s.out[0] * s.out[1] * f.runs(), f);
  });
}

/// Read the other way round, results are inputs and the padding is what windows reach beyond the first result.
static cpu::ConvAxes backward(cpu::ConvAxes s) {
  for (int a = 0; a < 3; ++a) {
    std::swap(s.in[a], s.out[a]);
    s.lo[a] = (s.kernel[a] - 1) * s.dilation[a] - s.lo[a];
  }
  return s;
}

void depthwiseGradInput(char *arena, const zccrt_call *c, const Conv &s) {
  withConvolved(c, [&](auto *type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const T *dy = at<T>(arena, operand(c, 0)), *w = at<T>(arena, operand(c, 1));
    T *dx = at<T>(arena, result(c, 0));
    if (s.stride[0] * s.stride[1] * s.stride[2] != 1)
      return eachIndex(s.batch * s.channels * s.ins(), Spread<T>{s, dy, w, dx});
    Slide<T> f{.s = backward(s),
               .planes = int(s.channels),
               .sources = int(s.filtersPerGroup()),
               .perSource = 1,
               .isReversed = true,
               .from = dy,
               .w = w,
               .bias = nullptr,
               .to = dx};
    eachIndex(s.batch * s.channels * s.in[0] * s.in[1] * f.runs(), f);
  });
}

int64_t depthwiseWorkspace(const Conv &s) { return Gather(s).parts * s.filters * s.taps() * (s.elem == ZCCRT_F64 ? 8 : 4); }

void depthwiseGradWeight(char *arena, const zccrt_call *c, const Conv &s) {
  withConvolved(c, [&](auto *type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const T *x = at<T>(arena, operand(c, 0)), *dy = at<T>(arena, operand(c, 1));
    const Gather g(s);
    Sum<T> *parts = scratchAt<Sum<T>>(arena, c);
    if (areShort(s.batch * s.outs()))
      ZCC_LAUNCH((gatherTaps<unsigned, T>), unsigned(g.blocks(s)), kBlock, s, g, x, dy, parts);
    else
      ZCC_LAUNCH((gatherTaps<int64_t, T>), unsigned(g.blocks(s)), kBlock, s, g, x, dy, parts);
    addParts<T>(parts, g.parts, s.filters * s.taps(), at<T>(arena, result(c, 0)));
  });
}

} // namespace zccrt::cuda
