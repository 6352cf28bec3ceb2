// A checksum of every page of the swap file as it was last written. Kept per page, so that a transfer may begin and end at any.
//
// They are half of XXH3 (libxxhash, compiled in), which takes a third of the time of the hash that checkpoints and weights are
// known by: a step that moves all of its state sums up each byte twice, on the cores that it computes on.
#pragma once

#include "runtime/nvme/Nvme.h"
#define XXH_INLINE_ALL
#include <vector>
#include <xxhash.h>

namespace zccrt {

class PageSums {
public:
  /// Of a file that is all zeros.
  explicit PageSums(uint64_t bytes) : sums(bytes / kNvmePage, sumOf(std::vector<char>(kNvmePage).data())) {}

  /// Notes what was written.
  void note(uint64_t offset, const char *memory, uint64_t bytes) {
    for (uint64_t at = 0; at < bytes; at += kNvmePage)
      sums[(offset + at) / kNvmePage] = sumOf(memory + at);
  }
  /// The offset of the first page that is not what was written, or the end of the range.
  uint64_t firstBad(uint64_t offset, const char *memory, uint64_t bytes) const {
    uint64_t at = 0;
    while (at < bytes && sums[(offset + at) / kNvmePage] == sumOf(memory + at))
      at += kNvmePage;
    return offset + at;
  }

private:
  static uint32_t sumOf(const char *page) { return static_cast<uint32_t>(XXH3_64bits(page, kNvmePage)); }

  std::vector<uint32_t> sums;
};

} // namespace zccrt
