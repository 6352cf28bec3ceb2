// Streams, events and memory by CUDA's runtime.
#include "runtime/cuda/real/CudaDevice.h"
#include "runtime/Clock.h"
#include "runtime/Fail.h"
#include "runtime/Trace.h"
#include "runtime/cuda/real/Launch.h"
#include "runtime/zccrt.h"
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <thread>

namespace zccrt::cuda {

static CudaDevice *opened = nullptr;

// ---- errors

static const char *nodeName() {
  int n = nodeNow();
  return n >= 0 && n < zccrt_the_program.nnodes ? zccrt_the_program.nodes[n].node : "";
}

/// What runs beside the host is reported late, at some other node.
static bool isLate(cudaError_t e) {
  return e == cudaErrorIllegalAddress || e == cudaErrorMisalignedAddress || e == cudaErrorLaunchFailure || e == cudaErrorAssert ||
         e == cudaErrorIllegalInstruction || e == cudaErrorLaunchTimeout || e == cudaErrorECCUncorrectable ||
         e == cudaErrorHardwareStackError || e == cudaErrorInvalidAddressSpace || e == cudaErrorInvalidPc;
}

static const char *adviceFor(cudaError_t e) {
  if (e == cudaErrorNoKernelImageForDevice)
    return "; its kernels are for other GPUs: compile the program with zcc's --march=native here, or name this GPU's sm_XX";
  if (e == cudaErrorUnsupportedPtxVersion)
    return "; the driver is too old for what the program's kernels were compiled by: update it, or compile with an older toolkit";
  return isLate(e) ? "; with --cuda-graph=off, and CUDA_LAUNCH_BLOCKING=1 in the environment, the node that is named is the one "
                     "that did it"
                   : "";
}

void check(cudaError_t e, const char *what) {
  const bool isNodes = !isLate(e) || getenv("CUDA_LAUNCH_BLOCKING"); // else it is some other node's
  if (e != cudaSuccess)
    zccrt_fail(isNodes ? nodeName() : "", "the GPU fails to %s: %s%s", what, cudaGetErrorString(e), adviceFor(e));
}

void checkLaunch(const char *kernel) {
  if (cudaError_t e = cudaPeekAtLastError(); e != cudaSuccess)
    check(e, isLate(e) ? "run its kernels" : (std::string("run ") + kernel).c_str());
}

// ---- opening

static int countDevices() {
  int count = 0, driver = 0;
  cudaError_t e = cudaGetDeviceCount(&count);
  if (e == cudaSuccess && count)
    return count;
  cudaDriverGetVersion(&driver);
  if (!driver)
    fail("this program needs an NVIDIA GPU, and there is no driver for one here (libcuda.so.1)");
  if (e == cudaErrorInsufficientDriver)
    fail("this program needs an NVIDIA GPU with a driver for CUDA %d.%d or newer, and the one here is for CUDA %d.%d",
         CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10, driver / 1000, driver % 1000 / 10);
  fail("this program needs an NVIDIA GPU, and the driver offers none: %s",
       e == cudaSuccess ? "no device" : cudaGetErrorString(e));
}

void CudaDevice::open(int rankOnNode) {
  number = rankOnNode % countDevices();
  use();
  check(cudaGetDeviceProperties(&properties, number), "describe itself");
  // Messages come first: other ranks wait for them, and would else be behind all blocks of a kernel that runs.
  int usual = 0, first = 0;
  check(cudaDeviceGetStreamPriorityRange(&usual, &first), "say what its streams may have");
  for (int s = 0; s < kStreams; ++s)
    check(cudaStreamCreateWithPriority(&streams[s], cudaStreamNonBlocking, s == Collectives ? first : usual), "make a stream");
  void *shared = nullptr;
  check(cudaHostAlloc(&shared, sizeof(Fault), cudaHostAllocMapped), "share memory with the host");
  fault = new (shared) Fault{};
  opened = this;
}

CudaDevice::~CudaDevice() {
  opened = nullptr;
  for (char *m : memory)
    cudaFree(m);
}

void CudaDevice::use() const {
  static thread_local bool isUsed = false;
  if (!isUsed)
    check(cudaSetDevice(number), "be used");
  isUsed = true;
}

// ---- memory

char *CudaDevice::map(int64_t bytes) {
  use();
  char *m = nullptr;
  size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "say how much memory is free");
  const cudaError_t e = cudaMalloc(&m, size_t(bytes ? bytes : 1));
  if (e != cudaErrorMemoryAllocation)
    check(e, "take memory");
  else
    fail("the GPU has no room for the %.3f GiB of this program: %.3f GiB of %.3f are free", double(bytes) / 0x1p30,
         double(free) / 0x1p30, double(total) / 0x1p30);
  memory.push_back(m);
  fill(Compute, m, 0, bytes);
  synchronize(Compute);
  return m;
}

