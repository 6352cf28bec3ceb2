// Attention in tiles (FlashKernels.h) of f32, as it is and rounded to TF32.
#include "runtime/cuda/FlashKernels.h"

template struct zccrt::cuda::TileLaunches<float>;
template struct zccrt::cuda::TileLaunches<zccrt::cuda::Tf32>;
