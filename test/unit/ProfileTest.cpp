// A machine's profile: what is read, written, merged and refused, and the rates between those that were measured.
#include "codegen/CpuTarget.h"
#include <cmath>
#include <gtest/gtest.h>

namespace profile_test {

using namespace zcc;

static std::string whyNot(llvm::StringRef text) {
  auto p = parseProfile(text);
  return p ? "" : llvm::toString(p.takeError());
}

static Profile parsed(llvm::StringRef text) {
  auto p = parseProfile(text);
  if (!p) {
    ADD_FAILURE() << llvm::toString(p.takeError());
    return {};
  }
  return *p;
}

TEST(Profile, WhatIsWrittenReadsBack) {
  Profile p;
  p.cpu = "A \"quoted\" CPU";
  p.whole[Rate::Disk] = 2.1e9;
  p.byThreads[1][Rate::Large] = 9.87e10;
  p.byThreads[16][Rate::Bytes] = 1.23e11;
  p.waysByThreads[2]["conv f32 points 64 256 196"] = "plain";
  p.waysByThreads[2]["matmul f32 nt 20 650 2600"] = Profile::kOwnWay;
  Profile q = parsed(p.json());
  EXPECT_EQ(q.cpu, p.cpu);
  EXPECT_EQ(q.whole, p.whole);
  EXPECT_EQ(q.byThreads, p.byThreads);
  EXPECT_EQ(q.waysByThreads, p.waysByThreads);
  EXPECT_EQ(q.json(), p.json());
}

TEST(Profile, TheWayIsThatOfTheNearestSample) {
  Profile p =
      parsed(R"({"version": 1, "ways": {"2": {"conv f32 points 64 64 3136": "plain", "conv f32 points 512 512 49": "blocked",
                         "conv f32 windows 64 64 784 9": "plain", "conv f32 points 2048 512 49": "own"},
                         "8": {"conv f32 points 64 64 3136": "blocked"}}})");
  EXPECT_EQ(p.wayOf({"conv f32 points", {128, 64, 784}}, 2), "plain");
  EXPECT_EQ(p.wayOf({"conv f32 points", {256, 512, 49}}, 2), "blocked");
  EXPECT_EQ(p.wayOf({"conv f32 points", {4096, 512, 49}}, 2), "") << "its own";
  EXPECT_EQ(p.wayOf({"conv f32 points", {128, 64, 784}}, 7), "plain") << "as with the most threads that are no more";
  EXPECT_EQ(p.wayOf({"conv f32 points", {128, 64, 784}}, 9), "blocked");
  EXPECT_EQ(p.wayOf({"conv f32 points", {128, 64, 784}}, 1), "");
  EXPECT_EQ(p.wayOf({"conv f32 windows", {128, 64, 784, 1}}, 2), "plain");
  EXPECT_EQ(p.wayOf({"conv_grad_input f32 points", {128, 64, 784}}, 2), "");
  p.merge(parsed(R"({"version": 1, "ways": {"2": {"conv f32 points 64 64 3136": "own"}}})"));
  EXPECT_EQ(p.wayOf({"conv f32 points", {256, 512, 49}}, 2), "") << "what was measured anew stands alone";
  EXPECT_EQ(p.wayOf({"conv f32 points", {256, 512, 49}}, 8), "blocked");
}

TEST(Profile, MergingKeepsWhatIsNotMeasuredAnew) {
  Profile p = parsed(R"({"version": 1, "cpu": "a", "rates": {"disk_bytes": 1e9, "link_bytes": 2e9},
                         "threads": {"1": {"memory_bytes": 5, "teams": 7}, "2": {"memory_bytes": 9}}})");
  p.merge(parsed(R"({"version": 1, "cpu": "b", "rates": {"disk_bytes": 3e9}, "threads": {"1": {"memory_bytes": 6}}})"));
  EXPECT_EQ(p.cpu, "b");
  EXPECT_EQ(p.whole, (Profile::Rates{{Rate::Disk, 3e9}, {Rate::Link, 2e9}}));
  EXPECT_EQ(p.byThreads[1], (Profile::Rates{{Rate::Bytes, 6}, {Rate::Teams, 7}}));
  EXPECT_EQ(p.byThreads[2], (Profile::Rates{{Rate::Bytes, 9}}));
}