void CudaDevice::pin(char *m, int64_t bytes) {
  use();
  check(cudaHostRegister(m, size_t(bytes), cudaHostRegisterDefault), "pin memory of the host");
}

void CudaDevice::unpin(char *m) { cudaHostUnregister(m); }

// ---- work

void CudaDevice::copy(Stream s, void *to, const void *from, int64_t bytes) {
  use();
  if (bytes)
    check(cudaMemcpyAsync(to, from, size_t(bytes), cudaMemcpyDefault, streams[s]), "copy");
}

void CudaDevice::fill(Stream s, void *to, int byte, int64_t bytes) {
  use();
  if (bytes)
    check(cudaMemsetAsync(to, byte, size_t(bytes), streams[s]), "fill memory");
}

static void runOnHost(void *p) {
  try {
    (*static_cast<std::function<void()> *>(p))();
  } catch (const std::exception &e) {
    endJob(e.what());
  }
}

/// The function must not ask CUDA for anything: it runs on a thread of the driver's. A graph keeps it, for it runs at each
/// launch.
void CudaDevice::call(Stream s, std::function<void()> f) {
  use();
  auto once = std::make_unique<std::function<void()>>(std::move(f));
  cudaStreamCaptureStatus status;
  check(cudaStreamIsCapturing(streams[s], &status), "say whether a graph is made");
  if (status == cudaStreamCaptureStatusActive) {
    check(cudaLaunchHostFunc(streams[s], runOnHost, once.get()), "call the host");
    captured.push_back(std::move(once));
    return;
  }
  auto runOnce = [](void *p) {
    std::unique_ptr<std::function<void()>> f(static_cast<std::function<void()> *>(p));
    runOnHost(f.get());
  };
  check(cudaLaunchHostFunc(streams[s], runOnce, once.release()), "call the host");
}

// ---- graphs

namespace {
class CudaGraph : public DeviceGraph {
public:
  CudaGraph(const CudaDevice &d, cudaGraphExec_t e, std::vector<std::unique_ptr<std::function<void()>>> f)
      : on(d), exec(e), functions(std::move(f)) {}
  ~CudaGraph() override { cudaGraphExecDestroy(exec); }
  void launch() override { check(cudaGraphLaunch(exec, on.stream(Device::Compute)), "launch a graph"); }

private:
  const CudaDevice &on;
  cudaGraphExec_t exec;
  std::vector<std::unique_ptr<std::function<void()>>> functions; ///< of the host
};
} // namespace

std::unique_ptr<DeviceGraph> CudaDevice::capture(const std::function<void()> &f) {
  use();
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  captured.clear();
  // What other threads ask CUDA for meanwhile does not matter.
  check(cudaStreamBeginCapture(streams[Compute], cudaStreamCaptureModeThreadLocal), "begin a graph");
  f();
  check(cudaStreamEndCapture(streams[Compute], &graph), "end a graph");
  // Messages come first there, too: nodes have the priority of the streams that they were captured from.
  check(cudaGraphInstantiate(&exec, graph, cudaGraphInstantiateFlagUseNodePriority), "make a graph");
  check(cudaGraphDestroy(graph), "forget what a graph was made of");
  return std::make_unique<CudaGraph>(*this, exec, std::move(captured));
}

void CudaDevice::checkFaults() {
  if (fault->isSet)
    zccrt_fail(fault->node, "index %lld is outside of an axis of %lld", fault->index, fault->axis);
}

// ---- order

Device::Mark CudaDevice::mark(Stream s) {
  use();
  std::lock_guard lock(mutex);
  Marks &of = marks[s];
  if (unused.empty()) {
    unused.emplace_back();
    check(cudaEventCreateWithFlags(&unused.back(), cudaEventDisableTiming | cudaEventBlockingSync), "make an event");
  }
  of.events.push_back({unused.back()});
  unused.pop_back();
  check(cudaEventRecord(of.events.back().event, streams[s]), "record an event");
  return {s, of.first + of.events.size() - 1};
}

