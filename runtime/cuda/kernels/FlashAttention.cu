// Which heads attention in tiles takes, and its kernels of 16-bit floats; FlashAttentionF32.cu has those of f32.
#include "runtime/Device.h"
#include "runtime/cuda/FlashKernels.h"

namespace zccrt::cuda {

bool takesTiles(const Heads &n, int32_t elem) {
  constexpr int64_t kMostRows = 1 << 30;
  return elem != ZCCRT_F64 && n.scale > 0 && n.d <= kMostWidth && n.dv <= kMostWidth && n.s < kMostRows && n.t < kMostRows;
}

/// Calls f with a null pointer to what tiles have as elements.
template <typename F> static void withFactors(int32_t elem, F f) {
  if (elem == ZCCRT_F32 && device()->multipliesInTf32)
    f((Tf32 *)nullptr);
  else if (elem == ZCCRT_F32)
    f((float *)nullptr);
  else if (elem == ZCCRT_BF16)
    f((cpu::Bf16 *)nullptr);
  else
    f((cpu::F16 *)nullptr);
}

void attendByTiles(const Heads &n, int32_t elem, Rows y, float *lse) {
  withFactors(elem, [&]<typename T>(T *) { TileLaunches<T>::attend(n, y, lse); });
}

void attendGradByTiles(const Heads &n, int32_t elem, Rows dy, Rows y, Rows dq, Rows dk, Rows dv, const float *lse,
                       float *deltas) {
  withFactors(elem, [&]<typename T>(T *) { TileLaunches<T>::attendGrad(n, dy, y, dq, dk, dv, lse, deltas); });
}

} // namespace zccrt::cuda
