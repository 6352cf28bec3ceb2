// The gradient of a depthwise convolution's weights, for which oneDNN's kernels take up to forty times as long as for the
// forward. A filter's taps are scalar products of the result's gradient with the input moved by the tap, so both are laid out
// such that a move is an offset: the gradient's rows as far apart as the input's, zeros in between; the input with its padding
// and, of a convolution with strides, parted into an image a phase. A NaN or an infinity of the input may reach taps that do not
// read it.
#include "runtime/cpu/ConvShape.h"
#include "runtime/cpu/Lanes.h"
#include "runtime/cpu/Number.h"
#include <cstring>

namespace zccrt::cpu {

namespace {

constexpr int64_t kTogether = 8; ///< taps whose sums are in registers
constexpr int64_t kChunk = 2048; ///< elements of both that stay in the first cache

int64_t upToLanes(int64_t n) { return (n + kLanes - 1) / kLanes * kLanes; }

/// Extents of the copies of one plane, three axes, in floats.
struct Moves : ConvAxes {
  int64_t side[3]; ///< of a phase's image
  int64_t phases = 1, image = 1;

  explicit Moves(const ConvShape &s) : ConvAxes(s) {
    for (int a = 0; a < 3; ++a) {
      side[a] = out[a] + (kernel[a] - 1) * dilation[a] / stride[a];
      phases *= stride[a];
      image *= side[a];
    }
  }

  int64_t gradFloats() const { return upToLanes(((out[0] - 1) * side[1] + out[1] - 1) * side[2] + out[2]); }
  /// Vectors run over an image's end: into the next, or into the floats behind the last.
  int64_t inputFloats() const { return upToLanes(phases * image + kLanes); }
  int64_t sumFloats() const { return upToLanes(taps()) * kLanes; }
  int64_t threadBytes() const { return (gradFloats() + inputFloats() + sumFloats()) * int64_t(sizeof(float)); }
  int64_t tableBytes() const { return upToLanes(taps()) * int64_t(sizeof(int64_t)); }

