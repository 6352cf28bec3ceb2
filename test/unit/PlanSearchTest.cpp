// The search over plans beside one that looks at every plan.
#include "passes/plan/PlanSearch.h"
#include "ir/Text.h"
#include "passes/PassManager.h"
#include "passes/Target.h"
#include "passes/TimedSchedule.h"
#include "passes/memory/RecomputationLadder.h"
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

static std::unique_ptr<Module> differentiated() {
  auto m = parse(kText, "test");
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
