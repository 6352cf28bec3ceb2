// Loops over OpenMP's threads.
#pragma once

#include <cstdint>

namespace zccrt::cpu {

/// Calls f(i) for each i in [0, n), in equal shares. One thread needs no team: OpenMP keeps one team
/// and allocates anew whenever its size changes.
template <typename F> inline void forEach(int64_t n, int threads, F f) {
  if (threads <= 1) {
    for (int64_t i = 0; i < n; ++i)
      f(i);
    return;
  }
#pragma omp parallel for schedule(static) num_threads(threads)
  for (int64_t i = 0; i < n; ++i)
    f(i);
}

/// The same where some take longer than others: each thread takes 16 at a time.
template <typename F> inline void forEachUneven(int64_t n, int threads, F f) {
  if (threads <= 1)
    return forEach(n, 1, f);
#pragma omp parallel for schedule(dynamic, 16) num_threads(threads)
  for (int64_t i = 0; i < n; ++i)
    f(i);
}

} // namespace zccrt::cpu
