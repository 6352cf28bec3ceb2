// Kernels that tell of their accesses, most of them with a fault each; BadKernels.cpp is compiled as --check-kernels compiles.
#pragma once

namespace kerneltest {

/// Queues the kernel of that name over 256 floats of the device.
void queueBadKernel(const char *name, float *memory);

} // namespace kerneltest
