// Sums and maxima over float rows with a fixed number of lanes, so that their bits do not depend on the width of the machine's
// vectors. Written with vector types: compilers unroll loops over lanes into scalars.
#pragma once

#include <cstdint>

namespace zccrt::cpu {

typedef float Lanes __attribute__((vector_size(64), aligned(4), may_alias));
constexpr int64_t kLanes = 16;
/// For machines without vectors of 64 bytes, where GCC keeps Lanes on the stack: the same lanes, half of them at a time.
typedef float HalfLanes __attribute__((vector_size(32), aligned(4), may_alias));
static inline bool hasWideVectors() { return __builtin_cpu_supports("avx512f"); }

static inline __attribute__((always_inline)) float sumOfLanes(const Lanes &v) {
  float lane[kLanes];
  __builtin_memcpy(lane, &v, sizeof lane);
  for (int64_t half = kLanes / 2; half; half /= 2)
    for (int64_t l = 0; l < half; ++l)
      lane[l] += lane[l + half];
  return lane[0];
}

static inline __attribute__((always_inline)) float rowSum(const float *s, int64_t n) {
  Lanes sum{}, more{};
  int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    sum += *reinterpret_cast<const Lanes *>(s + i);
    more += *reinterpret_cast<const Lanes *>(s + i + kLanes);
  }
  float rest = 0;
  for (; i < n; ++i)
    rest += s[i];
  return sumOfLanes(sum + more) + rest;
}

/// sum(a * b), the products rounded.
static inline __attribute__((always_inline)) float rowDot(const float *a, const float *b, int64_t n) {
  Lanes sum{};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    sum += *reinterpret_cast<const Lanes *>(a + i) * *reinterpret_cast<const Lanes *>(b + i);
  float rest = 0;
  for (; i < n; ++i)
    rest += a[i] * b[i];
  return sumOfLanes(sum) + rest;
}

/// The largest; NaN is passed over, an empty row gives -infinity.
static inline __attribute__((always_inline)) float rowMax(const float *s, int64_t n) {
  Lanes max = Lanes{} - __builtin_inff();
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    Lanes x = *reinterpret_cast<const Lanes *>(s + i);
    max = x > max ? x : max;
  }
  float most = -__builtin_inff();
  for (; i < n; ++i)
    most = s[i] > most ? s[i] : most;
  for (int64_t l = 0; l < kLanes; ++l)
    most = max[l] > most ? max[l] : most;
  return most;
}

} // namespace zccrt::cpu
