// A checksum of every page of the swap file as it was last written. Kept per page, so that a transfer may begin and end at any.
//
// XXH3 takes a third to a ninth of the time of the hash that checkpoints and weights are known by: a step that moves all of its
// state sums up each byte twice, on the cores that it computes on.
#pragma once

#include "runtime/nvme/Nvme.h"
#include <vector>

namespace zccrt {

class PageSums {
public:
  /// Of a file that is all zeros.
  explicit PageSums(uint64_t bytes) : sums(bytes / kNvmePage, sumOf(std::vector<char>(kNvmePage).data())) {}

  /// Notes what was written.
  void note(uint64_t offset, const char *memory, uint64_t bytes) {
    for (uint64_t at = 0; at < bytes; at += kNvmePage) {
      fetchAhead(memory, at, bytes);
      sums[(offset + at) / kNvmePage] = sumOf(memory + at);
    }
  }
  /// The offset of the first page that is not what was written, or the end of the range.
  uint64_t firstBad(uint64_t offset, const char *memory, uint64_t bytes) const {
    for (uint64_t at = 0; at < bytes; at += kNvmePage) {
      fetchAhead(memory, at, bytes);
      if (sums[(offset + at) / kNvmePage] != sumOf(memory + at))
        return offset + at;
    }
    return offset + bytes;
  }

private:
  /// Begins to bring a page that is summed up soon. What a disk has moved lies in no cache, and processors by themselves do not
  /// read on beyond a page; with this, sums take two thirds of the time.
  static void fetchAhead(const char *memory, uint64_t at, uint64_t bytes) {
    constexpr uint64_t kAhead = 2 * kNvmePage, kLine = 64;
    if (at + kAhead < bytes)
      for (uint64_t line = 0; line < kNvmePage; line += kLine)
        __builtin_prefetch(memory + at + kAhead + line);
  }

  const PageSum sumOf = pageSum();
  std::vector<uint32_t> sums;
};

} // namespace zccrt
