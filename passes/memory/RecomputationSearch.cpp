// Runs the rest of the pipeline for each rung of the ladder, and compares what comes of it.
#include "passes/memory/RecomputationSearch.h"
#include "passes/Pipeline.h"
#include "passes/Target.h"
#include "passes/memory/Budget.h"
#include <atomic>
#include <thread>

using namespace zcc;

/// Where nothing is known of the machine: one core.
static Machine machineOf(const PassContext &ctx) { return ctx.target ? ctx.target->machine() : Machine(1e11, 1e10, 5e9); }

void zcc::note(Function &f, const RecomputeNotes &notes) {
  unsigned at = 0;
  for (auto &n : f.nodes)
    if (auto note = notes.find(at++); note != notes.end())
      n->attrs.set("recompute", note->second);
}

static llvm::Error carryOut(Trial &t, const Module &m, const PassContext &ctx) {
  static const DumpOptions quiet = DumpOptions::quiet();
  std::unique_ptr<Module> copy = m.clone();
  note(*copy->function("micro"), t.notes);
  PassManager pm(ctx.options, quiet, ctx.target);
  buildBehindCheckpoints(pm, ctx.options);
  if (llvm::Error e = pm.run(*copy))
    return e;
  t.bytes = memoryOf(*copy, ctx.target);
  t.seconds = costOfStep(*copy, ctx.options, machineOf(ctx)).seconds;
  return llvm::Error::success();
}

/// Carries out all trials, several at once; the first error, in their order.
static llvm::Error carryOut(std::vector<Trial> &trials, const Module &m, const PassContext &ctx) {
  std::vector<std::string> failed(trials.size());
  std::atomic<size_t> next = 0;
  auto work = [&] {
    for (size_t i; (i = next++) < trials.size();)
      if (llvm::Error e = carryOut(trials[i], m, ctx))
        failed[i] = llvm::toString(std::move(e));
  };
  std::vector<std::thread> others;
  for (unsigned i = 1; i < std::min<size_t>(std::thread::hardware_concurrency(), trials.size()); ++i)
    others.emplace_back(work);
  work();
  for (std::thread &t : others)
    t.join();
  for (const std::string &why : failed)
    if (!why.empty())
      return error(why);
  return llvm::Error::success();
}

llvm::Expected<RecomputationChoice> zcc::searchRecomputation(const Module &m, PassContext &ctx) {
  int64_t budget = ctx.options.memoryBudget;
  std::vector<Trial> plain(1);
  if (llvm::Error e = carryOut(plain, m, ctx))
    return e;
  RecomputationChoice c{plain[0], plain[0], plain[0].bytes};
  if (plain[0].bytes <= budget)
    return c;
  std::vector<Trial> trials;
  for (RecomputeNotes &notes : recomputationLadder(*m.function("micro"), machineOf(ctx)))
    trials.push_back({std::move(notes)});
  if (llvm::Error e = carryOut(trials, m, ctx))
    return e;
  auto isBetter = [&](const Trial &a, const Trial &b) {
    bool fits = a.bytes <= budget;
    if (fits != (b.bytes <= budget))
      return fits;
    return fits ? a.seconds < b.seconds : a.bytes < b.bytes;
  };
  for (const Trial &t : trials) {
    c.least = std::min(c.least, t.bytes);
    if (isBetter(t, c.taken))
      c.taken = t;
  }
  return c;
}
