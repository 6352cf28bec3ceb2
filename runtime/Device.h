// A machine beside the host that computes: its memory, the streams in which work for it waits, and the events by which one stream
// waits for another. Programs whose record names one run on it; the others compute on the host and have none.
//
// The main thread queues the schedule on the stream Compute. Whatever is started beside it (a collective, a copy, the disk) runs
// on the stream of its engine, behind a mark of what Compute had been given by then; waiting for it makes Compute, not the host,
// wait for its mark. So a schedule that is right where everything runs at once is right here. What lies outside the step (data,
// weights, checkpoints) is copied on the stream Outside.
#pragma once

#include "runtime/Arena.h"
#include <functional>
#include <memory>
#include <string>

namespace zccrt {

class Comm;
class Transport;

/// What streams have been given as one thing, to be given again by one call of the host.
class DeviceGraph {
public:
  virtual ~DeviceGraph();
  /// Behind what Compute has been given so far; what Compute is given next runs behind all of it.
  virtual void launch() = 0;
};

class Device {
public:
  enum Stream { Compute, Collectives, ToHost, FromHost, Disk, Host, Outside, kStreams };
  /// What a stream had been given when it was marked.
  struct Mark {
    Stream stream = Compute;
    uint64_t number = 0; ///< 0: nothing
  };

  bool multipliesInTf32 = false; ///< products of f32, after their factors have been rounded

  virtual ~Device();

  /// What it is called in messages: "NVIDIA H100", "an emulated GPU".
  virtual std::string name() const = 0;
  /// Takes the device of the n-th rank on this node. Throws a Failure where there is none.
  virtual void open(int rankOnNode) = 0;

  /// Memory of the device, zeroed; freed with the device.
  char *allocate(int64_t bytes) {
    reservedBytes += bytes;
    return map(bytes);
  }
  /// All of it so far.
  int64_t reserved() const { return reservedBytes; }
  /// Gives libraries the end of the arena.
  void lend(char *begin, int64_t bytes) {
    lent = begin;
    lentBytes = bytes;
  }
  /// Part of that, for as long as the device is open. Throws a Failure where the plan has too little.
  char *take(int64_t bytes);

  /// Lets the device copy to and from memory of the host at full speed, until that is unpinned.
  virtual void pin(char *memory, int64_t bytes) = 0;
  virtual void unpin(char *memory) = 0;

  // Work, in the order in which a stream is given it. Any thread may give some.
  virtual void copy(Stream s, void *to, const void *from, int64_t bytes) = 0;
  virtual void fill(Stream s, void *to, int byte, int64_t bytes) = 0;
  /// A function of the host.
  virtual void call(Stream s, std::function<void()> f) = 0;

  /// What `f` gives Compute, and streams that wait for that, as a graph; nothing of it runs. Meanwhile nobody waits for the
  /// device, it is asked for no memory, and in the end Compute has waited for what the others were given.
  virtual std::unique_ptr<DeviceGraph> capture(const std::function<void()> &f) = 0;

  /// Has the time at which a stream comes here, of the clock of now(), written to both, which may be nullptr, by readTimes().
  /// Not while a graph is made.
  virtual void timeAt(Stream s, double *to, double *also) = 0;
  /// Waits for what was to be timed. What was given before this is not written again.
  virtual void readTimes() = 0;

  /// Ends the job if a kernel has found something wrong. All that was queued has run.
  virtual void checkFaults() = 0;

  /// What carries messages between the devices of all ranks, in the order of the stream Collectives; every rank asks. nullptr:
  /// nothing does, and `whyNot` says why.
  virtual std::unique_ptr<Transport> transport(Comm &comm, std::string &whyNot) = 0;

  virtual Mark mark(Stream s) = 0;
  /// What stream `s` is given from now on runs behind the mark.
  virtual void wait(Stream s, Mark m) = 0;
  /// The host waits.
  virtual void synchronize(Mark m) = 0;
  void synchronize(Stream s) { synchronize(mark(s)); }
  void synchronize() {
    for (int s = 0; s < kStreams; ++s)
      synchronize(static_cast<Stream>(s));
  }

private:
  int64_t reservedBytes = 0;
  char *lent = nullptr; ///< what is left of it
  int64_t lentBytes = 0;

  virtual char *map(int64_t bytes) = 0;
};

/// The device of this process, or nullptr: the host computes.
Device *device();
/// Opens it; `make` is the program's.
void openDevice(void *(*make)(void), int rankOnNode);

/// Makes another one the process's, and returns the one before.
std::unique_ptr<Device> exchangeDevice(std::unique_ptr<Device> d);

/// A function of the program over the arena; it has run when this returns.
void runToEnd(void (*function)(char *arena), const Arena &arena);

/// Memory of the host that the device copies to and from at full speed.
class PinnedArena : public MappedArena {
public:
  PinnedArena(Device &d, int64_t bytes) : MappedArena(bytes), on(d) { on.pin(start, bytes); }
  ~PinnedArena() override { on.unpin(start); }

private:
  Device &on;
};

/// The device's memory, which the host reaches by copies alone.
class DeviceArena : public Arena {
public:
  DeviceArena(Device &d, int64_t bytes) : on(d), start(d.allocate(bytes)) {}

  char *base() const override { return start; }
  char *onHost(int64_t) const override { return nullptr; }
  void copyTo(int64_t offset, const void *from, int64_t bytes) override { copy(start + offset, from, bytes); }
  void copyFrom(void *to, int64_t offset, int64_t bytes) const override { copy(to, start + offset, bytes); }

private:
  Device &on;
  char *start;

  /// Done when it returns, whatever is queued: what a step writes is reached when that has run, and a checkpoint reads nothing
  /// that is about to be written (zccrt_will_write).
  void copy(void *to, const void *from, int64_t bytes) const {
    on.copy(Device::Outside, to, from, bytes);
    on.synchronize(Device::Outside);
  }
};

} // namespace zccrt
