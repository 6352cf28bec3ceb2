// Sums and maxima over float rows with a fixed number of lanes, so that their bits do not depend on the width of the machine's
// vectors. Written with vector types: compilers unroll loops over lanes into scalars.
#pragma once

#include <cstdint>

namespace zccrt::cpu {

typedef float Lanes __attribute__((vector_size(64)));
constexpr int64_t kLanes = 16;
/// For machines without vectors of 64 bytes, where GCC keeps Lanes on the stack: the same lanes, half of them at a time.
typedef float HalfLanes __attribute__((vector_size(32)));
static inline bool hasWideVectors() { return __builtin_cpu_supports("avx512f"); }

#define ZCC_ROW static inline __attribute__((always_inline))

ZCC_ROW float sumOfLanes(const void *lanes) {
  float lane[kLanes];
  __builtin_memcpy(lane, lanes, sizeof lane);
  for (int64_t half = kLanes / 2; half; half /= 2)
    for (int64_t l = 0; l < half; ++l)
      lane[l] += lane[l + half];
  return lane[0];
}

// V is the vector that the machine has: a row's kLanes are kParts<V> of them. They are read by memcpy, since rows are not aligned
// and a template's argument loses what a typedef says of that.
template <typename V> constexpr int64_t kWidth = sizeof(V) / sizeof(float);
template <typename V> constexpr int kParts = kLanes / kWidth<V>;

template <typename V> ZCC_ROW float rowSumOf(const float *s, int64_t n) {
  V sum[kParts<V>]{}, more[kParts<V>]{};
  int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes)
    for (int p = 0; p < kParts<V>; ++p) {
      V x[2];
      __builtin_memcpy(&x[0], s + i + p * kWidth<V>, sizeof(V));
      __builtin_memcpy(&x[1], s + i + kLanes + p * kWidth<V>, sizeof(V));
      sum[p] += x[0];
      more[p] += x[1];
    }
  float rest = 0;
  for (; i < n; ++i)
    rest += s[i];
  for (int p = 0; p < kParts<V>; ++p)
    sum[p] += more[p];
  return sumOfLanes(sum) + rest;
}

template <typename V> ZCC_ROW float rowDotOf(const float *a, const float *b, int64_t n) {
  V sum[kParts<V>]{};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int p = 0; p < kParts<V>; ++p) {
      V x, y;
      __builtin_memcpy(&x, a + i + p * kWidth<V>, sizeof x);
      __builtin_memcpy(&y, b + i + p * kWidth<V>, sizeof y);
      sum[p] += x * y;
    }
  float rest = 0;
  for (; i < n; ++i)
    rest += a[i] * b[i];
  return sumOfLanes(sum) + rest;
}

template <typename V> ZCC_ROW float rowMaxOf(const float *s, int64_t n) {
  V max[kParts<V>];
  for (V &m : max)
    m = V{} - __builtin_inff();
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int p = 0; p < kParts<V>; ++p) {
      V x;
      __builtin_memcpy(&x, s + i + p * kWidth<V>, sizeof x);
      max[p] = x > max[p] ? x : max[p];
    }
  float most = -__builtin_inff(), lane[kLanes];
  for (; i < n; ++i)
    most = s[i] > most ? s[i] : most;
  __builtin_memcpy(lane, max, sizeof lane);
  for (float l : lane)
    most = l > most ? l : most;
  return most;
}

ZCC_ROW float rowSum(const float *s, int64_t n) { return hasWideVectors() ? rowSumOf<Lanes>(s, n) : rowSumOf<HalfLanes>(s, n); }

/// sum(a * b), the products rounded.
ZCC_ROW float rowDot(const float *a, const float *b, int64_t n) {
  return hasWideVectors() ? rowDotOf<Lanes>(a, b, n) : rowDotOf<HalfLanes>(a, b, n);
}

/// The largest; NaN is passed over, an empty row gives -infinity.
ZCC_ROW float rowMax(const float *s, int64_t n) { return hasWideVectors() ? rowMaxOf<Lanes>(s, n) : rowMaxOf<HalfLanes>(s, n); }

#undef ZCC_ROW

} // namespace zccrt::cpu