TEST(Profile, RatesBetweenAndBeyondNumbersOfThreads) {
  Profile p = parsed(R"({"version": 1, "rates": {"disk_bytes": 8, "disk_core_bytes": 4},
                         "threads": {"2": {"f32_large_flops": 200, "memory_bytes": 20, "teams": 1000},
                                     "6": {"f32_large_flops": 400, "memory_bytes": 40, "teams": 600}}})");
  auto at = [&](int threads, Rate r) {
    Machine m(1, 1, 1);
    p.apply(m, threads);
    return m[r];
  };
  EXPECT_EQ(at(1, Rate::Large), 100);
  EXPECT_EQ(at(2, Rate::Large), 200);
  EXPECT_EQ(at(3, Rate::Large), 250);
  EXPECT_EQ(at(12, Rate::Large), 800);
  EXPECT_EQ(at(1, Rate::Bytes), 10);
  EXPECT_EQ(at(12, Rate::Bytes), 40);
  EXPECT_EQ(at(12, Rate::Teams), 600);
  EXPECT_TRUE(std::isinf(at(1, Rate::Teams))) << "one thread makes no team";
  EXPECT_EQ(at(3, Rate::Disk), 8);
  EXPECT_TRUE(std::isinf(at(3, Rate::DiskCores))) << "there are idle cores";
  EXPECT_EQ(at(6, Rate::DiskCores), 4);
  EXPECT_EQ(at(3, Rate::Narrow), 1) << "what was not measured stays";
}

TEST(Profile, DisksWriteAsFastAsTheyReadWhereNothingElseIsKnown) {
  Machine m(1, 1, 1);
  parsed(R"({"version": 1, "rates": {"disk_bytes": 8}})").apply(m, 1);
  EXPECT_EQ(m[Rate::DiskWrites], 8);
  parsed(R"({"version": 1, "rates": {"disk_bytes": 8, "disk_write_bytes": 20}})").apply(m, 1);
  EXPECT_EQ(m[Rate::DiskWrites], 20);
}

TEST(Profile, ShortCollectivesGoAtTheRateOfLongOnesWhereNothingElseIsKnown) {
  Machine m(1, 1, 1);
  parsed(R"({"version": 1, "rates": {"link_bytes": 8}})").apply(m, 1);
  EXPECT_EQ(m[Rate::ShortLink], 8);
  EXPECT_EQ(m[Rate::NearLink], 8);
  parsed(R"({"version": 1, "rates": {"link_bytes": 8, "short_link_bytes": 20, "collectives": 5}})").apply(m, 1);
  EXPECT_EQ(m[Rate::ShortLink], 20);
  EXPECT_EQ(m[Rate::NearLink], 20);
  EXPECT_EQ(m[Rate::Collectives], 5);
}

TEST(Profile, RanksOfAMachineShareItsMemoryAndDisk) {
  Profile p = parsed(
      R"({"version": 1, "rates": {"disk_bytes": 12, "disk_write_bytes": 24, "link_bytes": 7}, "threads": {"1": {"f32_large_flops": 100, "memory_bytes": 20},
                                                   "4": {"f32_large_flops": 400, "memory_bytes": 40}}})");
  auto at = [&](int threads, int ranks, Rate r) {
    Machine m(1, 1, 1);
    p.apply(m, threads, ranks);
    return m[r];
  };
  EXPECT_EQ(at(1, 1, Rate::Bytes), 20);
  EXPECT_EQ(at(1, 4, Rate::Bytes), 10);
  EXPECT_EQ(at(2, 2, Rate::Bytes), 20);
  EXPECT_EQ(at(4, 4, Rate::Bytes), 40) << "ranks of other machines";
  EXPECT_EQ(at(1, 4, Rate::Large), 100);
  EXPECT_EQ(at(1, 4, Rate::Disk), 3);
  EXPECT_EQ(at(2, 8, Rate::Disk), 6) << "ranks of other machines have other disks";
  EXPECT_EQ(at(8, 2, Rate::Disk), 12);
  EXPECT_EQ(at(2, 2, Rate::DiskWrites), 12);
  EXPECT_EQ(at(1, 4, Rate::Link), 7);
}

