// Copies between strided boxes of equal extents.
#pragma once

#include <cstdint>

namespace zccrt::cpu {

/// Copies an ndim-dimensional box of elements of `bytes` bytes (1, 2, 4, 8). Strides in elements,
/// any sign. At most `threads` threads, fewer for small boxes.
void copyStrided(void *to, const int64_t *toStrides, const void *from, const int64_t *fromStrides, const int64_t *dims, int ndim,
                 int64_t bytes, int threads);

} // namespace zccrt::cpu
