// The search over plans beside one that looks at every plan.
#include "passes/plan/PlanSearch.h"
#include "ir/Text.h"
#include "passes/PassManager.h"
#include "passes/Target.h"
#include "passes/TimedSchedule.h"
#include "passes/memory/RecomputationLadder.h"
#include "passes/plan/PlanGap.h"
#include <gtest/gtest.h>

using namespace zcc;

static constexpr const char *kText = R"(
module @m {
  param %w : f32[64x64] = zero {trained}
  param %v : f32[64x64] = zero {trained}
  func @micro(%x : f32[32x64]) -> (f32[]) {
    %a = matmul %x, %w : f32[32x64]
    %h = gelu %a : f32[32x64]
    %b = matmul %h, %v : f32[32x64]
    %s = reduce_sum %b {axes = [0, 1]} : f32[1x1]
    %loss = reshape %s {dims = []} : f32[]
    return %loss
  }
}
)";

static std::unique_ptr<Module> differentiated(const std::string &text = kText) {
  auto m = parse(text, "test");
  Options o;
  DumpOptions quiet = DumpOptions::quiet();
  PassManager pm(o, quiet);
  pm.add("differentiate");
  EXPECT_FALSE(bool(pm.run(**m)));
  return std::move(*m);
}

namespace {
struct Found {
  int64_t ns = INT64_MAX, memory = INT64_MAX; ///< the fastest that fits, and the least that any plan needs
};
} // namespace

/// Every set of nodes, states, parameters, with little and with much under way, updates at once and late.
static Found exhaustive(const Module &m, const PassContext &ctx) {
  Found best;
  std::vector<RecomputeNotes> again = allRecomputations(*m.function("micro"), kTriedAll);
  EXPECT_GE(again.size(), 8u);
  for (const RecomputeNotes &notes : again)
    for (unsigned set = 0; set < 128; ++set) {
      std::unique_ptr<Module> copy = m.clone();
      note(*copy->function("micro"), notes);
      unsigned bit = 0;
      for (const char *name : {"w", "v"})
        for (const char *place : {"place", "states_place"})
          if (set >> bit++ & 1)
            copy->global(name)->attrs.set(place, std::string("nvme"));
      if (set >> 4 & 1)
        copy->attrs.set("transfer_window", int64_t(0));
      if (set >> 5 & 1)
        copy->attrs.set("max_reuse", int64_t(0));
      for (auto &g : copy->globals) // of those whose states move
        if (set >> 6 & 1 && g->attrs.has("states_place"))
          g->attrs.set("late", int64_t(1));
      if (llvm::Error e = carryOut(*copy, ctx)) {
        ADD_FAILURE() << llvm::toString(std::move(e));
        return best;
      }
      Needs n = needsOf(*copy, ctx.options, ctx.target);
      best.memory = std::min(best.memory, n.memory);
      if (fits(n, ctx.options))
        best.ns = std::min(best.ns, int64_t(costOfStep(*copy, ctx.options, machineOf(ctx.target)).seconds * 1e9 + 0.5));
    }
  return best;
}

TEST(PlanSearch, FindsWhatLookingAtEveryPlanFinds) {
  std::unique_ptr<Module> m = differentiated();
  Options o;
  o.nvmeBudget = int64_t(1) << 30;
  int64_t before = 0;
  for (int64_t kib : {400, 190, 130, 90, 20}) {
    o.memoryBudget = kib << 10;
    PassContext ctx{o, nullptr};
    std::vector<Axis> axes = openAxes(*m, ctx);
    PlanSearch search(*m, ctx, axes);
    ASSERT_FALSE(bool(search.run()));
    Found best = exhaustive(*m, ctx);
    const Trial &taken = search.trials().at(search.taken());
    EXPECT_EQ(search.hasFit(), best.ns != INT64_MAX) << kib;
    if (search.hasFit()) {
      EXPECT_EQ(taken.ns, best.ns) << kib;
      EXPECT_GE(taken.ns, before) << "less memory is not faster";
      before = taken.ns;
    } else {
      EXPECT_EQ(taken.needs.memory, best.memory) << kib;
    }
  }
  EXPECT_GT(before, 0);
}

