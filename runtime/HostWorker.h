// Who computes in host memory: one thread and its team, in the order of the starts. Threads that compute have teams of their own,
// so it is the same one throughout.
#pragma once

#include "runtime/JobQueue.h"
#include "runtime/Trace.h"

namespace zccrt {

class HostWorker {
public:
  /// At most `most` functions are under way at once; 0: none will be, and there is no thread.
  explicit HostWorker(int most) : queue(most, most > 0, [] { return Work(); }, perform) {
    if (most)
      wait(start([](char *) { gatherThreads(); }, nullptr, -1));
  }

  /// A function of the host's arena, of that node. Returns what to wait for.
  uint64_t start(void (*run)(char *arena), char *arena, int node) {
    return queue.start([&](Work &w) { w = {run, arena, node}; });
  }
  void wait(uint64_t turn) { queue.wait(turn); }

private:
  struct Work {
    void (*run)(char *arena) = nullptr;
    char *arena = nullptr;
    int node = -1; ///< that starts it
  };
  static void perform(const Work &w) {
    TraceScope span(Lane::Host, nullptr, -1, w.node);
    w.run(w.arena);
  }

  JobQueue<Work> queue;
};

} // namespace zccrt
