// The sum over ranks, element by element in rank order.
#pragma once

#include <cstdint>

namespace zccrt {

/// out[i] = parts[0][i] + parts[1][i] + ... + parts[n-1][i], left to right; mean: divided by n
/// before it is rounded to elem. bf16 and f16 are added in f32. out may be one of the parts.
/// Integers wrap, their mean truncates.
void sumInOrder(void *out, const void *const *parts, int n, int64_t count, int elem, bool mean);

} // namespace zccrt
