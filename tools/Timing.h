// What measurements of this machine share: memory, the typical time of a run.
#pragma once

#include "runtime/Fail.h"
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <unistd.h>
#include <vector>

namespace zcc {

inline double secondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

inline double median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + long(v.size() / 2), v.end());
  return v[v.size() / 2];
}

/// The median of at least three runs, and as many as `seconds` allow.
template <class F> double typicalSeconds(double seconds, F run) {
  using Clock = std::chrono::steady_clock;
  constexpr size_t kLeastRuns = 3;
  std::vector<double> times;
  const auto begin = Clock::now();
  while (times.size() < kLeastRuns || secondsSince(begin) < seconds) {
    const auto start = Clock::now();
    run();
    times.push_back(secondsSince(start));
  }
  return std::max(median(std::move(times)), 1e-9);
}

/// Memory that begins a cache line.
class Buffer {
public:
  explicit Buffer(int64_t bytes) : data_(static_cast<char *>(std::aligned_alloc(64, size_t(bytes + 63) / 64 * 64)), std::free) {
    if (!data_)
      zccrt::fail("out of memory: a measurement needs %lld bytes", static_cast<long long>(bytes));
  }
  char *data() const { return data_.get(); }

private:
  std::unique_ptr<char, void (*)(void *)> data_;
};

/// Bytes of a buffer that no cache holds.
inline int64_t beyondCaches() {
  constexpr int64_t kMiB = 1 << 20;
  return std::clamp<int64_t>(2 * sysconf(_SC_LEVEL3_CACHE_SIZE), 32 * kMiB, 256 * kMiB);
}

} // namespace zcc
