// Tiles of every size, beside loops.
#include "runtime/cpu/Turn.h"
#include <gtest/gtest.h>
#include <vector>

namespace turn_test {

template <typename T> static void checkAllSizes() {
  constexpr int64_t kMost = 37, kFrom = 41, kTo = 39;
  std::vector<T> from(kMost * kFrom);
  for (size_t i = 0; i < from.size(); ++i)
    from[i] = T(i + 1);
  for (int64_t rows = 0; rows <= kMost; ++rows)
    for (int64_t columns = 0; columns <= kMost; ++columns) {
      std::vector<T> to(kMost * kTo), want = to;
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < columns; ++c)
          want[r * kTo + c] = from[r + c * kFrom];
      z_turn(to.data(), kTo, from.data(), kFrom, rows, columns);
      ASSERT_EQ(to, want) << rows << " x " << columns;
    }
}

TEST(Turn, IsATransposeOfEverySize) {
  checkAllSizes<uint16_t>();
  checkAllSizes<uint32_t>();
  checkAllSizes<float>();
}

} // namespace turn_test