  /// Where a tap's products start in the phases' images.
  int64_t offset(int64_t tap) const {
    int64_t phase = 0, move = 0, at[3];
    for (int a = 2; a >= 0; --a) {
      at[a] = tap % kernel[a] * dilation[a];
      tap /= kernel[a];
    }
    for (int a = 0; a < 3; ++a) {
      phase = phase * stride[a] + at[a] % stride[a];
      move = move * side[a] + at[a] / stride[a];
    }
    return phase * image + move;
  }
};

/// Positions of one axis of a phase that lie in the input: [first, end).
struct Inside {
  int64_t first, end;
  Inside(const Moves &m, int a, int64_t phase) {
    int64_t at = phase - m.lo[a], s = m.stride[a]; // of position 0
    first = std::min(at >= 0 ? 0 : (-at + s - 1) / s, m.side[a]);
    end = std::max(first, std::min(m.side[a], (m.in[a] - 1 - at + s) / s));
  }
};

template <typename T> ZCC_INLINE inline void takeRow(const T *__restrict from, int64_t step, float *__restrict to, int64_t n) {
  if (step == 1)
    for (int64_t i = 0; i < n; ++i)
      to[i] = float(from[i]);
  else
    for (int64_t i = 0; i < n; ++i)
      to[i] = float(from[i * step]);
}

/// The input's plane into the images of its phases, whose other elements stay zero.
template <typename T> ZCC_INLINE inline void takeInput(const Moves &m, const T *x, float *to) {
  for (int64_t p = 0; p < m.phases; ++p, to += m.image) {
    int64_t p2 = p % m.stride[2], p1 = p / m.stride[2] % m.stride[1], p0 = p / m.stride[2] / m.stride[1];
    Inside d(m, 0, p0), h(m, 1, p1), w(m, 2, p2);
    for (int64_t i = d.first; i < d.end; ++i)
      for (int64_t j = h.first; j < h.end; ++j) {
        int64_t row = (i * m.stride[0] + p0 - m.lo[0]) * m.in[1] + j * m.stride[1] + p1 - m.lo[1];
        takeRow(x + row * m.in[2] + w.first * m.stride[2] + p2 - m.lo[2], m.stride[2],
                to + (i * m.side[1] + j) * m.side[2] + w.first, w.end - w.first);
      }
  }
}

template <typename T> ZCC_INLINE inline void takeGrad(const Moves &m, const T *dy, float *to) {
  for (int64_t i = 0; i < m.out[0]; ++i)
    for (int64_t j = 0; j < m.out[1]; ++j)
      takeRow(dy + (i * m.out[1] + j) * m.out[2], 1, to + (i * m.side[1] + j) * m.side[2], m.out[2]);
}

/// Adds the products of a chunk to the sums of `N` taps, a lane each: as many lanes at once as V has.
template <typename V, int64_t N>
ZCC_INLINE inline void addTaps(const float *grad, const float *input, const int64_t *offsets, float *sums, int64_t n) {
  for (int64_t lane = 0; lane < kLanes; lane += kWidth<V>, grad += kWidth<V>, input += kWidth<V>, sums += kWidth<V>) {
    V sum[N], g, x;
    for (int64_t t = 0; t < N; ++t)
      memcpy(&sum[t], sums + t * kLanes, sizeof(V));
    for (int64_t i = 0; i < n; i += kLanes) {
      memcpy(&g, grad + i, sizeof(V));
      for (int64_t t = 0; t < N; ++t) {
        memcpy(&x, input + offsets[t] + i, sizeof(V));
        sum[t] += g * x;
      }
    }
    for (int64_t t = 0; t < N; ++t)
      memcpy(sums + t * kLanes, &sum[t], sizeof(V));
  }
}

template <typename V>
ZCC_INLINE inline void addAllTaps(const Moves &m, const float *grad, const float *input, const int64_t *offsets, float *sums) {
  for (int64_t at = 0, n = m.gradFloats(); at < n; at += kChunk) {
    int64_t length = std::min(kChunk, n - at), tap = 0;
    for (; tap + kTogether <= m.taps(); tap += kTogether)
      addTaps<V, kTogether>(grad + at, input + at, offsets + tap, sums + tap * kLanes, length);
    for (; tap < m.taps(); ++tap)
      addTaps<V, 1>(grad + at, input + at, offsets + tap, sums + tap * kLanes, length);
  }
}

/// One plane's share of a filter's gradient.
template <typename T>
ZCC_INLINE inline void addPlane(const Moves &m, const T *x, const T *dy, const int64_t *offsets, float *grad, float *input,
                                float *sums) {
  takeGrad(m, dy, grad);
  takeInput(m, x, input);
  hasWideVectors() ? addAllTaps<Lanes>(m, grad, input, offsets, sums) : addAllTaps<HalfLanes>(m, grad, input, offsets, sums);
}

ZCC_CLONES void addPlaneOf(const Moves &m, const float *x, const float *dy, const int64_t *offsets, float *grad, float *input,
                           float *sums) {
  addPlane(m, x, dy, offsets, grad, input, sums);
}
ZCC_CLONES void addPlaneOf(const Moves &m, const Bf16 *x, const Bf16 *dy, const int64_t *offsets, float *grad, float *input,
                           float *sums) {
  addPlane(m, x, dy, offsets, grad, input, sums);
}
ZCC_CLONES void addPlaneOf(const Moves &m, const F16 *x, const F16 *dy, const int64_t *offsets, float *grad, float *input,
                           float *sums) {
  addPlane(m, x, dy, offsets, grad, input, sums);
}

template <typename T> void gradWeight(const ConvShape &s, const T *x, const T *dy, T *dw, char *scratch, int threads) {
  Moves m(s);
  auto *offsets = reinterpret_cast<int64_t *>(scratch);
  for (int64_t tap = 0; tap < m.taps(); ++tap)
    offsets[tap] = m.offset(tap);
  auto *memory = reinterpret_cast<float *>(scratch + m.tableBytes());
  int64_t each = m.threadBytes() / int64_t(sizeof(float));
  forEach(threads, threads, [&](int64_t t) { std::fill_n(memory + t * each, each, 0.0f); });
  forEach(s.filters, threads, [&](int64_t filter) {
    float *grad = memory + (threads > 1 ? omp_get_thread_num() : 0) * each, *input = grad + m.gradFloats();
    float *sums = input + m.inputFloats();
    std::fill_n(sums, m.sumFloats(), 0.0f);
    int64_t channel = filter / (s.filters / s.channels);
    for (int64_t n = 0; n < s.batch; ++n)
      addPlaneOf(m, x + (n * s.channels + channel) * m.ins(), dy + (n * s.filters + filter) * m.outs(), offsets, grad, input,
                 sums);
    for (int64_t tap = 0; tap < m.taps(); ++tap)
      dw[filter * m.taps() + tap] = T(sumOfLanes(sums + tap * kLanes));
  });
}

} // namespace

int64_t depthwiseWorkspace(const ConvShape &s, int threads) {
  Moves m(s);
  return m.tableBytes() + m.threadBytes() * threads;
}

void depthwiseGradWeight(char *arena, const zccrt_call *c, const ConvShape &s) {
  withFloat(operand(c, 0).elem, [&](auto *type) {
    using T = std::remove_pointer_t<decltype(type)>;
    if constexpr (!std::is_same_v<T, double>)
      gradWeight(s, at<T>(arena, operand(c, 0)), at<T>(arena, operand(c, 1)), at<T>(arena, result(c, 0)),
                 scratchAt<char>(arena, c), c->threads);
  });
}

} // namespace zccrt::cpu
