// Saving in the course of a run: every rank writes its files in the background, all learn at the end of a step who is done, and
// then rank 0 names the checkpoint.
#pragma once

#include "runtime/Options.h"
#include "runtime/checkpoint/Folder.h"
#include "runtime/checkpoint/Resume.h"
#include "runtime/checkpoint/Saver.h"
#include "runtime/comm/Comm.h"

namespace zccrt {

/// What a rank says of what it saves, at the end of a step.
struct SaveStatus {
  enum State : int64_t { Idle, Writing, Done, Failed } state = Idle;
  int64_t bytes = 0;
  uint64_t indexHash = 0;
};

class Checkpoints {
public:
  /// `resumed`: what the run goes on from. Other checkpoints are in the folder only where that is one of them. Every rank makes
  /// one; `warn` is called where something could not be saved. Throws a Failure.
  Checkpoints(const zccrt_program &p, const Options &o, Comm &comm, const Arenas &arenas,
              const std::optional<Checkpoint> &resumed, Say warn);
  ~Checkpoints();

  /// Starts to save; what was begun before is finished first. Every rank calls it, with the same manifest.
  void begin(const Manifest &m);
  SaveStatus status() const;
  /// Whether one was begun that is not settled.
  bool isUnderWay() const { return isWriting; }
  /// What all ranks said at the end of a step. Where all are done, rank 0 gives the checkpoint its name.
  void settle(const std::vector<SaveStatus> &all);
  /// Waits until what was begun is on the disk. Every rank calls it.
  void finish();
  /// The step of the last one begun; -1: none.
  int64_t lastStep() const { return manifest.step; }
  std::string lastFolder() const { return stepFolder(dir, manifest.step); }
  /// Why the last one failed, on the rank where it did; "" if it did not, or another rank's did.
  const std::string &error() const { return why; }
  /// Whether the last one begun, if any, failed on no rank; rank 0 knows.
  bool isSaved() const { return !isLost && why.empty(); }

private:
  void commit();

  const zccrt_program &program;
  const Options &options;
  Comm &comm;
  const std::string dir;
  Say warn;
  uint64_t run = 0; ///< a random number, the same on every rank
  Manifest manifest;
  int64_t begun = -1;           ///< the step that the run goes on from
  std::vector<int64_t> written; ///< steps of the checkpoints that have got their names
  bool isWriting = false;       ///< the same on every rank
  bool isLost = false;          ///< likewise: a rank could not write its part of the last one
  std::string why;
  Saver saver; ///< last: its thread uses all of the above
};

} // namespace zccrt
