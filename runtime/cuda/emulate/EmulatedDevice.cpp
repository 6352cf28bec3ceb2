// A device without a GPU: its memory is a mapping of its own, each stream a thread with a queue. With ZCC_EMULATE_DELAY=US in the
// environment every piece of work waits up to so many microseconds before it runs, by chance: what is ordered by no event shows.
// With ZCC_EMULATE_GPUS=N the ranks of this machine share N devices; otherwise each has one.
#include "runtime/Clock.h"
#include "runtime/Device.h"
#include "runtime/Environment.h"
#include "runtime/Fail.h"
#include "runtime/cuda/Faults.h"
#include "runtime/cuda/emulate/Emulate.h"
#include "runtime/cuda/emulate/EmulatedTransport.h"
#include "runtime/zccrt.h"
#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <random>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace zccrt::emulate {

namespace {

class StreamThread {
public:
  StreamThread(int number, int delay) : delay(delay), random(number), worker([this] { work(); }) {}

  ~StreamThread() {
    {
      std::lock_guard lock(mutex);
      stopping = true;
    }
    wake.notify_all();
    worker.join();
  }

  void add(std::function<void()> f) {
    std::unique_lock lock(mutex);
    progress.wait(lock, [&] { return jobs.size() < kMostWaiting; });
    jobs.push_back(std::move(f));
    ++given;
    lock.unlock();
    wake.notify_one();
  }

  uint64_t last() {
    std::lock_guard lock(mutex);
    return given;
  }

  void wait(uint64_t number) {
    std::unique_lock lock(mutex);
    progress.wait(lock, [&] { return done >= number; });
  }

private:
  static constexpr size_t kMostWaiting = 4096;

  void work() {
    useAllCores();
    std::unique_lock lock(mutex);
    while (true) {
      wake.wait(lock, [&] { return stopping || !jobs.empty(); });
      if (jobs.empty())
        return;
      std::function<void()> job = std::move(jobs.front());
      lock.unlock();
      if (delay)
        usleep(random() % delay);
      try {
        job();
      } catch (const std::exception &e) {
        endJob(e.what());
      }
      job = nullptr;
      lock.lock();
      jobs.pop_front();
      ++done;
      progress.notify_all();
    }
  }

  const unsigned delay; ///< us
  std::mt19937 random;
  std::mutex mutex;
  std::condition_variable wake, progress;
  std::deque<std::function<void()>> jobs;
  uint64_t given = 0, done = 0;
  bool stopping = false;
  std::thread worker;
};

/// Work that streams were given while they were captured, by the rules of CUDA's runtime: a stream is captured from when it waits
/// for a mark of one that is, and Compute has to have waited for all of it in the end.
struct Capture {
  /// Of each stream, how much of what it was given comes before something.
  using Past = std::array<uint64_t, Device::kStreams>;
  /// Marks of captured work have numbers from here on.
  static constexpr uint64_t kFirst = uint64_t(1) << 62;

  struct Item {
    Device::Stream stream;
    std::function<void()> work; ///< nullptr: it waits for the mark
    Device::Mark behind;
  };
  std::vector<Item> items;
  std::array<bool, Device::kStreams> has = {};
  std::array<Past, Device::kStreams> past = {};
  std::map<std::pair<int, uint64_t>, Past> pastOf; ///< of marks

  void add(Device::Stream s, std::function<void()> work, Device::Mark behind = {}) {
    if (!has[s])
      fail("internal: stream %d is given work beside a capture that has not come to it; it would run at once", int(s));
    items.push_back({s, std::move(work), behind});
    ++past[s][s];
  }
  Device::Mark mark(Device::Stream s) {
    pastOf[{s, past[s][s]}] = past[s];
    return {s, kFirst + past[s][s]};
  }
  void wait(Device::Stream s, Device::Mark m) {
    if (m.number < kFirst)
      fail("internal: cudaErrorStreamCaptureIsolation: captured work waits for what was queued before");
    has[s] = true;
    if (m.stream == s)
      return;
    add(s, nullptr, m);
    const Past &other = pastOf.at({m.stream, m.number - kFirst});
    for (int t = 0; t < Device::kStreams; ++t)
      past[s][t] = std::max(past[s][t], other[t]);
  }
  void end() const {
    for (int s = 0; s < Device::kStreams; ++s)
      if (past[s][s] > past[Device::Compute][s])
        fail("internal: cudaErrorStreamCaptureUnjoined: Compute does not wait for all of stream %d", s);
  }
};

class EmulatedDevice : public Device {
public:
  ~EmulatedDevice() override {
    streams.clear();
    for (auto [memory, bytes] : mappings) {
      if (watcher)
        watcher->dropMemory(static_cast<char *>(memory) + sysconf(_SC_PAGESIZE));
      munmap(memory, bytes);
    }
  }

  std::string name() const override { return "an emulated GPU"; }

  void open(int rankOnNode) override {
    const char *gpus = getenv("ZCC_EMULATE_GPUS"), *delay = getenv("ZCC_EMULATE_DELAY");
    number = gpus && atoi(gpus) > 0 ? rankOnNode % atoi(gpus) : rankOnNode;
    for (int s = 0; s < kStreams; ++s)
      streams.push_back(std::make_unique<StreamThread>(s + 1, delay ? atoi(delay) : 0));
  }

