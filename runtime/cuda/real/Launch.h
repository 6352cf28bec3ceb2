// Launches as CUDA's runtime does them.
#pragma once

#include <cuda_runtime.h>

namespace zccrt::cuda {

/// Of the open device, by Device::Stream.
cudaStream_t streamOf(int stream);
/// Ends the job, with the ONNX node, if the launch that was queued last is refused.
void checkLaunch(const char *kernel);

} // namespace zccrt::cuda

#define ZCC_LAUNCH_ON(stream, kernel, grid, block, ...)                                                                          \
  (kernel<<<grid, block, 0, zccrt::cuda::streamOf(stream)>>>(__VA_ARGS__), zccrt::cuda::checkLaunch(#kernel))
