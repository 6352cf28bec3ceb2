// The compilers that zcc runs, and the folder that they work in: both go when zcc does.
#pragma once

#include "ir/Diag.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/Program.h"

namespace zcc {

/// A folder for sources, objects and what compilers write besides; removed at the end unless
/// somebody shall look into it. There is one at a time.
class WorkFolder {
public:
  WorkFolder() = default;
  WorkFolder(const WorkFolder &) = delete;
  ~WorkFolder();
  llvm::Error make();
  std::string file(llvm::StringRef name) const;
  llvm::StringRef path() const { return path_; }
  void keep() { keep_ = true; }
  /// The error of a folder in which nothing more can be written, which `log` may tell, too.
  llvm::Error checkRoom(llvm::StringRef log) const;

private:
  llvm::SmallString<128> path_;
  bool keep_ = false;
};

/// A running compiler, in a session of its own, so that it ends with whatever it started.
struct Job {
  llvm::sys::ProcessInfo process;
  std::string log; ///< what it says
};

llvm::Expected<Job> start(const WorkFolder &work, const std::vector<std::string> &args, llvm::StringRef logName);
/// Waits for a compiler; returns its status. Does not return where stopCompilers() ended it.
int finish(const Job &job);

/// Ends the compilers that run and removes their folder; none can be started from then on. For a
/// process that a signal ends.
void stopCompilers();

} // namespace zcc
