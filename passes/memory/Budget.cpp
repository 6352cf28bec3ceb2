// Adds up what a planned module takes.
#include "passes/memory/Budget.h"
#include "passes/Target.h"
#include "passes/memory/Liveness.h"
#include "passes/memory/SavedStates.h"

using namespace zcc;

Needs zcc::needsOf(const Module &m, const Options &o, const Target *target) {
  Needs n;
  n.host = arenaBytes(m, Space::Host);
  n.disk = arenaBytes(m, Space::Nvme);
  n.memory = arenaBytes(m, Space::Device);
  int64_t besides = saveBytes(m) + (target ? target->libraryBytes(m) : 0);
  if (target && !target->deviceSymbol().empty()) { // whose memory is not the host's
    n.host += besides;
    return n;
  }
  n.memory += besides + (o.hostBudget ? 0 : n.host);
  return n;
}

int64_t zcc::hostBudgetOf(const Options &o, const Target &target) {
  if (!target.deviceSymbol().empty())
    return o.hostBudget;
  return o.memoryBudget ? o.memoryBudget + o.hostBudget : 0;
}

Needs zcc::excessOf(const Needs &n, const Options &o) {
  auto over = [](int64_t bytes, int64_t budget) { return budget ? std::max<int64_t>(bytes - budget, 0) : 0; };
  return {over(n.memory, o.memoryBudget), over(n.host, o.hostBudget), over(n.disk, o.nvmeBudget)};
}

bool zcc::fits(const Needs &n, const Options &o) {
  Needs over = excessOf(n, o);
  return !over.memory && !over.host && !over.disk;
}
