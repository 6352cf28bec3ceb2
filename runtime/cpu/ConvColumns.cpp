// Convolutions as products with columns of the input. Of the gradient of weights a block of pixels (of all images) goes at a
// time: oneDNN's kernels keep the columns of a whole image and a copy of the gradient for each thread; here threads share the
// gradient by channels, each with the columns of its own. Of the others a block of channels: oneDNN's kernels copy the weights
// into blocks. Bits depend on the extents alone.
#include "runtime/cpu/ConvColumns.h"
#include "runtime/cpu/Parallel.h"
#include <cstring>
#include <omp.h>

using namespace dnnl;

namespace zccrt::cpu {

namespace {

constexpr int64_t kPixels = 256; ///< of a block
constexpr int64_t kRows = 288;   ///< of columns, a thread's

struct ColumnBlocks : ConvAxes {
  int64_t batch, channels, filters;

  explicit ColumnBlocks(const ConvShape &s) : ConvAxes(s), batch(s.batch), channels(s.channels), filters(s.filters) {}

  int64_t pixels() const { return batch * outs(); }
  int64_t block() const { return std::min(kPixels, pixels()); }
  /// Channels whose columns a thread makes together.
  int64_t together() const { return std::max<int64_t>(1, std::min(kRows / taps(), channels / 4)); }
  int64_t gradBytes() const { return aligned(filters * block() * int64_t(sizeof(float))); }
  int64_t columnBytes() const { return aligned(together() * taps() * block() * int64_t(sizeof(float))); }
};

/// Calls f(image, first, length, at) for the pieces of pixels [begin, end) that lie in one image: `first` of its pixels, at `at`
/// of the block.
template <typename F> void forImages(const ColumnBlocks &b, int64_t begin, int64_t end, F f) {
  for (int64_t p = begin, n; p < end; p += n) {
    n = std::min(end, (p / b.outs() + 1) * b.outs()) - p;
    f(p / b.outs(), p % b.outs(), n, p - begin);
  }
}

/// What a tap of a channel reads for result positions [x, end) of one line: `line` of the input, null outside of it.
void takeLine(const ColumnBlocks &b, const float *line, int64_t tap, int64_t x, int64_t end, float *to) {
  const int64_t s = b.stride[2], move = tap * b.dilation[2] - b.lo[2];
  int64_t first = move >= 0 ? 0 : (-move + s - 1) / s, last = move >= b.in[2] ? 0 : (b.in[2] - 1 - move) / s + 1;
  first = std::clamp(first, x, end), last = std::clamp(last, first, end);
  if (!line)
    first = last = end;
  std::fill(to, to + (first - x), 0.0f);
  if (s == 1)
    std::copy(line + first + move, line + last + move, to + (first - x));
  else
    for (int64_t i = first; i < last; ++i)
      to[i - x] = line[i * s + move];
  std::fill(to + (last - x), to + (end - x), 0.0f);
}

/// `n` pixels of an image, from `first` on, as one tap of a channel's plane reads them.
void takePixels(const ColumnBlocks &b, const float *plane, int64_t tap, int64_t first, int64_t n, float *to) {
  const int64_t t2 = tap % b.kernel[2], t1 = tap / b.kernel[2] % b.kernel[1], t0 = tap / b.kernel[2] / b.kernel[1];
  for (int64_t o = first; o < first + n;) {
    const int64_t x = o % b.out[2], length = std::min(b.out[2] - x, first + n - o);
    const int64_t i1 = o / b.out[2] % b.out[1] * b.stride[1] + t1 * b.dilation[1] - b.lo[1];
    const int64_t i0 = o / b.out[2] / b.out[1] * b.stride[0] + t0 * b.dilation[0] - b.lo[0];
    const bool inside = i0 >= 0 && i0 < b.in[0] && i1 >= 0 && i1 < b.in[1];
    takeLine(b, inside ? plane + (i0 * b.in[1] + i1) * b.in[2] : nullptr, t2, x, x + length, to);
    o += length, to += length;
  }
}

/// `n` elements of a channel as a table has them, 0 in the padding; `plane`: the channel in the first image.
template <typename T> void takeReads(const int32_t *reads, int64_t n, const T *plane, T *to) {
  for (int64_t i = 0; i < n; ++i)
    to[i] = reads[i] < 0 ? T(0) : plane[reads[i]];
}

/// A channel's columns for pixels [begin, end), a row a tap; `reads`: as readBy() has it, or empty.
void takeColumns(const ColumnBlocks &b, const std::vector<int32_t> &reads, const float *x, int64_t channel, int64_t begin,
                 int64_t end, float *to) {
  for (int64_t tap = 0; tap < b.taps(); ++tap, to += end - begin)
    if (!reads.empty())
      takeReads(&reads[size_t(tap * b.pixels() + begin)], end - begin, x + channel * b.ins(), to);
    else
      forImages(b, begin, end, [&](int64_t image, int64_t first, int64_t n, int64_t at) {
        takePixels(b, x + (image * b.channels + channel) * b.ins(), tap, first, n, to + at);
      });
}

/// Rows of pixels [begin, end) of the result's gradient, one a filter.
void takeGrad(const ColumnBlocks &b, const float *dy, int64_t begin, int64_t end, float *grad, int threads) {
  forEach(b.filters, threads, [&](int64_t filter) {
    forImages(b, begin, end, [&](int64_t image, int64_t first, int64_t length, int64_t at) {
      const float *from = dy + (image * b.filters + filter) * b.outs() + first;
      float *to = grad + filter * (end - begin) + at;
      for (int64_t i = 0; i < length; ++i) // of few, mostly
        to[i] = from[i];
    });
  });
}

/// All images' pixels of a channel, `plane` an image, where `channels` lie in blocks.
void takeChannel(const uint16_t *x, int64_t channel, int64_t images, int64_t channels, int64_t plane, int64_t block,
                 uint16_t *to) {
  x += channel / block * plane * block + channel % block;
  for (int64_t image = 0; image < images; ++image, x += channels * plane)
    for (int64_t i = 0; i < plane; ++i)
      *to++ = x[i * block];
}

/// For each tap and each pixel of all images: which element it reads, from where the first image's channel begins; -1 in the
/// padding. `apart`: elements from that channel in one image to the next.
std::vector<int32_t> readBy(const ConvShape &s, int64_t apart) {
  const ColumnBlocks b(s);
  std::vector<int32_t> all(size_t(b.taps() * b.pixels()), -1);
  forTaps(s, [&](int64_t tap, int64_t in, int64_t out) {
    for (int64_t image = 0; image < b.batch; ++image)
      all[tap * b.pixels() + image * b.outs() + out] = int32_t(image * apart + in);
  });
  return all;
}

matmul::primitive_desc makeColumnProduct(const ColumnBlocks &b, int32_t elem) {
  const auto type = dnnlType(elem);
  const int64_t pixels = b.pixels(), width = b.channels * b.taps();
  return makeProduct(describeMatrix(b.filters, pixels, type, pixels),
                     describeMatrix(pixels, width, type, pixels, /*isTransposed=*/true),
                     describeMatrix(b.filters, width, type, width), /*adds=*/false);
}

} // namespace

bool fitsTable(const ConvShape &s) {
  constexpr int64_t kMostReads = 1 << 18; // which the process keeps
  const ColumnBlocks b(s);
  return b.taps() * b.pixels() <= kMostReads && b.batch * b.channels * b.ins() <= INT32_MAX;
}

BlockedGrad::BlockedGrad(const ConvShape &s) : shape_(s) {
  constexpr int64_t kShortLine = 16; // of results; longer ones are copied in less time than a table is followed
  const ColumnBlocks b(s);
  if (b.out[2] <= kShortLine && fitsTable(s))
    reads_ = readBy(s, b.channels * b.ins());
}

int64_t BlockedGrad::scratchBytes(const ConvShape &s, int threads) {
  ColumnBlocks b(s);
  return b.gradBytes() + b.columnBytes() * threads;
}

void BlockedGrad::run(char *arena, const zccrt_call *c, char *scratch) const {
  const ColumnBlocks b(shape_);
  const float *x = at<float>(arena, operand(c, 0)), *dy = at<float>(arena, operand(c, 1));
  float *dw = at<float>(arena, result(c, 0));
  const int64_t together = b.together(), row = b.channels * b.taps();
  const int threads = c->threads;
  auto *grad = reinterpret_cast<float *>(scratch);
  for (int64_t begin = 0, end; begin < b.pixels(); begin = end) {
    end = std::min(begin + kPixels, b.pixels());
    const int64_t n = end - begin;
    takeGrad(b, dy, begin, end, grad, threads);
    forEach((b.channels + together - 1) / together, threads, [&](int64_t part) {
      const int64_t channel = part * together, channels = std::min(together, b.channels - channel), width = channels * b.taps();
      auto *columns =
          reinterpret_cast<float *>(scratch + b.gradBytes() + (threads > 1 ? omp_get_thread_num() : 0) * b.columnBytes());
      for (int64_t ch = 0; ch < channels; ++ch)
        takeColumns(b, reads_, x, channel + ch, begin, end, columns + ch * b.taps() * n);
      expectMultiplied(dnnl_sgemm('N', 'T', b.filters, width, n, 1.0f, grad, n, columns, n, begin ? 1.0f : 0.0f,
                                  dw + channel * b.taps(), row));
    });
  }
}

// ---- few pixels

namespace {

constexpr int64_t kShared = 1 << 20; ///< bytes of columns that threads share
constexpr int64_t kFilters = 128;    ///< a thread's, at once

/// Channels whose columns are there at once.
int64_t sharedChannels(const ColumnBlocks &b) {
  return std::clamp<int64_t>(kShared / (b.taps() * b.pixels() * int64_t(sizeof(float))), 1, b.channels);
}

int64_t rowsBytes(int64_t rows, const ColumnBlocks &b) { return aligned(rows * b.pixels() * int64_t(sizeof(float))); }

/// c[m, n] = or += a[m, k] b[k, n]; `across`: a is [k, m].
void multiply(bool across, int64_t m, int64_t n, int64_t k, const float *a, int64_t lda, const float *b, bool adds, float *c) {
  expectMultiplied(dnnl_sgemm(across ? 'T' : 'N', 'N', m, n, k, 1.0f, a, lda, b, n, adds ? 1.0f : 0.0f, c, n));
}

/// Rows of pixels, one a filter, to where the result has them.
void leave(const ColumnBlocks &b, const float *rows, const float *bias, float *y, int threads) {
  forEach(b.filters, threads, [&](int64_t filter) {
    for (int64_t image = 0; image < b.batch; ++image) {
      const float *from = rows + filter * b.pixels() + image * b.outs();
      float *to = y + (image * b.filters + filter) * b.outs();
      for (int64_t i = 0; i < b.outs(); ++i)
        to[i] = from[i] + (bias ? bias[filter] : 0.0f);
    }
  });
}

/// The sum of columns where they were read, of one channel.
void scatter(const ColumnBlocks &b, const std::vector<int32_t> &reads, const float *columns, float *x) {
  for (int64_t image = 0; image < b.batch; ++image)
    std::fill_n(x + image * b.channels * b.ins(), b.ins(), 0.0f);
  for (size_t i = 0; i < reads.size(); ++i)
    if (reads[i] >= 0)
      x[reads[i]] += columns[i];
}

/// y = w columns, a block of channels after the other.
void forwardByColumns(const ColumnBlocks &b, const std::vector<int32_t> &reads, const float *x, const float *w, float *columns,
                      float *rows, int threads) {
  const int64_t width = b.channels * b.taps(), pixels = b.pixels(), block = sharedChannels(b), row = b.taps() * pixels;
  for (int64_t first = 0, n; first < b.channels; first += n) {
    n = std::min(block, b.channels - first);
    forEach(n, threads,
            [&](int64_t channel) { takeReads(reads.data(), row, x + (first + channel) * b.ins(), columns + channel * row); });
    forEach((b.filters + kFilters - 1) / kFilters, threads, [&](int64_t part) {
      const int64_t filter = part * kFilters, filters = std::min(kFilters, b.filters - filter);
      multiply(false, filters, pixels, n * b.taps(), w + filter * width + first * b.taps(), width, columns, first > 0,
               rows + filter * pixels);
    });
  }
}

/// dx: for each thread's channels, columns = w^T dy, added up where they were read.
void gradByColumns(const ColumnBlocks &b, const std::vector<int32_t> &reads, const float *grad, const float *w, char *columns,
                   float *dx, int threads) {
  const int64_t width = b.channels * b.taps(), pixels = b.pixels(), together = b.together();
  forEach((b.channels + together - 1) / together, threads, [&](int64_t part) {
    const int64_t channel = part * together, channels = std::min(together, b.channels - channel);
    const int thread = threads > 1 ? omp_get_thread_num() : 0;
    auto *own = reinterpret_cast<float *>(columns + thread * rowsBytes(together * b.taps(), b));
    multiply(true, channels * b.taps(), pixels, b.filters, w + channel * b.taps(), width, grad, false, own);
    for (int64_t i = 0; i < channels; ++i)
      scatter(b, reads, own + i * b.taps() * pixels, dx + (channel + i) * b.ins());
  });
}

} // namespace

FewPixels::FewPixels(const ConvShape &s) : shape_(s), reads_(readBy(s, s.channels * ColumnBlocks(s).ins())) {}

int64_t FewPixels::scratchBytes(ConvKind kind, const ConvShape &s, int threads) {
  const ColumnBlocks b(s);
  const int64_t columns =
      kind == ConvKind::Forward ? rowsBytes(sharedChannels(b) * b.taps(), b) : rowsBytes(b.together() * b.taps(), b) * threads;
  return rowsBytes(b.filters, b) + columns;
}

void FewPixels::run(ConvKind kind, char *arena, const zccrt_call *c, char *scratch) const {
  const ColumnBlocks b(shape_);
  const float *w = at<float>(arena, operand(c, 1));
  auto *rows = reinterpret_cast<float *>(scratch);
  char *columns = scratch + rowsBytes(b.filters, b);
  if (kind == ConvKind::Forward) {
    forwardByColumns(b, reads_, at<float>(arena, operand(c, 0)), w, reinterpret_cast<float *>(columns), rows, c->threads);
    return leave(b, rows, hasOperand(c, 2) ? at<float>(arena, operand(c, 2)) : nullptr, at<float>(arena, result(c, 0)),
                 c->threads);
  }
  takeGrad(b, at<float>(arena, operand(c, 0)), 0, b.pixels(), rows, c->threads);
  gradByColumns(b, reads_, rows, w, columns, at<float>(arena, result(c, 0)), c->threads);
}

// ---- 16 bits

ColumnProduct::ColumnProduct(const ConvShape &s, int32_t elem, int threads)
    : shape_(s), reads_(readBy(s, (s.xBlock > 1 ? 1 : s.channels) * ColumnBlocks(s).ins())),
      desc_(makeColumnProduct(ColumnBlocks(s), elem)), gradBytes_(aligned(int64_t(desc_.src_desc().get_size()))),
      columnBytes_(aligned(int64_t(desc_.weights_desc().get_size()))),
      channelBytes_(s.xBlock > 1 ? aligned(s.batch * ColumnBlocks(s).ins() * int64_t(sizeof(uint16_t))) : 0), threads_(threads) {}

void ColumnProduct::prepare() { product_ = productPrimitive(desc_); }

int64_t ColumnProduct::scratchBytes() const {
  return gradBytes_ + columnBytes_ + threads_ * channelBytes_ + aligned(int64_t(desc_.scratchpad_desc().get_size()));
}

void ColumnProduct::run(char *arena, const zccrt_call *c, char *scratch) {
  const ColumnBlocks b(shape_);
  const int64_t pixels = b.pixels(), row = b.taps() * pixels;
  auto *grad = reinterpret_cast<uint16_t *>(scratch), *columns = reinterpret_cast<uint16_t *>(scratch + gradBytes_);
  char *ofThreads = scratch + gradBytes_ + columnBytes_;
  forEach(b.filters, c->threads, [&](int64_t filter) {
    takeChannel(at<uint16_t>(arena, operand(c, 1)), filter, b.batch, b.filters, b.outs(), shape_.yBlock, grad + filter * pixels);
  });
  forEach(b.channels, c->threads, [&](int64_t channel) {
    const uint16_t *x = at<uint16_t>(arena, operand(c, 0)) + channel * b.ins();
    if (channelBytes_) {
      auto *own = reinterpret_cast<uint16_t *>(ofThreads + omp_get_thread_num() * channelBytes_);
      takeChannel(at<uint16_t>(arena, operand(c, 0)), channel, b.batch, b.channels, b.ins(), shape_.xBlock, own);
      x = own;
    }
    takeReads(reads_.data(), row, x, columns + channel * row);
  });
  product_.bind(0, grad);
  product_.bind(1, columns);
  product_.bind(2, arena + result(c, 0).offset);
  product_.run(ofThreads + threads_ * channelBytes_);
}

} // namespace zccrt::cpu
