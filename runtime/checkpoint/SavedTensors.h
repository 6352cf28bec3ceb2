// What of a program goes into checkpoints, and which part of it each rank holds and writes.
#pragma once

#include "runtime/Arena.h"
#include "runtime/checkpoint/Manifest.h"
#include "runtime/zccrt.h"
#include <vector>

namespace zccrt {

/// Elements of a tensor that a rank holds, side by side in an arena.
struct HeldRun {
  SavedRun saved;     ///< offset and hash are not set
  int global = 0;     ///< its index
  int space = 0;      ///< the arena
  int64_t offset = 0; ///< bytes, of its first element there
};

/// What a rank holds of the saved globals, in their order.
std::vector<HeldRun> heldRuns(const zccrt_program &p, int rank);
/// What of it the rank writes, in the order in which a step writes over it: all of its shards and of its own values, and a share
/// of what every rank has.
std::vector<HeldRun> runsToWrite(const zccrt_program &p, int rank);

/// Whether a global is another name of one before, in the same place.
bool isAlias(const zccrt_program &p, const zccrt_global &g);

/// Of the names and shapes of the parameters: two programs of one model have the same, however they were compiled.
uint64_t modelHash(const zccrt_program &p);
/// Of the model's graph, as it is exported; 0: the program carries none.
uint64_t graphHash(const zccrt_program &p);

} // namespace zccrt
