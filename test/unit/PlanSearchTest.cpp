// The search over plans beside one that looks at every plan.
#include "passes/plan/PlanSearch.h"
#include "ir/Text.h"
#include "passes/PassManager.h"
#include "passes/Target.h"
#include "passes/TimedSchedule.h"
#include "passes/memory/RecomputationLadder.h"
#include "passes/plan/PlanGap.h"
#include <gtest/gtest.h>

namespace plan_search_test {

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

namespace {
/// A module with a disk and so much memory that something has to move.
struct Budgeted {
  std::unique_ptr<Module> m = differentiated();
  Options options = [] {
    Options o;
    o.nvmeBudget = int64_t(1) << 30;
    o.memoryBudget = int64_t(190) << 10;
    return o;
  }();
  PassContext ctx{options, nullptr};
  std::vector<Axis> axes = openAxes(*m, ctx);
};
} // namespace

TEST(PlanSearch, WhatDecidesNothingIsNotTried) {
  Budgeted b;
  auto &[m, options, ctx, axes] = b;
  auto axisOf = [&](llvm::StringRef name) {
    return llvm::find_if(axes, [&](const Axis &a) { return a.name == name; }) - axes.begin();
  };
  const size_t states = axisOf("states"), window = axisOf("window"), params = axisOf("parameters"), late = axisOf("late updates");
  ASSERT_LT(std::max({states, window, params, late}), axes.size());
  Point plain(axes.size(), 0), narrow = plain, away = plain, both = plain;
  narrow[window] = both[window] = 1;
  away[states] = both[states] = 1;
  Trials trials(*m, ctx, axes);
  ASSERT_FALSE(bool(trials.carryOut({plain, narrow, away, both})));
  EXPECT_EQ(trials.all().size(), 3u) << "nothing moves: a window is no decision";
  EXPECT_EQ(trials.at(narrow).ns, trials.at(plain).ns);
  Point fetched = plain, fetchedLate = plain, awayLate = away;
  fetched[params] = fetchedLate[params] = fetchedLate[late] = awayLate[late] = 1;
  EXPECT_EQ(trials.key(fetchedLate), fetched) << "no states move: no update waits for them";
  EXPECT_EQ(trials.key(awayLate), awayLate);
}

TEST(PlanSearch, WhatIsExpectedChangesNothing) {
  Budgeted b;
  auto &[m, options, ctx, axes] = b;
  std::vector<Point> points(axes.size() + 1, Point(axes.size(), 0));
  for (size_t a = 0; a < axes.size(); ++a)
    points[a + 1][a] = axes[a].levels - 1;
  Trials expecting(*m, ctx, axes), plain(*m, ctx, axes);
  for (size_t i = 0; i < points.size(); ++i) {
    ASSERT_FALSE(bool(expecting.carryOut(points[i], llvm::ArrayRef(points).drop_front(i + 1))));
    ASSERT_FALSE(bool(plain.carryOut(points[i])));
    ASSERT_EQ(expecting.all().size(), plain.all().size()) << "what nobody has asked for does not count";
    EXPECT_EQ(expecting.at(points[i]).ns, plain.at(points[i]).ns) << i;
    EXPECT_EQ(expecting.at(points[i]).needs.memory, plain.at(points[i]).needs.memory) << i;
  }
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
  for (int64_t part = 0; part <= 24; ++part) {
    const int64_t bytes = most - (most - least) * part / 24;
    o.memoryBudget = bytes;
    search([&](const PlanSearch &s, const Trial &taken) {
      EXPECT_TRUE(s.hasFit()) << bytes;
      EXPECT_GE(taken.ns, ns) << bytes;
      ns = taken.ns;
      if (part % 12)
        return;
      EXPECT_GE(s.trials().all().size(), before) << bytes;
      before = s.trials().all().size();
    });
  }
}

TEST(PlanSearch, WhatIsHardlyFasterThanThePlainPlanIsAQuirk) {
  auto takes = [](int64_t ns) {
    Trial t;
    t.isPossible = true;
    t.ns = ns;
    return t;
  };
  const Trial plain = takes(1'000'000);
  EXPECT_TRUE(isQuirk(takes(999'999), plain));
  EXPECT_TRUE(isQuirk(takes(999'100), plain));
  EXPECT_FALSE(isQuirk(takes(999'000), plain)) << "a thousandth is worth it";
  EXPECT_FALSE(isQuirk(takes(1'000'000), plain));
  EXPECT_FALSE(isQuirk(takes(1'000'001), plain));
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

// ---- what is left open

/// Blocks of unequal parameters, one of them large: more plans than can all be tried.
static std::string blocksOf(int count) {
  std::string params = "  param %e : f32[256x64] = zero {trained}\n", body;
  std::string last = "%x0";
  for (int i = 0; i < count; ++i) {
    std::string n = std::to_string(i), wide = std::to_string(64 * (1 + i % 3));
    params += "  param %w" + n + " : f32[64x" + wide + "] = zero {trained}\n  param %v" + n + " : f32[" + wide +
              "x64] = zero {trained}\n";
    body += "    %a" + n + " = matmul " + last + ", %w" + n + " : f32[128x" + wide + "]\n    %g" + n + " = gelu %a" + n +
            " : f32[128x" + wide + "]\n    %b" + n + " = matmul %g" + n + ", %v" + n + " : f32[128x64]\n    %x" +
            std::to_string(i + 1) + " = add " + last + ", %b" + n + " : f32[128x64]\n";
    last = "%x" + std::to_string(i + 1);
  }
  return "module @m {\n" + params + "  func @micro(%x : f32[128x256]) -> (f32[]) {\n    %x0 = matmul %x, %e : f32[128x64]\n" +
         body + "    %q = mul " + last + ", " + last + " : f32[128x64]\n    %s = reduce_sum %q {axes = [0, 1]} : f32[1x1]\n" +
         "    %loss = reshape %s {dims = []} : f32[]\n    return %loss\n  }\n}\n";
}

/// The time of what is taken, or INT64_MAX, and the bytes.
static std::pair<int64_t, int64_t> searched(const Module &m, const Options &o) {
  PassContext ctx{o, nullptr};
  std::vector<Axis> axes = openAxes(m, ctx);
  PlanSearch s(m, ctx, axes);
  EXPECT_FALSE(bool(s.run()));
  const Trial &t = s.trials().at(s.taken());
  return {s.hasFit() ? t.ns : INT64_MAX, t.needs.memory};
}

/// What needs least where hardly anything fits.
static int64_t leastBytes(const Module &m, Options o) {
  o.memoryBudget = 1;
  return searched(m, o).second;
}

/// Layers none of which is as wide as another.
static std::string unlike(int layers) {
  std::string params, body, from = "%x";
  auto width = [](int i) { return std::to_string(64 + i * 40 % 104); };
  for (int i = 0; i < layers; ++i) {
    const std::string n = std::to_string(i), in = width(i), out = width(i + 1);
    params += "  param %w" + n + " : f32[" + in + "x" + out + "] = zero {trained}\n";
    body += "    %a" + n + " = matmul " + from + ", %w" + n + " : f32[512x" + out + "]\n";
    body += "    %h" + n + " = gelu %a" + n + " : f32[512x" + out + "]\n";
    from = "%h" + n;
  }
  return "module @m {\n" + params + "  func @micro(%x : f32[512x" + width(0) + "]) -> (f32[]) {\n" + body +
         "    %s = reduce_sum " + from +
         " {axes = [0, 1]} : f32[1x1]\n    %loss = reshape %s {dims = []} : f32[]\n    return %loss\n  }\n}\n";
}

TEST(PlanSearch, ClimbsFromWhatNeedsLeast) {
  std::unique_ptr<Module> m = differentiated(unlike(12));
  Options o;
  const int64_t least = leastBytes(*m, o);
  int64_t before = INT64_MAX;
  bool hasClimbed = false;
  for (int64_t percent = 100; percent <= 200; percent += 5) {
    o.memoryBudget = least / 100 * percent + 100;
    PassContext ctx{o, nullptr};
    std::vector<Axis> axes = openAxes(*m, ctx);
    PlanSearch s(*m, ctx, axes);
    ASSERT_FALSE(bool(s.run()));
    ASSERT_TRUE(s.hasFit()) << percent;
    EXPECT_LE(s.trials().at(s.taken()).ns, before) << percent << " % of the least: more memory is slower";
    before = s.trials().at(s.taken()).ns;
    for (size_t a = 0; a < axes.size(); ++a)
      hasClimbed |= axes[a].near && s.taken()[a] >= axes[a].levels;
  }
  EXPECT_TRUE(hasClimbed) << "no plan between those of the ladder is taken";
}

TEST(PlanSearch, ChangesWhatAlmostFits) {
  std::unique_ptr<Module> m = differentiated(unlike(12));
  Options o;
  const int64_t least = leastBytes(*m, o);
  bool hasGained = false;
  for (int64_t percent : {155, 165}) {
    o.memoryBudget = least / 100 * percent;
    PassContext ctx{o, nullptr};
    std::vector<Axis> axes = openAxes(*m, ctx), unchanged = axes;
    for (Axis &a : unchanged)
      a.changes = nullptr;
    PlanSearch with(*m, ctx, axes), without(*m, ctx, unchanged);
    ASSERT_FALSE(bool(with.run()));
    ASSERT_FALSE(bool(without.run()));
    const int64_t ns = with.trials().at(with.taken()).ns, nsBefore = without.trials().at(without.taken()).ns;
    EXPECT_LE(ns, nsBefore) << percent << " % of the least";
    hasGained |= ns < nsBefore;
  }
  EXPECT_TRUE(hasGained) << "no changed plan is taken";
}

/// No plan that keeps one value more and one less is faster than what is taken.
TEST(PlanSearch, SwapsWhatIsKept) {
  std::unique_ptr<Module> m = differentiated(unlike(12));
  Options o;
  const int64_t least = leastBytes(*m, o);
  for (int64_t percent : {120, 190, 200}) {
    o.memoryBudget = least / 100 * percent;
    PassContext ctx{o, nullptr};
    std::vector<Axis> axes = openAxes(*m, ctx);
    PlanSearch s(*m, ctx, axes);
    ASSERT_FALSE(bool(s.run()));
    const Point taken = s.taken();
    ASSERT_EQ(axes.size(), 1u);
    std::vector<Point> swapped;
    for (unsigned less : axes[0].near(taken[0]))
      for (unsigned change : axes[0].changes(less))
        if (std::optional<unsigned> level = axes[0].changed(less, change))
          swapped.push_back({*level});
    Trials trials(*m, ctx, axes);
    ASSERT_FALSE(bool(trials.carryOut(swapped)));
    int64_t best = INT64_MAX;
    for (const Point &p : swapped)
      if (trials.at(p).isPossible && fits(trials.at(p).needs, o))
        best = std::min(best, trials.at(p).ns);
    EXPECT_LE(s.trials().at(taken).ns, best) << percent << " % of the least";
  }
}

TEST(PlanSearch, LooksCloserBetweenSteps) {
  std::string params, body;
  for (int i = 0; i < 48; ++i) {
    const std::string n = std::to_string(i), next = std::to_string(i + 1);
    params += "  param %w" + n + " : f32[64x256] = zero {trained}\n  param %v" + n + " : f32[256x64] = zero {trained}\n";
    body += "    %a" + n + " = matmul %x" + n + ", %w" + n + " : f32[128x256]\n    %g" + n + " = gelu %a" + n +
            " : f32[128x256]\n    %t" + n + " = tanh %g" + n + " : f32[128x256]\n    %s" + n + " = sigmoid %t" + n +
            " : f32[128x256]\n    %b" + n + " = matmul %s" + n + ", %v" + n + " : f32[128x64]\n    %x" + next + " = add %x" + n +
            ", %b" + n + " : f32[128x64]\n";
  }
  std::unique_ptr<Module> m = differentiated("module @m {\n" + params + "  func @micro(%x0 : f32[128x64]) -> (f32[]) {\n" + body +
                                             "    %s = reduce_sum %x48 {axes = [0, 1]} : f32[1x1]\n"
                                             "    %loss = reshape %s {dims = []} : f32[]\n    return %loss\n  }\n}\n");
  Options o;
  const int64_t least = leastBytes(*m, o);
  int64_t before = INT64_MAX;
  for (int64_t percent : {102, 114, 122}) {
    o.memoryBudget = least / 100 * percent;
    PassContext ctx{o, nullptr};
    std::vector<Axis> axes = openAxes(*m, ctx), coarse = axes;
    for (Axis &a : coarse)
      a.before = nullptr;
    PlanSearch with(*m, ctx, axes), without(*m, ctx, coarse);
    ASSERT_FALSE(bool(with.run()));
    ASSERT_FALSE(bool(without.run()));
    const int64_t ns = with.trials().at(with.taken()).ns, nsBefore = without.trials().at(without.taken()).ns;
    EXPECT_LT(ns, nsBefore) << percent << " % of the least: no plan between those of the ladder is taken";
    EXPECT_LE(ns, before) << percent << " % of the least: more memory is slower";
    before = ns;
  }
}

TEST(PlanSearch, LooksNoFurtherThanForWhatFits) {
  std::unique_ptr<Module> m = differentiated(blocksOf(4));
  Options o;
  o.nvmeBudget = int64_t(1) << 30;
  const int64_t least = leastBytes(*m, o);
  for (int64_t bytes : {least - 1, least, 2 * least}) {
    o.memoryBudget = bytes;
    PassContext ctx{o, nullptr};
    std::vector<Axis> axes = openAxes(*m, ctx);
    PlanSearch first(*m, ctx, axes), whole(*m, ctx, axes);
    ASSERT_FALSE(bool(first.runLeast()));
    ASSERT_FALSE(bool(whole.run()));
    const size_t tried = first.trials().all().size(), all = whole.trials().all().size();
    EXPECT_EQ(first.hasFit(), bytes >= least) << bytes;
    EXPECT_EQ(whole.hasFit(), bytes >= least) << bytes;
    EXPECT_TRUE(first.hasFit() ? tried < all : tried == all) << bytes;
  }
}

TEST(PlanSearch, LooksForWhatNeedsLeastPastLevelsThatNeedNoLess) {
  std::unique_ptr<Module> m = differentiated();
  Options o;
  o.memoryBudget = 1;
  o.nvmeBudget = 1 << 30;
  PassContext ctx{o, nullptr};
  Axis moves, idle;
  moves.levels = idle.levels = 65;
  moves.note = [](Module &m, unsigned level) {
    if (level < 20 || level >= 40)
      return;
    m.attrs.set("transfer_window", int64_t(0));
    for (const char *name : {"w", "v"})
      for (const char *place : {"place", "states_place"})
        m.global(name)->attrs.set(place, std::string("nvme"));
  };
  idle.note = [](Module &, unsigned) {};
  const std::vector<Axis> axes = {moves, idle};
  PlanSearch s(*m, ctx, axes);
  ASSERT_FALSE(bool(s.runLeast()));
  EXPECT_FALSE(s.hasFit());
  EXPECT_LT(s.trials().at(s.taken()).needs.memory, s.trials().at(s.plain()).needs.memory);
}

TEST(PlanSearch, WhatIsLeftOpenIsNotSlowerThanWhatIsFixed) {
  using Fix = void (*)(Options &);
  const std::pair<const char *, Fix> fixes[] = {
      {"optimizer=none", [](Options &o) { o.offloadOptimizer = Offload::None; }},
      {"optimizer=nvme", [](Options &o) { o.offloadOptimizer = Offload::Nvme; }},
      {"param=none", [](Options &o) { o.offloadParam = Offload::None; }},
      {"param=nvme", [](Options &o) { o.offloadParam = Offload::Nvme; }},
      {"checkpoint=none", [](Options &o) { o.checkpointActivations = 0; }},
      {"activations=none", [](Options &o) { o.offloadActivations = Offload::None; }},
  };
  std::unique_ptr<Module> m = differentiated(blocksOf(4));
  Options o;
  o.nvmeBudget = int64_t(1) << 30;
  const int64_t least = leastBytes(*m, o);
  int64_t before = INT64_MAX;
  for (int64_t percent : {130, 170}) {
    o.memoryBudget = least / 100 * percent;
    const int64_t ns = searched(*m, o).first;
    EXPECT_LE(ns, before) << percent << " % of the least: more memory is slower";
    before = ns;
    for (auto &[name, fix] : fixes) {
      Options fixed = o;
      fix(fixed);
      EXPECT_LE(ns, searched(*m, fixed).first) << percent << " % of the least, " << name;
    }
  }
  for (int64_t bytes : {least, least - 1}) {
    o.memoryBudget = bytes;
    EXPECT_EQ(searched(*m, o).first == INT64_MAX, bytes < least) << "what is printed as the least is that";
  }
}

} // namespace plan_search_test
