// Checksums of pages, for the instruction set of the machine.
#pragma once

#include <cstdint>

namespace zccrt {

/// Offsets, sizes and addresses of all transfers are multiples of it.
inline constexpr uint64_t kNvmePage = 4096;

/// Half of XXH3 of a page (libxxhash, compiled in).
using PageSum = uint32_t (*)(const char *page);
/// The fastest that this machine has; all give the same.
PageSum pageSum();

uint32_t pageSumAnywhere(const char *page);
uint32_t pageSumAvx2(const char *page); ///< three times as fast, of what lies in a cache; where there is AVX2

} // namespace zccrt
