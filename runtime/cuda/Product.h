// Products of matrices by the device's library: cuBLASLt, or what stands for it under emulation.
#pragma once

#include "runtime/zccrt.h"

namespace zccrt::cuda {

/// A batch of row-major matrices; a transposed one is stored with its axes swapped.
struct Factor {
  const char *data;
  int64_t ld = 0;   ///< elements from stored row to stored row
  int64_t step = 0; ///< elements from one matrix of the batch to the next; 0: the same
  bool isTransposed = false;
};

/// y[m, n] = a[m, k] b[k, n], or added to y, for each of a batch.
struct Product {
  int64_t m, n, k, batches = 1;
  Factor a, b;
  char *y;
  int64_t ldY, stepY = 0;
  int32_t elem;  ///< of a and b: f32, f64, f16, bf16
  int32_t elemY; ///< the same, or f32 of 16-bit floats
  bool isAdded = false;
  const char *node; ///< for messages
};

/// Starts the library, before the first product: throws a Failure where it is not to be had.
void startProducts();
/// Queues it on the stream Compute.
void multiply(const Product &p);

} // namespace zccrt::cuda
