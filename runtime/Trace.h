// What every engine of a rank did in some steps, for viewers of the Trace Event Format (ui.perfetto.dev, chrome://tracing). Spans
// go into memory that is allocated before the first step; where nothing is traced, a step only looks at a flag.
#pragma once

#include "runtime/Device.h"
#include "runtime/Options.h"
#include "runtime/zccrt.h"
#include <atomic>
#include <string>
#include <vector>

namespace zccrt {

/// A row of the viewer. What overlaps in one (the disk's) is spread over several.
enum class Lane { Program, Compute, Host, Collectives, ToHost, FromHost, Reads, Writes, Checkpoints };

class Trace {
public:
  /// Of a run with the steps [first, steps). Throws a Failure where it has none of those that are asked for.
  Trace(const zccrt_program &p, const Options &o, int64_t first, int64_t steps);

  /// Times count from here.
  void start();
  /// What follows is of that step, until endStep().
  void beginStep(int64_t step);
  void endStep();
  /// What is between them is not of the step.
  void pause();
  void resume();
  /// The program has come to this node; -1: it has left its functions.
  void at(int node);
  /// `name` or, where that is nullptr, a node's; it is kept as a pointer. `number`: of a step, of a micro-batch, or bytes; -1:
  /// none.
  void add(Lane lane, const char *name, int node, int64_t number, double begin, double end);

  /// A span whose times are for others to write until the step ends; nullptr: there is no room for one.
  struct Event {
    const char *name;
    int32_t node;
    Lane lane;
    int64_t number;
    double begin, end;
  };
  Event *add(Lane lane, const char *name, int node, int64_t number);

  /// The events of a rank, with commas between them, in microseconds.
  std::string json(int rank) const;
  StepRange steps() const { return range; }
  /// Spans that there was no room for.
  int64_t lost() const;
  static int64_t bytes(const zccrt_program &p, const Options &o);

private:
  /// An event in the row where it is shown.
  struct Placed {
    Event event;
    int row;
  };
  /// Its stream Compute has done the node it was at, and comes to the next one; nullptr: it leaves the program's functions.
  void endNodeOnDevice(Device &d, Event *next);
  std::vector<Placed> place() const;
  void print(std::string &s, int rank, const Placed &p) const;

  const zccrt_program &program;
  StepRange range;
  std::vector<Event> events;
  std::atomic<size_t> used = 0;
  int64_t step = -1;
  int node_ = -1;
  double origin = 0, stepBegan = 0, nodeBegan = 0;
  Event *onDevice = nullptr; ///< the node that a device's stream Compute has come to
};

/// Seconds of the clock that traces go by; 0 where nothing is traced.
double traceClock();
/// The node that the program is at; -1: none.
int nodeNow();
/// Adds a span that began at that time and ends now, within a step that is traced.
void traceSpan(Lane lane, const char *name, int node, int64_t number, double begin);

/// Whose spans they are; nullptr: nobody's.
void useTrace(Trace *t);

/// The span in which a stream of the device does what it is given from here to the end of the block.
class StreamScope {
public:
  StreamScope(Device::Stream s, Lane lane, const char *name, int64_t number = -1, int node = -1);
  ~StreamScope();
  StreamScope(const StreamScope &) = delete;

private:
  const Device::Stream stream;
  Trace::Event *event; ///< nullptr: nothing is traced
};

/// A span from here to the end of the block.
class TraceScope {
public:
  explicit TraceScope(Lane lane, const char *name, int64_t number = -1, int node = -1)
      : lane(lane), name(name), number(number), node(node), begin(traceClock()) {}
  ~TraceScope() { traceSpan(lane, name, node, number, begin); }
  TraceScope(const TraceScope &) = delete;

private:
  const Lane lane;
  const char *const name;
  const int64_t number;
  const int node;
  const double begin;
};

} // namespace zccrt
