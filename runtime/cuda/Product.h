// Products of matrices by the device's library: cuBLASLt, or what stands for it under emulation.
#pragma once

#include "runtime/Elem.h"
#include <cstdint>

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
  const char *bias = nullptr; ///< n elements like y's, added to each row before it is rounded; nullptr: none
  const char *node;           ///< for messages
};

/// Starts the library, before the first product: throws a Failure where it is not to be had.
void startProducts();
/// Of a batch that a call takes: more than 65535 are not supported by all algorithms.
constexpr int64_t kMostBatches = 65535;
/// Addresses of biases are a multiple of so many bytes: the library, which is told of no other alignment of theirs, may read so
/// many at once.
constexpr uintptr_t kBiasAlignment = 16;
inline bool hasAlignedBias(const Product &p) { return reinterpret_cast<uintptr_t>(p.bias) % kBiasAlignment == 0; }
/// Whether the library adds its bias to such a product.
bool takesBias(const Product &p);
/// Queues at most so many on the stream Compute, by the library.
void multiplyBatch(const Product &p);

/// Queues it on the stream Compute.
inline void multiply(Product p) {
  const int64_t bytes = elemBytes(p.elem), bytesY = elemBytes(p.elemY);
  for (int64_t left = p.batches; left > 0; left -= p.batches) {
    p.batches = left < kMostBatches ? left : kMostBatches;
    multiplyBatch(p);
    p.a.data += p.batches * p.a.step * bytes;
    p.b.data += p.batches * p.b.step * bytes;
    p.y += p.batches * p.stepY * bytesY;
  }
}

} // namespace zccrt::cuda
