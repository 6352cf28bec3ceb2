// Saves what a rank writes of a checkpoint, on a thread of its own, while the next step runs: the step waits where it would write
// over what is not read yet (zccrt_will_write).
#pragma once

#include "runtime/Arena.h"
#include "runtime/checkpoint/SavedTensors.h"
#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace zccrt {

class Saver {
public:
  Saver(const zccrt_program &p, const Arenas &arenas, int rank);
  /// Leaves what is being saved unfinished.
  ~Saver();
  Saver(const Saver &) = delete;
  Saver &operator=(const Saver &) = delete;

  /// Starts to write this rank's files into a folder. Waits until what was started before is done.
  void start(const std::string &folder);
  /// Does something behind it, on the same thread.
  void startJob(std::function<void()> job);
  /// Whether nothing is under way; then, what was written, or why it was not.
  bool isDone() const { return !busy.load(std::memory_order_acquire); }
  void wait();
  const SavedFile &file() const { return written; }
  const std::string &error() const { return why; }

  /// Returns when program.written[0 .. n] are read.
  void willWrite(int n) {
    if (n >= readUpTo.load(std::memory_order_acquire))
      waitUntilRead(n);
  }

private:
  void work();
  void save(const std::string &folder);
  void noteRead(int n);
  void waitUntilRead(int n);

  const zccrt_program &program;
  const Arenas &arenas;
  const int rank;
  std::vector<HeldRun> runs;
  std::vector<int> order; ///< of a global among those that a step writes; program.nwritten: it does not
  struct Free {
    void operator()(char *p) const;
  };
  std::unique_ptr<char, Free> buffer;
  SavedFile written;
  std::string why;
  std::atomic<int> readUpTo; ///< how many of program.written may be written over
  std::atomic<bool> busy = false, stopping = false;
  std::function<void()> job;
  std::mutex mutex;
  std::condition_variable wake, progress;
  std::thread worker; ///< last: it uses all of the above
};

/// Whom zccrt_will_write asks; nullptr: nobody.
void useSaver(Saver *s);

} // namespace zccrt
