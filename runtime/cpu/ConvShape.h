// The extents of a convolution, read from any of its three operators' calls.
#pragma once

#include "runtime/cpu/Call.h"
#include "runtime/cpu/KernelMath.h"
#include <algorithm>

namespace zccrt::cpu {

/// y[N, M, out...] = x[N, C, in...] * w[M, C/group, kernel...]. x and y may have their channels in blocks: [N, C/B, in..., B].
struct ConvShape {
  int spatial; ///< 1 to 3 axes
  int64_t batch, channels, filters, group;
  int64_t in[3], out[3], kernel[3], stride[3], dilation[3], padLo[3], padHi[3];
  int64_t xBlock, yBlock; ///< 1: none

  ConvShape(const zccrt_call *c, const zccrt_tensor &x, const zccrt_tensor &w, const zccrt_tensor &y)
      : spatial(w.ndim - 2), batch(x.dims[0]), channels(x.dims[1]), filters(w.dims[0]), group(attrInt(c, "group", 1)),
        xBlock(x.ndim > w.ndim ? x.dims[w.ndim] : 1), yBlock(y.ndim > w.ndim ? y.dims[w.ndim] : 1) {
    channels *= xBlock;
    if (spatial < 1 || spatial > 3)
      zccrt_fail(c->node, "a convolution over %d axes has no kernel", spatial);
    for (int i = 0; i < spatial; ++i) {
      in[i] = x.dims[i + 2];
      out[i] = y.dims[i + 2];
      kernel[i] = w.dims[i + 2];
      stride[i] = attrAxis(c, "strides", i, 1);
      dilation[i] = attrAxis(c, "dilations", i, 1);
      padLo[i] = attrAxis(c, "pads_lo", i, 0);
      padHi[i] = attrAxis(c, "pads_hi", i, 0);
    }
  }
};

/// Whether there are blocks of channels, which oneDNN's primitives read alone.
inline bool hasBlocks(const ConvShape &s) { return s.xBlock > 1 || s.yBlock > 1; }

/// Whether each pixel of the result sees one of the input.
inline bool hasPoints(const ConvShape &s) {
  bool points = s.group == 1;
  for (int i = 0; i < s.spatial; ++i)
    points &= s.kernel[i] == 1 && !s.padLo[i] && !s.padHi[i];
  return points;
}

/// Whether its windows are more than one pixel apart.
inline bool hasSteps(const ConvShape &s) {
  return std::any_of(s.stride, s.stride + s.spatial, [](int64_t n) { return n != 1; });
}

/// Whether it is nothing but a product of matrices: of single points, and without steps.
inline bool isProduct(const ConvShape &s) { return hasPoints(s) && !hasSteps(s); }

inline int64_t volume(const int64_t *dims, int n) {
  int64_t v = 1;
  for (int i = 0; i < n; ++i)
    v *= dims[i];
  return v;
}

/// Calls f(tap, input position, output position), all flat, for each tap that reads inside the
/// input.
template <typename F> void forTaps(const ConvShape &s, F f) {
  int64_t taps = volume(s.kernel, s.spatial), outs = volume(s.out, s.spatial);
  for (int64_t tap = 0; tap < taps; ++tap)
    for (int64_t o = 0; o < outs; ++o) {
      int64_t restTap = tap, restOut = o, in = 0, scale = 1;
      bool inside = true;
      for (int i = s.spatial - 1; i >= 0; --i) {
        int64_t at = restOut % s.out[i] * s.stride[i] + restTap % s.kernel[i] * s.dilation[i] - s.padLo[i];
        inside &= at >= 0 && at < s.in[i];
        in += at * scale;
        scale *= s.in[i];
        restOut /= s.out[i];
        restTap /= s.kernel[i];
      }
      if (inside)
        f(tap, in, o);
    }
}

/// A convolution seen with three spatial axes; missing ones, in front, have extent 1.
struct ConvAxes {
  int64_t in[3], out[3], kernel[3], stride[3], dilation[3], lo[3];

  explicit ConvAxes(const ConvShape &s) {
    for (int a = 0; a < 3; ++a) {
      int i = a - (3 - s.spatial);
      in[a] = i < 0 ? 1 : s.in[i];
      out[a] = i < 0 ? 1 : s.out[i];
      kernel[a] = i < 0 ? 1 : s.kernel[i];
      stride[a] = i < 0 ? 1 : s.stride[i];
      dilation[a] = i < 0 ? 1 : s.dilation[i];
      lo[a] = i < 0 ? 0 : s.padLo[i];
    }
  }
  ZCC_ANYWHERE int64_t ins() const { return in[0] * in[1] * in[2]; }
  ZCC_ANYWHERE int64_t outs() const { return out[0] * out[1] * out[2]; }
  ZCC_ANYWHERE int64_t taps() const { return kernel[0] * kernel[1] * kernel[2]; }
};

/// The three operators, by what they compute.
enum class ConvKind { Forward, GradInput, GradWeight };

/// Plain loops for elements that oneDNN has no convolution for (f64). `bias` may be null.
void convLoops(ConvKind kind, const ConvShape &s, double *x, double *w, const double *bias, double *y, int threads);

/// Whether each filter sees a channel of its own.
inline bool isDepthwise(const ConvShape &s) { return s.group == s.channels && s.group > 1; }
/// The weights' gradient of such a one, of any float but f64; the call is conv_grad_weight's. The workspace is in bytes.
int64_t depthwiseWorkspace(const ConvShape &s, int threads);
void depthwiseGradWeight(char *arena, const zccrt_call *c, const ConvShape &s);

} // namespace zccrt::cpu
