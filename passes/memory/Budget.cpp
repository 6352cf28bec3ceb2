#include "passes/memory/Budget.h"
#include "passes/Target.h"
#include "passes/memory/Liveness.h"

int64_t zcc::memoryOf(const Module &m, const Target *target) {
  return arenaBytes(m, Space::Device) + arenaBytes(m, Space::Host) + (target ? target->libraryBytes(m) : 0);
}
