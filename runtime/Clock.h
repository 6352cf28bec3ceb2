// The time of a run.
#pragma once

#include <ctime>

namespace zccrt {

/// Seconds, of a clock that nobody sets.
inline double now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec * 1e-9;
}

} // namespace zccrt
