#include "passes/memory/Budget.h"
#include "passes/Target.h"
#include "passes/memory/Liveness.h"
#include "passes/memory/SavedStates.h"

int64_t zcc::memoryOf(const Module &m, const Target *target) {
  return arenaBytes(m, Space::Device) + arenaBytes(m, Space::Host) + saveBytes(m) + (target ? target->libraryBytes(m) : 0);
}
