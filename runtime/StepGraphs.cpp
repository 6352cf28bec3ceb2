// What a function queues becomes a graph when it is called again.
#include "runtime/StepGraphs.h"

namespace zccrt {

void StepGraphs::run(void (*function)(char *arena)) {
  auto [known, isFirst] = entries.try_emplace({function, zccrt_late, zccrt_first});
  if (isFirst)
    return runToEnd(function, arena);
  Entry &e = known->second;
  if (e.graph) {
    addTraffic(e.sends);
  } else {
    const Traffic before = traffic();
    e.graph = on.capture([&] { function(arena.base()); });
    const Traffic after = traffic();
    e.sends = {after.allReduce - before.allReduce, after.allGather - before.allGather,
               after.reduceScatter - before.reduceScatter};
  }
  e.graph->launch();
  on.synchronize();
  on.checkFaults();
}

} // namespace zccrt
