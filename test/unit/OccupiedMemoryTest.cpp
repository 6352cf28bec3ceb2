// Where the lowest free bytes are found, against a look at every byte; and what finding them costs.
#include "passes/memory/OccupiedMemory.h"
#include "ir/Steps.h"
#include <gtest/gtest.h>
#include <random>

namespace occupied_memory_test {

using namespace zcc;

namespace {
/// A table of times and bytes.
struct Bytes {
  Bytes(int times, int64_t bytes) : taken(times, std::vector<bool>(bytes)) {}
  std::vector<std::vector<bool>> taken;

  void add(int first, int last, int64_t begin, int64_t end) {
    for (int t = first; t <= last; ++t)
      std::fill(taken[t].begin() + begin, taken[t].begin() + end, true);
  }
  bool isFree(int first, int last, int64_t begin, int64_t end) const {
    for (int t = first; t <= last; ++t)
      if (std::find(taken[t].begin() + begin, taken[t].begin() + end, true) != taken[t].begin() + end)
        return false;
    return true;
  }
  int64_t lowestFree(int first, int last, int64_t bytes) const {
    int64_t at = 0;
    while (!isFree(first, last, at, at + bytes))
      ++at;
    return at;
  }
};
} // namespace

TEST(OccupiedMemory, FindsTheLowestFreeBytes) {
  std::mt19937 random(7);
  for (int round = 0; round < 60; ++round) {
    int times = 1 + random() % 40;
    OccupiedMemory tree(times);
    Bytes table(times, 1000);
    for (int i = 0; i < 60; ++i) {
      // Nested ones, and any.
      int a = random() % 2 ? std::min(i / 3, times - 1) : random() % times, b = random() % times;
      int first = std::min(a, b), last = std::max(a, b);
      int64_t bytes = 1 + random() % 8, at = tree.lowestFree(first, last, bytes);
      ASSERT_EQ(at, table.lowestFree(first, last, bytes)) << "round " << round << ", buffer " << i;
      if (i % 5 == 4) // elsewhere than asked, over others
        at = random() % 100;
      tree.add(first, last, at, at + bytes);
      table.add(first, last, at, at + bytes);
    }
  }
}

/// Steps of placing values that live from ever later to ever earlier, every other time beside a short-lived one.
static uint64_t stepsOfNested(int n) {
  uint64_t before = steps;
  OccupiedMemory tree(2 * n);
  auto place = [&](int first, int last, int64_t bytes) {
    int64_t at = tree.lowestFree(first, last, bytes);
    tree.add(first, last, at, at + bytes);
  };
  for (int t = 0; t < 2 * n; t += 2)
    place(t, t, 3);
  for (int i = 0; i < n; ++i)
    place(i, 2 * n - 1 - i, 2);
  return steps - before;
}

TEST(OccupiedMemory, CostFollowsTheNumberOfBuffers) { EXPECT_LT(stepsOfNested(4000), 6.5 * stepsOfNested(1000)); }

} // namespace occupied_memory_test
