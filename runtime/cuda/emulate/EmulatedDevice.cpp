// A device without a GPU: its memory is a mapping of its own, each stream a thread with a queue. With ZCC_EMULATE_DELAY=US in the
// environment every piece of work waits up to so many microseconds before it runs, by chance: what is ordered by no event shows.
// With ZCC_EMULATE_GPUS=N the ranks of this machine share N devices; otherwise each has one.
#include "runtime/Device.h"
#include "runtime/Environment.h"
#include "runtime/Fail.h"
#include "runtime/cuda/Faults.h"
#include "runtime/cuda/emulate/Emulate.h"
#include "runtime/cuda/emulate/EmulatedTransport.h"
#include "runtime/zccrt.h"
#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
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

class EmulatedDevice : public Device {
public:
  ~EmulatedDevice() override {
    streams.clear();
    for (auto [memory, bytes] : mappings)
      munmap(memory, bytes);
  }

  std::string name() const override { return "an emulated GPU"; }

  void open(int rankOnNode) override {
    const char *gpus = getenv("ZCC_EMULATE_GPUS"), *delay = getenv("ZCC_EMULATE_DELAY");
    number = gpus && atoi(gpus) > 0 ? rankOnNode % atoi(gpus) : rankOnNode;
    for (int s = 0; s < kStreams; ++s)
      streams.push_back(std::make_unique<StreamThread>(s + 1, delay ? atoi(delay) : 0));
  }

  char *map(int64_t bytes) override { // with pages on both sides that nothing may touch
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

  void pin(char *, int64_t) override {}
  void unpin(char *) override {}

  void copy(Stream s, void *to, const void *from, int64_t bytes) override {
    if (bytes)
      call(s, [=] { std::memcpy(to, from, size_t(bytes)); });
  }
  void fill(Stream s, void *to, int byte, int64_t bytes) override {
    if (bytes)
      call(s, [=] { std::memset(to, byte, size_t(bytes)); });
  }
  void call(Stream s, std::function<void()> f) override { streams[s]->add(std::move(f)); }

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

  Mark mark(Stream s) override { return {s, streams[s]->last()}; }
  void wait(Stream s, Mark m) override {
    if (m.number && m.stream != s)
      call(s, [this, m] { streams[m.stream]->wait(m.number); });
  }
  void synchronize(Mark m) override { streams[m.stream]->wait(m.number); }

private:
  int number = 0; ///< of the device, on this machine
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
