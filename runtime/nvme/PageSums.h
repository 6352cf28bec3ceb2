// A checksum of every page of the swap file as it was last written. Kept per page, so that a transfer may begin and end at any.
#pragma once

#include "runtime/Hash.h"
#include "runtime/nvme/Nvme.h"
#include <vector>

namespace zccrt {

class PageSums {
public:
  /// Of a file that is all zeros.
  explicit PageSums(uint64_t bytes) : sums(bytes / kNvmePage, sumOf(std::vector<char>(kNvmePage).data())) {}

  /// Notes what is about to be written.
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
  static uint32_t sumOf(const char *page) { return static_cast<uint32_t>(hashBlock(page, kNvmePage, 0)); }

  std::vector<uint32_t> sums;
};

} // namespace zccrt