  char *map(int64_t bytes) override { // with pages on both sides that nothing may touch
    mayNotCapture("ask for memory");
    int64_t page = sysconf(_SC_PAGESIZE), room = (std::max<int64_t>(bytes, 1) + page - 1) / page * page;
    void *memory = mmap(nullptr, room + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
      failErrno("cannot get %lld bytes of emulated device memory", static_cast<long long>(bytes));
    mappings.push_back({memory, room + 2 * page});
    char *start = static_cast<char *>(memory) + page;
    if (mprotect(start, room, PROT_READ | PROT_WRITE) != 0)
      failErrno("cannot get %lld bytes of emulated device memory", static_cast<long long>(bytes));
    if (watcher)
      watcher->addMemory(start, bytes);
    return start;
  }

  void pin(char *, int64_t) override { mayNotCapture("pin memory"); }
  void unpin(char *) override { mayNotCapture("unpin memory"); }

  void copy(Stream s, void *to, const void *from, int64_t bytes) override {
    if (bytes)
      call(s, [=] { std::memcpy(to, from, size_t(bytes)); });
  }
  void fill(Stream s, void *to, int byte, int64_t bytes) override {
    if (bytes)
      call(s, [=] { std::memset(to, byte, size_t(bytes)); });
  }
  void call(Stream s, std::function<void()> f) override {
    if (capturing)
      capturing->add(s, std::move(f));
    else
      streams[s]->add(std::move(f));
  }

  std::unique_ptr<DeviceGraph> capture(const std::function<void()> &f) override {
    capturing = std::make_unique<Capture>();
    capturing->has[Compute] = true;
    try {
      f();
      capturing->end();
    } catch (...) {
      capturing = nullptr;
      throw;
    }
    return std::make_unique<Graph>(*this, std::move(capturing));
  }

  void timeAt(Stream s, double *to, double *also) override {
    mayNotCapture("look at the time");
    call(s, [=] {
      const double time = now();
      for (double *t : {to, also})
        if (t)
          *t = time;
    });
  }
  void readTimes() override { synchronize(); }

  void checkFaults() override {
    if (const cuda::Fault &f = *cuda::faultMemory(); f.isSet)
      zccrt_fail(f.node, "index %lld is outside of an axis of %lld", f.index, f.axis);
  }

  std::unique_ptr<Transport> transport(Comm &comm, std::string &whyNot) override {
    std::vector<int> numbers(comm.ranks);
    comm.exchange(&number, sizeof number, numbers.data());
    std::sort(numbers.begin(), numbers.end());
    if (std::adjacent_find(numbers.begin(), numbers.end()) == numbers.end())
      return emulatedTransport(*this);
    whyNot = "ranks share a GPU, between which NCCL has no messages";
    return nullptr;
  }

  Mark mark(Stream s) override { return capturing && capturing->has[s] ? capturing->mark(s) : Mark{s, streams[s]->last()}; }
  void wait(Stream s, Mark m) override {
    if (capturing && (capturing->has[s] || m.number >= Capture::kFirst)) {
      if (m.number)
        capturing->wait(s, m);
      return;
    }
    if (m.number >= Capture::kFirst)
      fail("internal: cudaErrorInvalidValue: a mark of captured work is waited for when it is a graph's");
    if (m.number && m.stream != s)
      streams[s]->add([this, m] { streams[m.stream]->wait(m.number); });
  }
  using Device::synchronize;
  void synchronize(Mark m) override {
    mayNotCapture("wait for the device");
    streams[m.stream]->wait(m.number);
  }

private:
  class Graph : public DeviceGraph {
  public:
    Graph(EmulatedDevice &d, std::unique_ptr<Capture> c) : on(d), captured(std::move(c)) {}
    void launch() override {
      on.mayNotCapture("launch a graph");
      Capture::Past before;
      for (int s = 0; s < kStreams; ++s)
        before[s] = on.streams[s]->last();
      for (const Capture::Item &i : captured->items) {
        StreamThread *other = on.streams[i.behind.stream].get();
        uint64_t number = i.work ? 0 : i.behind.number - Capture::kFirst + before[i.behind.stream];
        on.streams[i.stream]->add(i.work ? i.work : [=] { other->wait(number); });
      }
    }

  private:
    EmulatedDevice &on;
    std::unique_ptr<Capture> captured;
  };

  void mayNotCapture(const char *what) const {
    if (capturing)
      fail("internal: cudaErrorStreamCaptureUnsupported: captured work would %s", what);
  }

  std::unique_ptr<Capture> capturing; ///< nullptr: what streams are given runs
  int number = 0;                     ///< of the device, on this machine
  std::vector<std::unique_ptr<StreamThread>> streams;
  std::vector<std::pair<void *, int64_t>> mappings;
};

} // namespace

void queue(int stream, std::function<void()> f) { device()->call(static_cast<Device::Stream>(stream), std::move(f)); }

} // namespace zccrt::emulate

// ---- what programs and kernels ask for

void *zccrt_emulated_device(void) { return new zccrt::emulate::EmulatedDevice; }

namespace zccrt::cuda {

Fault *faultMemory() {
  static Fault fault;
  return &fault;
}

} // namespace zccrt::cuda