cudaEvent_t CudaDevice::eventOf(Mark m, int waiting) {
  std::lock_guard lock(mutex);
  Marks &of = marks[m.stream];
  if (m.number < of.first)
    return nullptr;
  Marks::Event &e = of.events[m.number - of.first];
  e.waiting += waiting;
  return e.event;
}

void CudaDevice::wait(Stream s, Mark m) {
  use();
  if (cudaEvent_t e = m.stream == s ? nullptr : eventOf(m))
    check(cudaStreamWaitEvent(streams[s], e, 0), "wait for an event");
}

/// The stream has come to this mark, for which a thread has waited: nobody need wait for it or those before.
void CudaDevice::retire(Mark m) {
  std::lock_guard lock(mutex);
  Marks &of = marks[m.stream];
  --of.events[m.number - of.first].waiting;
  for (; of.first <= m.number && !of.events.front().waiting; ++of.first) {
    unused.push_back(of.events.front().event);
    of.events.pop_front();
  }
}

void CudaDevice::synchronize(Mark m) {
  use();
  const cudaEvent_t event = eventOf(m, /*waiting=*/1);
  if (!event)
    return;
  // What comes at once is looked for; while more is waited for, the core is for others: those that compute in host memory.
  constexpr auto kAtOnce = std::chrono::microseconds(100);
  cudaError_t e = cudaEventQuery(event);
  for (const auto begin = std::chrono::steady_clock::now();
       e == cudaErrorNotReady && std::chrono::steady_clock::now() - begin < kAtOnce; e = cudaEventQuery(event))
    ;
  if (e == cudaErrorNotReady)
    e = whileWaiting ? awaitWatching(event) : cudaEventSynchronize(event);
  check(e, "run its kernels");
  retire(m);
}

/// Messages whose other side is gone never end: looks now and then whether it is, and sleeps for a 64th of what it has
/// waited, 20 us at least and 100 at most, as what comes next waits for as long.
cudaError_t CudaDevice::awaitWatching(cudaEvent_t event) {
  using namespace std::chrono;
  constexpr nanoseconds kLeast = microseconds(20), kMost = microseconds(100), kLook = milliseconds(100);
  const auto begin = steady_clock::now();
  auto looked = begin;
  for (;;) {
    const cudaError_t e = cudaEventQuery(event);
    const auto now = steady_clock::now();
    if (e != cudaErrorNotReady)
      return e;
    if (now - looked >= kLook) {
      whileWaiting();
      looked = now;
    }
    std::this_thread::sleep_for(std::clamp<nanoseconds>((now - begin) / 64, kLeast, kMost));
  }
}

// ---- time

static cudaEvent_t timedEvent() {
  cudaEvent_t e = nullptr;
  check(cudaEventCreate(&e), "make an event");
  return e;
}

void CudaDevice::timeAt(Stream s, double *to, double *also) {
  use();
  std::lock_guard lock(mutex);
  if (!waiting) { // anew, for CUDA tells the time between events in few digits
    if (!origin)
      origin = timedEvent();
    check(cudaEventRecord(origin, streams[s]), "record an event");
    check(cudaEventSynchronize(origin), "run its kernels");
    originTime = now();
  }
  if (waiting == timed.size())
    timed.push_back({timedEvent(), nullptr, nullptr});
  Timed &t = timed[waiting++];
  t.to = to;
  t.also = also;
  check(cudaEventRecord(t.event, streams[s]), "record an event");
}

void CudaDevice::readTimes() {
  use();
  std::lock_guard lock(mutex);
  for (size_t i = 0; i < waiting; ++i) {
    const Timed &t = timed[i];
    float ms = 0;
    check(cudaEventSynchronize(t.event), "run its kernels");
    check(cudaEventElapsedTime(&ms, origin, t.event), "tell the time");
    for (double *to : {t.to, t.also})
      if (to)
        *to = originTime + double(ms) * 1e-3;
  }
  waiting = 0;
}

// ---- what kernels ask for

cudaStream_t streamOf(int stream) { return opened->stream(static_cast<Device::Stream>(stream)); }
Fault *faultMemory() { return opened ? opened->fault : nullptr; }

} // namespace zccrt::cuda

void *zccrt_cuda_device(void) { return static_cast<zccrt::Device *>(new zccrt::cuda::CudaDevice); }
