// What a rank writes of a checkpoint: a file of data, and the index of the runs in it.
#pragma once

#include "runtime/checkpoint/DataFile.h"
#include "runtime/checkpoint/SavedTensors.h"
#include <span>
#include <string>
#include <vector>

namespace zccrt {

class RankFiles {
public:
  /// New files in a folder; the buffer is DataFile's.
  RankFiles(const std::string &folder, int rank, std::span<char> buffer);
  /// Appends what the rank holds there in its arena. Throws a Failure that names the file.
  void append(const Arena &from, const HeldRun &h);
  /// Returns when all of it is on the disk; nothing is appended then.
  SavedFile finish();

private:
  const std::string folder;
  SavedFile names;
  DataFile data;
  std::vector<SavedRun> index;
};

} // namespace zccrt
