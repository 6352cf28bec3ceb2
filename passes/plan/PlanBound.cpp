// A bound from below for each engine, from the plan without any decision.
#include "passes/plan/PlanBound.h"
#include "passes/Target.h"
#include "passes/memory/Activations.h"
#include "passes/memory/Liveness.h"
#include "llvm/ADT/SmallPtrSet.h"
#include <cmath>

using namespace zcc;

/// Bytes that the values of one operator take at least, whatever else is where.
static int64_t largestOperator(const Module &m) {
  int64_t most = 0;
  for (auto &f : m.functions)
    for (auto &n : f->nodes) {
      if (!f->isEntry() || !ownsMemory(*n) || !inplacePairs(*n).empty() || n->op->structural != Structural::None)
        continue;
      int64_t bytes = 0;
      llvm::SmallPtrSet<const Value *, 4> seen;
      for (Value *v : n->operands())
        if (Value *base = v ? baseOf(v) : nullptr; base && base->def && seen.insert(base).second)
          bytes += base->type.localBytes();
      for (auto &r : n->results)
        bytes += r->hasUses() && !assigns(*r->uses.front().node) ? r->type.localBytes() : 0;
      most = std::max(most, bytes);
    }
  return most;
}

llvm::Expected<PlanBound> zcc::boundOf(const Module &m, const PassContext &ctx, int64_t computeNs) {
  PlanBound b;
  b.busyNs[size_t(EngineKind::Compute)] = computeNs;
  std::unique_ptr<Module> copy = m.clone();
  if (auto e = carryOut(*copy, ctx))
    return e;
  const Options &o = ctx.options;
  if (!o.memoryBudget || !ctx.target)
    return b;
  struct {
    int64_t changing = 0, fixed = 0; // what a step writes, and what it reads only
  } all, given;                      // in all, and on disks since flags say so
  for (auto &g : copy->globals) {
    if (!g->hasStorage() || g->role == GlobalValue::Const || g->type.isScalar())
      continue;
    const bool changes = !o.inference && (g->role == GlobalValue::State || g->trained);
    (changes ? all.changing : all.fixed) += g->type.localBytes();
    if (g->type.space == Space::Nvme)
      (changes ? given.changing : given.fixed) += g->type.localBytes();
  }
  const Target &t = *ctx.target;
  int64_t besides = t.deviceSymbol().empty() ? t.libraryBytes(*copy) : t.deviceLibraryBytes(*copy);
  int64_t room = o.memoryBudget - besides - largestOperator(*copy);
  b.bytesAway = std::clamp<int64_t>(all.changing + all.fixed - room, given.changing + given.fixed, all.changing + all.fixed);
  int64_t onDisk = o.separateHost ? o.hostBudget ? std::max<int64_t>(b.bytesAway - o.hostBudget, 0) : 0 : b.bytesAway;
  const int64_t read = std::max(onDisk, given.fixed + given.changing);
  const int64_t written = std::max(onDisk - all.fixed, given.changing);
  const Machine machine = t.machine();
  NodeCost disk;
  disk[Rate::Disk] = double(read);
  disk[Rate::DiskWrites] = double(written);
  disk[Rate::DiskCores] = double(read + written);
  b.busyNs[size_t(EngineKind::Disk)] = int64_t(std::llround(disk.seconds(machine) * 1e9));
  b.busyNs[size_t(EngineKind::Compute)] += int64_t(std::llround(disk.takenSeconds(machine) * 1e9));
  return b;
}
