// Sums over ranks, element by element in rank order: the host's bits (comm/Sum.h).
#include "runtime/cuda/Sum.h"
#include "runtime/cuda/Each.h"
#include <type_traits>

namespace zccrt::cuda {

static_assert(kComputeStream == Device::Compute);

/// 16-bit floats are added in f32; integers wrap, which is defined for unsigned ones.
template <typename T, bool isWhole = std::is_integral_v<T>> struct SumOf {
  using type = std::conditional_t<std::is_same_v<T, double>, double, float>;
};
template <typename T> struct SumOf<T, true> {
  using type = std::make_unsigned_t<T>;
};

template <typename T, typename Sum> static __device__ T finished(Sum sum, int ranks, bool mean) {
  if constexpr (std::is_integral_v<T>)
    return mean ? T(T(sum) / T(ranks)) : T(sum);
  else
    return T(mean ? sum / Sum(ranks) : sum);
}

template <typename T> static void sumElements(Device::Stream s, T *out, const Addends parts, int64_t count, bool mean) {
  eachOn(s, count, [=] __device__(int64_t i) {
    using Sum = typename SumOf<T>::type;
    Sum sum = Sum(reinterpret_cast<const T *>(parts.of(0))[i]);
    for (int r = 1; r < parts.ranks; ++r)
      sum = Sum(sum + Sum(reinterpret_cast<const T *>(parts.of(r))[i]));
    out[i] = finished<T>(sum, parts.ranks, mean);
  });
}

void sumOnDevice(Device::Stream s, char *out, const Addends &parts, int64_t count, int elem, bool mean) {
  cpu::withNumber(elem, [&](auto *type) {
    using T = std::remove_pointer_t<decltype(type)>;
    sumElements(s, reinterpret_cast<T *>(out), parts, count, mean);
  });
}

} // namespace zccrt::cuda
