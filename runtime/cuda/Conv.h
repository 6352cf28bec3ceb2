// A convolution as the kernels of a GPU see it: three spatial axes, channels in groups, no blocks of channels.
#pragma once

#include "runtime/cpu/ConvShape.h"
#include "runtime/cuda/Each.h"

namespace zccrt::cuda {

struct Conv : cpu::ConvAxes {
  int64_t batch, channels, filters, group;
  bool isPoints = true; ///< every result is one point's
  bool isDepthwise;
  int32_t elem;

  Conv(const zccrt_call *c, const zccrt_tensor &x, const zccrt_tensor &w, const zccrt_tensor &y)
      : Conv(cpu::ConvShape(c, x, w, y), x.elem) {
    if (x.ndim != w.ndim || y.ndim != w.ndim)
      zccrt_fail(c->node, "a GPU's convolutions have no blocks of channels");
  }
  ZCC_ANYWHERE int64_t perGroup() const { return channels / group; }
  ZCC_ANYWHERE int64_t filtersPerGroup() const { return filters / group; }
  /// The output position along an axis that reads input position i with a tap; -1: none.
  __device__ int reader(int axis, int i, int tap) const {
    return readerOf(i, tap, int(stride[axis]), int(dilation[axis]), int(lo[axis]), int(out[axis]));
  }

private:
  Conv(const cpu::ConvShape &s, int32_t elem)
      : ConvAxes(s), batch(s.batch), channels(s.channels), filters(s.filters), group(s.group), isDepthwise(cpu::isDepthwise(s)),
        elem(elem) {
    for (int a = 0; a < 3; ++a)
      isPoints &= kernel[a] == 1 && stride[a] == 1 && !lo[a] && in[a] == out[a];
  }
};

/// Calls f with a null pointer to the element's type.
template <typename F> void withConvolved(const zccrt_call *c, F f) {
  if (!cpu::withFloat(operand(c, 0).elem, f))
    zccrt_fail(c->node, "convolutions have no kernel for integers");
}

/// Depthwise ones, whose products would be of one row.
void depthwise(char *arena, const zccrt_call *c, const Conv &s);
void depthwiseGradInput(char *arena, const zccrt_call *c, const Conv &s);
void depthwiseGradWeight(char *arena, const zccrt_call *c, const Conv &s);
/// Bytes of the weights' gradient.
int64_t depthwiseWorkspace(const Conv &s);

} // namespace zccrt::cuda
