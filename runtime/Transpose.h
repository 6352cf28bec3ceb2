// Copies that swap the axes of a matrix.
#pragma once

#include <algorithm>
#include <cstdint>

namespace zccrt {

/// to[r * toStride + c] = from[c * fromStride + r] for r < rows and c < cols; strides in elements
/// of `size` bytes (1, 2, 4 or 8).
inline void transposeCopy(const void *from, int64_t fromStride, void *to, int64_t toStride, int64_t rows, int64_t cols,
                          int64_t size) {
  auto run = [&](auto word) {
    using T = decltype(word);
    const T *src = static_cast<const T *>(from);
    T *dst = static_cast<T *>(to);
    // Sixteen rows at a time: a read touches one cache line, the writes sixteen that stay in the
    // cache.
    for (int64_t band = 0; band < rows; band += 16)
      for (int64_t c = 0; c < cols; ++c)
        for (int64_t r = band; r < std::min(rows, band + 16); ++r)
          dst[r * toStride + c] = src[c * fromStride + r];
  };
  switch (size) {
  case 1:
    return run(uint8_t());
  case 2:
    return run(uint16_t());
  case 4:
    return run(uint32_t());
  default:
    return run(uint64_t());
  }
}

} // namespace zccrt
