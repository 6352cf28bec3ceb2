// A part of a graph between two places moves the fewest bytes.
#include "passes/offload/MinCut.h"
#include <gtest/gtest.h>

namespace min_cut_test {

using zcc::MinCut;
constexpr int kHost = MinCut::kSource, kDevice = MinCut::kTarget;

// Two nodes read a gradient of the device for states of the host: it goes down once, not their products.
TEST(MinCut, AValueCountsOnceForAllWhoReadIt) {
  MinCut cut;
  int square = cut.addNode(), scaled = cut.addNode();
  cut.addValue(kDevice, {square, scaled}, 100);
  cut.addValue(square, {kHost}, 100);
  cut.addValue(scaled, {kHost}, 100);
  auto host = cut.sourceSide();
  EXPECT_TRUE(host[square]);
  EXPECT_TRUE(host[scaled]);
}

// What is narrow crosses.
TEST(MinCut, TheNarrowestValueCrosses) {
  MinCut cut;
  int update = cut.addNode(), cast = cut.addNode(), after = cut.addNode();
  cut.addValue(kHost, {update}, 400);
  cut.addValue(update, {cast}, 400);
  cut.addValue(cast, {after}, 200);
  cut.addValue(after, {kDevice}, 400);
  auto host = cut.sourceSide();
  EXPECT_TRUE(host[update]);
  EXPECT_TRUE(host[cast]);
  EXPECT_FALSE(host[after]);
}

// Where it does not matter, the device computes.
TEST(MinCut, OfEqualPartsTheSmallest) {
  MinCut cut;
  int first = cut.addNode(), second = cut.addNode();
  cut.addValue(kHost, {first}, 100);
  cut.addValue(first, {second}, 100);
  cut.addValue(second, {kDevice}, 100);
  auto host = cut.sourceSide();
  EXPECT_FALSE(host[first]);
  EXPECT_FALSE(host[second]);
}

} // namespace min_cut_test
