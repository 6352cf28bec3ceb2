// A GPU by CUDA's runtime. That is linked statically, and loads the driver when it is first asked for something: programs start
// where there is no driver, and say so.
#pragma once

#include "runtime/Device.h"
#include "runtime/cuda/Faults.h"
#include <cuda_runtime.h>
#include <deque>
#include <mutex>
#include <vector>

namespace zccrt::cuda {

/// Ends the job if CUDA refuses to do what `what` says; from the thread of the schedule with the ONNX node.
void check(cudaError_t e, const char *what);

class CudaDevice : public Device {
public:
  ~CudaDevice() override;

  std::string name() const override { return properties.name; }
  void open(int rankOnNode) override;

  void pin(char *memory, int64_t bytes) override;
  void unpin(char *memory) override;

  void copy(Stream s, void *to, const void *from, int64_t bytes) override;
  void fill(Stream s, void *to, int byte, int64_t bytes) override;
  void call(Stream s, std::function<void()> f) override;
  std::unique_ptr<DeviceGraph> capture(const std::function<void()> &f) override;
  void timeAt(Stream s, double *to, double *also) override;
  void readTimes() override;
  void checkFaults() override;

  std::unique_ptr<Transport> transport(Comm &comm, std::string &whyNot) override; ///< NCCL's

  Mark mark(Stream s) override;
  void wait(Stream s, Mark m) override;
  void synchronize(Mark m) override;
  using Device::synchronize;

  cudaStream_t stream(Stream s) const { return streams[s]; }
  const cudaDeviceProp &about() const { return properties; }
  Fault *fault = nullptr;
  /// Called ten times a second while the host waits, by whichever thread does; may end the job.
  std::function<void()> whileWaiting;

private:
  /// Of a stream, from mark `first` on: the host has seen those before, and their events are used again.
  struct Marks {
    struct Event {
      cudaEvent_t event;
      int waiting = 0; ///< threads
    };
    uint64_t first = 1;
    std::deque<Event> events;
  };

  int number = 0;
  cudaDeviceProp properties = {};
  cudaStream_t streams[kStreams] = {};
  Marks marks[kStreams];
  std::vector<cudaEvent_t> unused;
  std::mutex mutex;
  std::vector<char *> memory;
  std::vector<std::unique_ptr<std::function<void()>>> captured; ///< functions of the host in the graph that is made

  /// What timeAt() was asked for. Events are made when they are first needed, and kept.
  struct Timed {
    cudaEvent_t event;
    double *to, *also;
  };
  std::vector<Timed> timed;
  size_t waiting = 0; ///< of `timed`
  cudaEvent_t origin = nullptr;
  double originTime = 0; ///< of `origin`

  char *map(int64_t bytes) override;
  cudaError_t awaitWatching(cudaEvent_t event);
  /// Makes it the calling thread's: CUDA has a device for each.
  void use() const;
  /// nullptr: the stream has come there, or it is none. `waiting`: it is not used again before retire().
  cudaEvent_t eventOf(Mark m, int waiting = 0);
  void retire(Mark m);
};

} // namespace zccrt::cuda
