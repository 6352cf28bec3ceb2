// The step's prediction walks the schedule with a clock for each engine: what is started goes on beside compute.
#include "ir/Text.h"
#include "passes/TimedSchedule.h"
#include <gtest/gtest.h>

namespace cost_model_test {

using namespace zcc;

namespace {
/// A second for each product of 64x64x64, for each 16 KiB that a disk or a copy moves, for each such sum over two ranks.
Machine round() {
  Machine m(/*flops=*/524288, /*bytes=*/1e12, /*link=*/16384);
  m[Rate::Disk] = m[Rate::HostCopy] = 16384;
  return m;
}

/// A module whose @eval is a step.
std::unique_ptr<Module> stepOf(const std::string &body) {
  std::string text = "module @m ranks 2 {\n  param %w : f32[64x64] = zero {trained}\n  state %n : f32[64x64]@nvme = zero\n"
                     "  state %h : f32[64x64]@host = zero\n  func @update() -> () {\n" +
                     body + "    return\n  }\n}\n";
  auto m = parse(text, "test.zir");
  if (!m) {
    ADD_FAILURE() << llvm::toString(m.takeError()) << text;
    return std::make_unique<Module>();
  }
  (*m)->ranks = 2;
  (*m)->functions[0]->name = "eval";
  return std::move(*m);
}

StepCost costOf(const std::string &body, bool collectivesCompute = true) {
  Machine machine = round();
  machine.collectivesCompute = collectivesCompute;
  return costOfStep(*stepOf(body), Options(), machine);
}
} // namespace

static const char *const kProduct = "    %y = matmul %w, %w : f32[64x64]\n";

TEST(CostModel, WhatIsNotStartedHoldsCompute) {
  StepCost c = costOf(std::string(kProduct) + "    %d = transfer %n {to = \"device\"} : f32[64x64]\n");
  EXPECT_NEAR(c.seconds, 2, 1e-3);
}

TEST(CostModel, AStartedTransferGoesOnBesideCompute) {
  StepCost c = costOf("    %f = start transfer %n {to = \"device\"} : future<f32[64x64]>\n" + std::string(kProduct) +
                      "    %z = matmul %y, %w : f32[64x64]\n    %d = wait %f : f32[64x64]\n");
  EXPECT_NEAR(c.seconds, 2, 1e-3);
  EXPECT_NEAR(c.busy[size_t(EngineKind::Disk)], 1, 1e-3);
  EXPECT_NEAR(c.busy[size_t(EngineKind::Compute)], 2, 1e-3);
  EXPECT_EQ(c.boundBy, "compute");
}

TEST(CostModel, AProductAndItsBytesOverlapButForHalfOfTheShorter) {
  Machine m(/*flops=*/100, /*bytes=*/10, /*link=*/1);
  NodeCost c;
  c[Rate::Large] = 400;
  c[Rate::Bytes] = 20;
  EXPECT_DOUBLE_EQ(c.seconds(m), 5);
  c[Rate::Bytes] = 100;
  EXPECT_DOUBLE_EQ(c.seconds(m), 12);
}

TEST(CostModel, CollectivesBeginAndEnd) {
  Machine m(1, 1, /*link=*/100);
  m[Rate::ShortLink] = 200, m[Rate::Collectives] = 2;
  NodeCost c;
  c[Rate::ShortLink] = 400, c[Rate::Collectives] = 1;
  EXPECT_DOUBLE_EQ(c.seconds(m), 2.5);
  EXPECT_EQ(c.sentBytes(), 400);
}

TEST(CostModel, AnEngineTakesOneAfterAnother) {
  StepCost c = costOf("    %f = start transfer %n {to = \"device\"} : future<f32[64x64]>\n"
                      "    %g = start transfer %n {to = \"device\"} : future<f32[64x64]>\n"
                      "    %h1 = start transfer %h {to = \"device\"} : future<f32[64x64]>\n" +
                      std::string(kProduct) +
                      "    %a = wait %f : f32[64x64]\n    %b = wait %g : f32[64x64]\n    %c = wait %h1 : f32[64x64]\n");
  EXPECT_NEAR(c.seconds, 2, 1e-3); // the copy from the host beside the disk
  EXPECT_NEAR(c.busy[size_t(EngineKind::Disk)], 2, 1e-3);
  EXPECT_NEAR(c.busy[size_t(EngineKind::FromHost)], 1, 1e-3);
  EXPECT_EQ(c.boundBy, "disk");
}

TEST(CostModel, CopiesToAndFromTheHostMeet) {
  StepCost c = costOf("    %f = start transfer %h {to = \"device\"} : future<f32[64x64]>\n"
                      "    %g = start transfer %w {to = \"host\"} : future<f32[64x64]@host>\n"
                      "    %a = wait %f : f32[64x64]\n    %b = wait %g : f32[64x64]@host\n");
  EXPECT_NEAR(c.seconds, 1, 1e-3);
  EXPECT_EQ(c.boundBy, "host copies");
}

TEST(CostModel, WhatStartsLateEndsLate) {
  StepCost c = costOf(std::string(kProduct) + "    %f = start transfer %n {to = \"device\"} : future<f32[64x64]>\n"
                                              "    %d = wait %f : f32[64x64]\n    %z = matmul %d, %w : f32[64x64]\n");
  EXPECT_NEAR(c.seconds, 3, 1e-3);
}

// A second on the host's cores, at the host's rates: beside compute, unless those are the same cores.
TEST(CostModel, WhatComputesInHostMemoryHasAnEngineAndRatesOfItsOwn) {
  auto m = stepOf("    %e = exp %h : f32[64x64]@host\n");
  EXPECT_EQ(scheduleOf(*m, Options()).functions[0].spans[0].engine, EngineKind::Host);
  Machine machine = round();
  machine[Rate::HostBytes] = 49152; // of a product
  for (bool shared : {false, true}) {
    machine.hostComputes = shared;
    StepCost c = costOfStep(*stepOf("    %f = start matmul %h, %h : future<f32[64x64]@host>\n" + std::string(kProduct) +
                                    "    %e = wait %f : f32[64x64]@host\n"),
                            Options(), machine);
    EXPECT_NEAR(c.seconds, shared ? 2 : 1, 1e-3);
    EXPECT_NEAR(c.busy[size_t(EngineKind::Host)], shared ? 0 : 1, 1e-3);
  }
}

/// What @eval's compute takes of each rate.
static std::vector<NodeCost> workOf(const Module &m) {
  std::vector<NodeCost> all;
  TimedSchedule s = scheduleOf(m, Options());
  for (const Span &span : s.functions[0].spans)
    all.push_back(span.work);
  return all;
}

TEST(CostModel, WhatWasTouchedShortlyBeforeIsNear) {
  auto m = stepOf("    %a = exp %w : f32[64x64]\n    %b = exp %a : f32[64x64]\n"
                  "    %c = broadcast %b {dims = [2048, 64, 64]} : f32[2048x64x64]\n    %d = exp %c : f32[2048x64x64]\n"
                  "    %e = exp %d : f32[2048x64x64]\n    %f = exp %b : f32[64x64]\n");
  std::vector<NodeCost> work = workOf(*m);
  ASSERT_EQ(work.size(), 5u);
  constexpr double kSmall = 64 * 64 * 4, kLarge = 2048 * kSmall; // more than caches are thought to keep
  EXPECT_EQ(work[0][Rate::Bytes], kSmall);                       // a parameter, last touched in another step
  EXPECT_EQ(work[0][Rate::NearBytes], kSmall);                   // what is written
  EXPECT_EQ(work[1][Rate::Bytes], 0);
  EXPECT_EQ(work[1][Rate::NearBytes], 2 * kSmall);
  EXPECT_EQ(work[2][Rate::Bytes], kLarge);
  EXPECT_EQ(work[2][Rate::NearBytes], kSmall);
  EXPECT_EQ(work[3][Rate::Bytes], 2 * kLarge);
  EXPECT_EQ(work[4][Rate::Bytes], kSmall) << "long forgotten";
}

TEST(CostModel, OnlyWhatIndicesNameIsTouched) {
  auto m = stepOf("    %i = constant {dims = [2], elem = \"i64\", value = [3]} : i64[2]\n    %g = gather %w, %i : f32[2x64]\n"
                  "    %s = scatter_add %w, %i, %g : f32[64x64]\n");
  constexpr double kIndices = 16, kRows = 2 * 64 * 4;
  std::vector<NodeCost> work = workOf(*m);
  auto bytes = [&](const NodeCost &c) { return c[Rate::Bytes] + c[Rate::NearBytes]; };
  ASSERT_GE(work.size(), 2u);
  EXPECT_EQ(bytes(work[work.size() - 2]), kIndices + 2 * kRows);
  EXPECT_EQ(bytes(work.back()), kIndices + 3 * kRows);
}

TEST(CostModel, AKernelReadsAgainWhatALaterPassNeeds) {
  auto m = parse("module @m {\n  param %w : f32[64x64] = zero {trained}\n"
                 "  kernel @k(%x : f32[64x64]) -> (f32[64x64]) {\n    %m = reduce_max %x {axes = [1]} : f32[64x1]\n"
                 "    %b = broadcast %m {dims = [64, 64]} : f32[64x64]\n    %d = sub %x, %b : f32[64x64]\n"
                 "    return %d\n  }\n  func @eval() -> () {\n    %y = fused @k %w : f32[64x64]\n    return\n  }\n}\n",
                 "test.zir");
  ASSERT_TRUE(bool(m)) << llvm::toString(m.takeError());
  NodeCost c = workOf(**m)[0];
  constexpr double kBytes = 64 * 64 * 4;
  EXPECT_EQ(c[Rate::Bytes], 0) << "a step so small finds all where the last one left it";
  EXPECT_EQ(c[Rate::NearBytes], 3 * kBytes); // read twice, and the result
  EXPECT_EQ(c[Rate::Rows], 64);
}

TEST(TimedSchedule, IsTimedForAnyMachine) {
  auto m = stepOf("    %f = start transfer %n {to = \"device\"} : future<f32[64x64]>\n" + std::string(kProduct) +
                  "    %d = wait %f : f32[64x64]\n    %z = matmul %d, %w : f32[64x64]\n");
  TimedSchedule s = scheduleOf(*m, Options());
  ASSERT_EQ(s.functions.size(), 1u);
  const std::vector<Span> &spans = s.functions[0].spans;
  ASSERT_EQ(spans.size(), 4u);
  EXPECT_EQ(spans[0].engine, EngineKind::Disk);
  EXPECT_EQ(spans[2].waitsFor, 0);
  Machine slow = round(), fast = round();
  slow[Rate::Disk] /= 4;
  auto expectTimes = [&](const Machine &machine, std::vector<std::pair<double, double>> times) {
    setTimes(s, machine);
    for (size_t i = 0; i < times.size(); ++i) {
      EXPECT_NEAR(spans[i].begin, times[i].first, 1e-3);
      EXPECT_NEAR(spans[i].end, times[i].second, 1e-3);
    }
    EXPECT_EQ(costOf(s, machine).seconds, spans.back().end);
  };
  expectTimes(slow, {{0, 4}, {0, 1}, {1, 4}, {4, 5}});
  expectTimes(fast, {{0, 1}, {0, 1}, {1, 1}, {1, 2}});
}

TEST(TimedSchedule, DisksReadAndWriteAtRatesOfTheirOwn) {
  auto m = stepOf("    %x = transfer %n {to = \"device\"} : f32[64x64]\n    %y = transfer %x {to = \"nvme\"} : f32[64x64]@nvme\n"
                  "    assign %n, %y\n");
  TimedSchedule s = scheduleOf(*m, Options());
  Machine machine = round();
  machine[Rate::DiskWrites] = machine[Rate::Disk] * 4;
  setTimes(s, machine);
  const StepCost step = costOf(s, machine);
  EXPECT_NEAR(step.seconds, 1.25, 1e-3);
  EXPECT_NEAR(step.busy[size_t(EngineKind::Disk)], 1.25, 1e-3);
}

} // namespace cost_model_test
