// Converts between element types.
#include "runtime/Elem.h"
#include <type_traits>

namespace zccrt {

template <class T> static auto widen(T x) {
  if constexpr (std::is_same_v<T, Bf16> || std::is_same_v<T, F16>)
    return static_cast<float>(x);
  else
    return x;
}

template <class T, class S> static T narrow(S x) {
  // 16-bit floats from double go through float; a double rounding is of no consequence for input
  // data.
  if constexpr (std::is_same_v<T, Bf16> || std::is_same_v<T, F16>)
    return T(static_cast<float>(x));
  else
    return static_cast<T>(x);
}

void convert(const void *from, int fromElem, void *to, int toElem, int64_t n) {
  if (fromElem == toElem) {
    std::memcpy(to, from, n * elemBytes(toElem));
    return;
  }
  withType(fromElem, [&](auto s) {
    withType(toElem, [&](auto d) {
      auto *src = static_cast<const decltype(s) *>(from);
      auto *dst = static_cast<decltype(d) *>(to);
      for (int64_t i = 0; i < n; ++i)
        dst[i] = narrow<decltype(d)>(widen(src[i]));
    });
  });
}

void makeBools(char *bytes, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    bytes[i] = bytes[i] != 0;
}

double floatAt(const void *data, int elem, int64_t i) {
  double x = 0;
  withType(elem, [&](auto t) { x = static_cast<double>(widen(static_cast<const decltype(t) *>(data)[i])); });
  return x;
}

} // namespace zccrt
