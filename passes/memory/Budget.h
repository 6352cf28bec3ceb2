// What a rank takes, beside --memory, --host-memory and --nvme.
#pragma once

#include "passes/Pass.h"

namespace zcc {

/// Bytes of a planned module.
struct Needs {
  int64_t memory = 0; ///< the device's arena; where the host computes, the buffer of checkpoints, libraries, and the host's arena
                      ///< unless that has a budget of its own
  int64_t host = 0;   ///< the host's arena; beside a device that buffer and libraries, too
  int64_t disk = 0;
};
Needs needsOf(const Module &m, const Options &o, const Target *target);
/// Bytes of the host's memory that a rank may take in all; 0: nothing bounds them.
int64_t hostBudgetOf(const Options &o, const Target &target);
/// What of a budget is exceeded by how much; all 0 where everything fits.
Needs excessOf(const Needs &n, const Options &o);
bool fits(const Needs &n, const Options &o);

} // namespace zcc