TEST(Profile, OlderOnesLackRates) {
  Profile p =
      parsed(R"({"version": 1, "threads": {"1": {"f32_large_flops": 100, "f32_convolution_flops": 80, "memory_bytes": 20}}})");
  Machine m(1, 1, 1);
  p.apply(m, 1);
  EXPECT_EQ(m[Rate::Operations], 100);
  EXPECT_EQ(m[Rate::ConvolutionWeight], 80);
  EXPECT_EQ(m[Rate::NearBytes], 20);
  EXPECT_EQ(m[Rate::LowConvolutionWeight], 1);
}

TEST(Profile, TheTargetAnswersByIt) {
  EXPECT_EQ(cpuTarget("avx2", 1)->ratesFrom(), "shipped defaults");
  Profile p = parsed(R"({"version": 1, "threads": {"1": {"f32_thin_flops": 5}}})");
  p.path = "some.json";
  auto target = cpuTarget("avx2", 1, p);
  EXPECT_EQ(target->ratesFrom(), "some.json");
  EXPECT_EQ(target->machine()[Rate::Thin], 5);
  EXPECT_EQ(target->machine()[Rate::Large], cpuTarget("avx2", 1)->machine()[Rate::Large]);
}

TEST(Profile, HostileTextsAreRefusedByName) {
  EXPECT_NE(whyNot(""), "");
  EXPECT_NE(whyNot("{\"version\": 1, \"rates\": {\"disk_by"), "");
  EXPECT_NE(whyNot("\"text\""), "");
  EXPECT_NE(whyNot("[1, 2]"), "");
  EXPECT_NE(whyNot(std::string(100000, '[')), "");
  EXPECT_NE(whyNot("{\"version\": 1, \"rates\": " + std::string(100000, '{')), "");
  EXPECT_NE(whyNot("{\"rates\": {}}").find("\"version\": 1"), std::string::npos);
  EXPECT_NE(whyNot("{\"version\": 2}").find("\"version\": 1"), std::string::npos);
  auto of = [](const char *members) { return whyNot(std::string("{\"version\": 1, ") + members + "}"); };
  EXPECT_EQ(of(R"("cpu": 3)"), "'cpu' must be a text");
  EXPECT_EQ(of(R"("rates": 3)"), "'rates' must be an object of rates");
  EXPECT_EQ(of(R"("rates": {"disk_bytes": -1})"), "'rates.disk_bytes' must be a number above 0");
  EXPECT_EQ(of(R"("rates": {"disk_bytes": 0})"), "'rates.disk_bytes' must be a number above 0");
  EXPECT_EQ(of(R"("rates": {"disk_bytes": "fast"})"), "'rates.disk_bytes' must be a number above 0");
  EXPECT_EQ(of(R"("rates": {"disk_byte": 1})"), "there is no rate 'rates.disk_byte'");
  EXPECT_EQ(of(R"("rates": {"teams": 1})"), "'rates.teams' belongs into 'threads.N'");
  EXPECT_EQ(of(R"("threads": {"1": {"disk_bytes": 1}})"), "'threads.1.disk_bytes' belongs into 'rates'");
  EXPECT_EQ(of(R"("threads": {"1": 5})"), "'threads.1' must be an object of rates");
  EXPECT_EQ(of(R"("threads": {"0": {}})"), "'threads.0' must be named by a number of threads");
  EXPECT_EQ(of(R"("threads": {"all": {}})"), "'threads.all' must be named by a number of threads");
  EXPECT_EQ(of(R"("ways": 3)"), "'ways' must be an object with an object for each number of threads");
  EXPECT_EQ(of(R"("ways": {"1": 3})"), "'ways.1' must be an object of ways");
  EXPECT_EQ(of(R"("ways": {"1": {"sort 5": "own"}})"), "'ways.1.sort 5' is nothing that has ways");
  EXPECT_EQ(of(R"("ways": {"1": {"conv f32 points": "own"}})"), "'ways.1.conv f32 points' is nothing that has ways");
  EXPECT_EQ(of(R"("ways": {"1": {"conv f32 points 0 1": "own"}})"), "'ways.1.conv f32 points 0 1' is nothing that has ways");
  EXPECT_EQ(of(R"("ways": {"1": {"conv f32 points 5": "sgemm"}})"), "'ways.1.conv f32 points 5' must be own, plain, blocked");
  EXPECT_EQ(of(R"("disk": {})"), "a profile has no 'disk'; there are version, cpu, rates, threads and ways");
}

} // namespace profile_test
