// Notes the plan that fits the budgets in the least predicted time: what of the forward the backward computes again, which
// states and parameters live in host memory or on a disk, and how much of what is fetched is there at once.
//
//   param %w : f32[768x768] = ... {trained}         param %w : f32[768x768] = ... {states_place = "nvme", trained}
//   %h = gelu %a                             ->     %h = gelu %a {!recompute = 0}
//
// What a flag gives is fixed, and so is what is noted already; the rest is open. recompute-activations, offload-states and
// schedule-transfers do what is noted.
#include "ir/Equal.h"
#include "passes/Refusal.h"
#include "passes/plan/PlanBound.h"
#include "passes/plan/PlanGap.h"
#include "passes/plan/PlanSearch.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"

using namespace zcc;

/// With other options than those asked for: what a plan needs that would fit, or nullopt.
static llvm::Expected<std::optional<Needs>> leastWith(const Module &m, const Options &o, const PassContext &ctx) {
  PassContext other{o, ctx.target};
  std::unique_ptr<Module> copy = m.clone();
  if (Function *micro = copy->function("micro"); micro && o.checkpointActivations != ctx.options.checkpointActivations)
    for (auto &n : micro->nodes) // what choose-checkpoints has noted
      for (const char *note : {"recompute", "recompute_shared"})
        n->attrs.erase(note);
  std::vector<Axis> axes = openAxes(*copy, other);
  PlanSearch search(*copy, other, axes);
  if (auto e = search.runLeast())
    return e;
  if (!search.hasFit())
    return std::nullopt;
  return search.trials().at(search.taken()).needs;
}

/// The smallest changes to the command with which something fits.
static llvm::Error advise(PlanReport &r, const Module &m, const PassContext &ctx) {
  auto mib = [](int64_t bytes) { return std::to_string(((bytes - 1) >> 20) + 1) + "MiB"; };
  const Options &given = ctx.options;
  const bool trains = !given.inference;
  const bool keepsStates = trains && given.offloadOptimizer == Offload::None, keepsParams = given.offloadParam == Offload::None;
  const Needs over = excessOf(r.taken.needs, given);
  struct Change {
    std::string flags;
    bool isOpen;
    void (*apply)(Options &);
  };
  const Change changes[] = {
      {"--checkpoint-activations=auto", trains && given.checkpointActivations >= 0,
       [](Options &o) { o.checkpointActivations = Options::kAuto; }},
      {"", !given.nvmeBudget || over.disk, [](Options &o) { o.nvmeBudget = INT64_MAX; }}, // --nvme, by what it takes
      {trains ? "--offload-optimizer=auto --offload-param=auto" : "--offload-param=auto", keepsStates || keepsParams,
       [](Options &o) { o.offloadOptimizer = o.offloadParam = Offload::Auto; }},
  };
  Options o = given;
  std::string flags;
  for (const Change &c : changes) {
    if (!c.isOpen)
      continue;
    c.apply(o);
    flags += (flags.empty() || c.flags.empty() ? "" : " ") + c.flags;
    auto least = leastWith(m, o, ctx);
    if (!least)
      return least.takeError();
    if (!*least)
      continue;
    std::string disk = (*least)->disk > given.nvmeBudget ? "--nvme=" + mib((*least)->disk) : "";
    r.advice.push_back("it fits with " + flags + (flags.empty() || disk.empty() ? "" : " ") + disk);
    break;
  }
  if (over.memory)
    r.advice.push_back("the least that was found needs --memory=" + mib(r.taken.needs.memory) + "; a smaller batch needs less");
  return llvm::Error::success();
}

/// A gap above such a part of the bound is explained.
constexpr int64_t kTold = 10;

static llvm::Expected<PlanReport> reportOf(const PlanSearch &s, const Module &m, llvm::ArrayRef<Axis> axes,
                                           const PassContext &ctx) {
  PlanReport r;
  r.fits = s.hasFit();
  r.plain = s.trials().choice(s.plain());
  r.taken = s.trials().choice(s.taken());
  if (s.second())
    r.second = s.trials().choice(*s.second());
  r.tried = s.trials().all().size();
  int64_t compute = INT64_MAX;
  for (auto &[p, t] : s.trials().all())
    if (t.isPossible)
      compute = std::min(compute, t.busyNs[size_t(EngineKind::Compute)] - t.takenNs);
  auto bound = boundOf(m, ctx, compute);
  if (!bound)
    return bound.takeError();
  r.bound = *bound;
  if (r.fits && r.taken.ns > r.bound.ns() + r.bound.ns() / kTold) {
    std::unique_ptr<Module> copy = m.clone();
    note(*copy, axes, s.taken());
    if (auto e = carryOut(*copy, ctx))
      return e;
    r.gap = gapsOf(*copy, ctx, ctx.options.memoryBudget - r.taken.needs.memory);
  }
  if (!r.fits && !ctx.options.triesMoreTiles) // they say themselves what would fit
    if (auto e = advise(r, m, ctx))
      return e;
  return r;
}

llvm::Expected<bool> zcc::choosePlan(Module &m, PassContext &ctx) {
  if (!m.function(ctx.options.inference ? "eval" : "micro") || !ctx.options.seeksPlan())
    return false;
  if (!ctx.options.inference && !m.has(Property::Differentiated))
    return refuse("a plan is chosen behind differentiate");
  std::vector<Axis> axes = openAxes(m, ctx);
  Point taken;
  { // its threads may read the module until it is gone
    PlanSearch search(m, ctx, axes);
    if (auto e = search.run())
      return e;
    auto found = reportOf(search, m, axes, ctx);
    if (!found)
      return found.takeError();
    ctx.search = std::make_shared<PlanReport>(std::move(*found));
    taken = search.taken();
  }
  const uint64_t before = hashOf(m);
  note(m, axes, taken);
  return hashOf(m) != before; // what is noted may be what is said of no decision
}
