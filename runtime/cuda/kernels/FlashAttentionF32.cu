// Attention in tiles (FlashKernels.h) of f32, as it is and rounded to TF32.
#include "runtime/cuda/FlashKernels.h"

namespace zccrt::cuda {

template void attendIn<float>(const Heads &, Rows, float *);
template void attendIn<Tf32>(const Heads &, Rows, float *);
template void attendGradIn<float>(const Heads &, Rows, Rows, Rows, Rows, Rows, const float *, float *);
template void attendGradIn<Tf32>(const Heads &, Rows, Rows, Rows, Rows, Rows, const float *, float *);

} // namespace zccrt::cuda