TEST(PlanSearch, WhatDecidesNothingIsNotTried) {
  std::unique_ptr<Module> m = differentiated();
  Options o;
  o.nvmeBudget = int64_t(1) << 30;
  o.memoryBudget = int64_t(190) << 10;
  PassContext ctx{o, nullptr};
  std::vector<Axis> axes = openAxes(*m, ctx);
  auto axisOf = [&](llvm::StringRef name) {
    return llvm::find_if(axes, [&](const Axis &a) { return a.name == name; }) - axes.begin();
  };
  const size_t states = axisOf("states"), window = axisOf("window");
  ASSERT_LT(std::max(states, window), axes.size());
  Point plain(axes.size(), 0), narrow = plain, away = plain, both = plain;
  narrow[window] = both[window] = 1;
  away[states] = both[states] = 1;
  Trials trials(*m, ctx, axes);
  ASSERT_FALSE(bool(trials.carryOut({plain, narrow, away, both})));
  EXPECT_EQ(trials.all().size(), 3u) << "nothing moves: a window is no decision";
  EXPECT_EQ(trials.at(narrow).ns, trials.at(plain).ns);
}

TEST(PlanSearch, TriesLessWhereMoreFits) {
  std::string text = "module @m {\n  param %w : f32[64x64] = zero {trained}\n  func @micro(%x : f32[32x64]) -> (f32[]) {\n";
  std::string last = "%x";
  for (int i = 0; i < 16; ++i) {
    std::string n = std::to_string(i);
    text += "    %a" + n + " = matmul " + last + ", %w : f32[32x64]\n    %h" + n + " = gelu %a" + n + " : f32[32x64]\n";
    last = "%h" + n;
  }
  text += "    %s = reduce_sum " + last + " {axes = [0, 1]} : f32[1x1]\n    %loss = reshape %s {dims = []} : f32[]\n" +
          "    return %loss\n  }\n}\n";
  std::unique_ptr<Module> m = differentiated(text);
  Options o;
  o.memoryBudget = 1;
  o.nvmeBudget = int64_t(1) << 30;
  int64_t most = 0, least = 0, ns = 0;
  size_t before = 0;
  auto search = [&](auto look) {
    PassContext ctx{o, nullptr};
    std::vector<Axis> axes = openAxes(*m, ctx);
    PlanSearch s(*m, ctx, axes);
    ASSERT_FALSE(bool(s.run()));
    look(s, s.trials().at(s.taken()));
  };
  search([&](const PlanSearch &s, const Trial &taken) {
    EXPECT_FALSE(s.hasFit());
    most = s.trials().at(s.plain()).needs.memory;
    least = taken.needs.memory;
  });
  ASSERT_LT(least, most);
  for (int64_t bytes : {most, (most + least) / 2, least}) {
    o.memoryBudget = bytes;
    search([&](const PlanSearch &s, const Trial &taken) {
      EXPECT_TRUE(s.hasFit()) << bytes;
      EXPECT_GE(taken.ns, ns) << bytes;
      EXPECT_GE(s.trials().all().size(), before) << bytes;
      before = s.trials().all().size();
      ns = taken.ns;
    });
  }
}

TEST(PlanSearch, ExplainsWhatADiskWaitsFor) {
  std::unique_ptr<Module> m = differentiated();
  Options o;
  o.nvmeBudget = int64_t(1) << 30;
  PassContext ctx{o, nullptr};
  for (const char *name : {"w", "v"})
    m->global(name)->attrs.set("states_place", std::string("nvme"));
  ASSERT_FALSE(bool(carryOut(*m, ctx)));
  std::vector<std::string> gaps = gapsOf(*m, ctx, 3 << 20);
  ASSERT_EQ(gaps.size(), 2u);
  EXPECT_EQ(gaps[0].find("disk is "), 0u) << gaps[0];
  EXPECT_NE(gaps[1].find("3.0 MiB of the budget"), std::string::npos) << gaps[1];
}
