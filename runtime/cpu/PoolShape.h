// The extents of a pooling, read from any of its operators' calls.
#pragma once

#include "runtime/cpu/Call.h"
#include "runtime/cpu/KernelMath.h"

namespace zccrt::cpu {

/// A pooling seen with three spatial axes; missing ones, in front, have extent 1.
struct PoolShape {
  int64_t planes, in[3], out[3], kernel[3], stride[3], lo[3], dilation[3];
  bool countPad;

  PoolShape(const zccrt_call *c, const zccrt_tensor &x, const zccrt_tensor &y)
      : planes(x.dims[0] * x.dims[1]), countPad(attrInt(c, "count_pad", 0)) {
    int spatial = x.ndim - 2;
    if (spatial < 1 || spatial > 3)
      zccrt_fail(c->node, "pooling over %d axes has no kernel", spatial);
    for (int a = 0; a < 3; ++a) {
      int i = a - (3 - spatial);
      in[a] = i < 0 ? 1 : x.dims[i + 2];
      out[a] = i < 0 ? 1 : y.dims[i + 2];
      kernel[a] = i < 0 ? 1 : attrAxis(c, "kernel", i, 1);
      stride[a] = i < 0 ? 1 : attrAxis(c, "strides", i, 1);
      lo[a] = i < 0 ? 0 : attrAxis(c, "pads_lo", i, 0);
      dilation[a] = i < 0 ? 1 : attrAxis(c, "dilations", i, 1);
    }
  }
  ZCC_ANYWHERE int64_t inPlane() const { return in[0] * in[1] * in[2]; }
  ZCC_ANYWHERE int64_t outPlane() const { return out[0] * out[1] * out[2]; }
};

/// Calls f(the taps that max_pool keeps, as what they are).
template <typename F> ZCC_INLINE inline void withTaps(char *arena, const zccrt_tensor &taps, F f) {
  if (taps.elem == ZCCRT_U8)
    f(reinterpret_cast<uint8_t *>(arena + taps.offset));
  else
    f(reinterpret_cast<int32_t *>(arena + taps.offset));
}

} // namespace zccrt::cpu
