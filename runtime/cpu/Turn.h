// Tiles of matrices that lie along one axis and are wanted along the other. Included by generated code.
#pragma once

#include <cstdint>
#include <cstring>
#include <utility>

/// Every second element is of `a`, the others of `b`: their first halves, and their second ones.
template <int First, typename V, int... I>
static inline void z_zip(V &to, const V &a, const V &b, std::integer_sequence<int, I...>) {
  constexpr int kCount = sizeof...(I);
  to = __builtin_shufflevector(a, b, (First + I / 2 + I % 2 * kCount)...);
}

/// As many rows and columns as 32 bytes have elements: to[row * toStride + column] = from[row + column * stride]. Numbers of row
/// and column are exchanged bit by bit: each time rows that are half of all apart become neighbours.
template <typename T> static inline void z_turn_square(T *to, int64_t toStride, const T *from, int64_t stride) {
  constexpr int kSide = 32 / sizeof(T);
  typedef T Row __attribute__((vector_size(32)));
  constexpr auto kAll = std::make_integer_sequence<int, kSide>();
  Row now[kSide], next[kSide];
#pragma GCC unroll 16
  for (int i = 0; i < kSide; ++i)
    memcpy(&now[i], from + i * stride, sizeof(Row));
#pragma GCC unroll 4
  for (int done = 1; done < kSide; done *= 2) {
#pragma GCC unroll 16
    for (int i = 0; i < kSide / 2; ++i) {
      z_zip<0>(next[2 * i], now[i], now[i + kSide / 2], kAll);
      z_zip<kSide / 2>(next[2 * i + 1], now[i], now[i + kSide / 2], kAll);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kSide; ++i)
      now[i] = next[i];
  }
#pragma GCC unroll 16
  for (int i = 0; i < kSide; ++i)
    memcpy(to + i * toStride, &now[i], sizeof(Row));
}

/// to[row * toStride + column] = from[row + column * stride], of elements of 2 or 4 bytes.
template <typename T>
__attribute__((noinline)) static void z_turn(T *to, int64_t toStride, const T *from, int64_t stride, int64_t rows,
                                             int64_t columns) {
  constexpr int64_t kSide = 32 / sizeof(T);
  const int64_t wholeRows = rows / kSide * kSide, wholeColumns = columns / kSide * kSide;
  for (int64_t r = 0; r < wholeRows; r += kSide)
    for (int64_t c = 0; c < wholeColumns; c += kSide)
      z_turn_square(to + r * toStride + c, toStride, from + r + c * stride, stride);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = r < wholeRows ? wholeColumns : 0; c < columns; ++c)
      to[r * toStride + c] = from[r + c * stride];
}
