// How a run goes on from a checkpoint: which one, whether it is sound, and how a rank's values come out of it.
#pragma once

#include "runtime/Arena.h"
#include "runtime/Options.h"
#include "runtime/checkpoint/Folder.h"
#include "runtime/comm/Comm.h"
#include <functional>
#include <optional>

namespace zccrt {

using Say = std::function<void(const std::string &)>;

/// The checkpoint that --resume means, verified by all ranks together; nothing: the run starts anew. Every rank calls it. `say`
/// and `warn` are called on every rank. --resume=auto takes the newest sound one, with a warning of each newer one; otherwise,
/// where the newest is damaged, all ranks end with AgreedFailure, which offers the one before.
std::optional<Checkpoint> findCheckpoint(const Options &o, Comm &comm, const Say &say, const Say &warn);

/// What the user should know of a checkpoint from which the program can go on: it is another graph's, or another optimizer's.
std::vector<std::string> doubtsAbout(const zccrt_program &p, const Checkpoint &c);

/// Which globals loadCheckpoint() fills. Throws a Failure if the checkpoint is of another model, or lacks what the program needs.
std::vector<bool> resumedGlobals(const zccrt_program &p, const Checkpoint &c);

/// Fills them with what is this rank's, and reads nothing else.
void loadCheckpoint(const zccrt_program &p, const Checkpoint &c, const Arenas &arenas, int rank);

} // namespace zccrt
