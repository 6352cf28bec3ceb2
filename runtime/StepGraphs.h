// The functions of a program as graphs of a device: what they queue is the same every time, for all that differs between steps
// lies in the arena. The first call queues it as it stands, so that libraries make what they need; the second one makes the
// graph.
#pragma once

#include "runtime/Device.h"
#include "runtime/comm/Comm.h"
#include <map>
#include <tuple>

namespace zccrt {

class StepGraphs {
public:
  StepGraphs(Device &d, const Arena &a) : on(d), arena(a) {}

  /// As runToEnd().
  void run(void (*function)(char *arena));

private:
  Device &on;
  const Arena &arena;
  struct Entry {
    std::unique_ptr<DeviceGraph> graph; ///< nullptr: it has been called once
    Traffic sends;                      ///< each time
  };
  /// By function, and what it looks at: whether it does late updates, and what is done once for all micro-batches.
  std::map<std::tuple<void (*)(char *), int, int>, Entry> entries;
};

} // namespace zccrt
