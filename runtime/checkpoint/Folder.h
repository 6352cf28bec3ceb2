// Checkpoints as folders: DIR/step-N with a data file and an index of each rank, and a manifest, which is written last.
#pragma once

#include "runtime/checkpoint/Manifest.h"
#include <string>
#include <vector>

namespace zccrt {

constexpr const char *kManifestName = "manifest.json";

/// "DIR/step-12"
std::string stepFolder(const std::string &dir, int64_t step);
/// The steps of the checkpoints in a folder, ascending; none if there is no such folder.
std::vector<int64_t> stepsIn(const std::string &dir);
/// The folders of the checkpoints that `dir` means, the newest first: those in it, or itself and those before it beside it.
std::vector<std::string> checkpointsFrom(const std::string &dir);

/// A checkpoint as its manifest and indexes say.
struct Checkpoint {
  std::string folder;
  Manifest manifest;
  std::vector<std::vector<SavedRun>> runs; ///< of each file
};

/// Reads manifest and indexes, and looks at the sizes of the data. Throws a Failure that names what is missing or damaged.
Checkpoint openCheckpoint(const std::string &folder);
/// By what tables the program exports (Recipe.h); "": the checkpoint has none. Throws a Failure as above.
std::string readExports(const Checkpoint &c);
/// Reads part `share` of `shares` of all data, and throws a Failure that names the first tensor whose bytes are not those that
/// were written.
void verifyData(const Checkpoint &c, int share, int shares);

/// Makes a folder and those above it.
void makeFolder(const std::string &path);
/// A new file with that text, on the disk when it returns. Throws a Failure.
void writeDurably(const std::string &path, const std::string &text);
/// Flushes a folder's entries.
void flushFolder(const std::string &path);
/// Gives a finished checkpoint its name, in the place of one of the same step, and flushes the folder above.
void nameCheckpoint(const std::string &temporary, const std::string &name);
/// Removes all but the last `keep` of these checkpoints. One that is being removed has no name any more.
void removeOlder(const std::string &dir, const std::vector<int64_t> &steps, int64_t keep);
/// Removes what runs that were killed have left.
void removeUnfinished(const std::string &dir);
/// The name that a checkpoint has while it is written, by the run's number.
std::string temporaryFolder(const std::string &dir, int64_t step, uint64_t run);

} // namespace zccrt
