// Adds ranks' elements in their type, rank by rank.
#include "runtime/comm/Sum.h"
#include "runtime/Clones.h"
#include "runtime/Elem.h"
#include "runtime/cpu/Number.h"
#include <algorithm>
#include <type_traits>

namespace zccrt {

// The running sums of a block stay in the first-level cache.
constexpr int64_t kBlock = 1024;

/// Wrapping is defined for unsigned numbers only.
template <class T, bool isWhole = std::is_integral_v<T>> struct Wrapping {
  using type = Sum<T>;
};
template <class T> struct Wrapping<T, true> {
  using type = std::make_unsigned_t<T>;
};
template <class T> using Accumulator = typename Wrapping<T>::type;

template <class T> ZCC_INLINE static inline T finish(Accumulator<T> sum, int n, bool mean) {
  if constexpr (std::is_integral_v<T>)
    return mean ? static_cast<T>(static_cast<T>(sum) / static_cast<T>(n)) : static_cast<T>(sum);
  else
    return T(mean ? sum / static_cast<decltype(sum)>(n) : sum);
}

template <class T> ZCC_INLINE static inline void sumTyped(T *out, const void *const *parts, int n, int64_t count, bool mean) {
  using A = Accumulator<T>;
  A sums[kBlock];
  for (int64_t at = 0; at < count; at += kBlock) {
    int64_t length = std::min(kBlock, count - at);
    for (int p = 0; p < n; ++p) {
      const T *part = static_cast<const T *>(parts[p]) + at;
      if (p == 0)
        for (int64_t i = 0; i < length; ++i)
          sums[i] = static_cast<A>(part[i]);
      else
        for (int64_t i = 0; i < length; ++i)
          sums[i] += static_cast<A>(part[i]);
    }
    for (int64_t i = 0; i < length; ++i)
      out[at + i] = finish<T>(sums[i], n, mean);
  }
}

ZCC_CLONES static void sumOf(float *out, const void *const *parts, int n, int64_t count, bool mean) {
  sumTyped(out, parts, n, count, mean);
}

ZCC_CLONES static void sumOf(cpu::Bf16 *out, const void *const *parts, int n, int64_t count, bool mean) {
  sumTyped(out, parts, n, count, mean);
}

ZCC_CLONES static void sumOf(cpu::F16 *out, const void *const *parts, int n, int64_t count, bool mean) {
  sumTyped(out, parts, n, count, mean);
}

template <class T> static void sumOf(T *out, const void *const *parts, int n, int64_t count, bool mean) {
  sumTyped(out, parts, n, count, mean);
}

void sumInOrder(void *out, const void *const *parts, int n, int64_t count, int elem, bool mean) {
  cpu::withNumber(elem, [&](auto *t) { sumOf(static_cast<decltype(t)>(out), parts, n, count, mean); });
}

} // namespace zccrt
