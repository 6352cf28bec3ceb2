// zccrt_*_start and zccrt_wait: collectives in the order of their starts, on a thread of their own
// or at once.
#include "runtime/Fail.h"
#include "runtime/comm/Comm.h"
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

namespace zccrt {

namespace {

struct Job {
  enum Kind { AllReduce, AllGather, ReduceScatter } kind;
  const void *in;
  void *out;
  int64_t count;
  int elem;
  bool mean;
};

/// Collectives under way. Everything is allocated when it is made: a step only moves numbers.
class Queue {
public:
  Queue(Comm &comm, int slots, bool ownThread) : comm(comm), ring(slots), turnOf(slots, 0) {
    if (ownThread)
      worker = std::thread([this] { work(); });
  }

  ~Queue() {
    if (!worker.joinable())
      return;
    {
      std::lock_guard lock(mutex);
      stopping = true;
    }
    wake.notify_all();
    worker.join();
  }

  void start(int slot, const Job &job) {
    if (slot < 0 || slot >= static_cast<int>(ring.size()))
      endJob(format("collective slot %d of %zu", slot, ring.size()));
    if (!worker.joinable())
      return run(job);
    {
      std::lock_guard lock(mutex);
      ring[started % ring.size()] = job;
      turnOf[slot] = ++started;
    }
    wake.notify_one();
  }

  void wait(int slot) {
    if (!worker.joinable())
      return;
    std::unique_lock lock(mutex);
    progress.wait(lock, [&] { return finished >= turnOf[slot]; });
  }

private:
  void run(const Job &j) {
    try {
      switch (j.kind) {
      case Job::AllReduce:
        return comm.allReduce(j.in, j.out, j.count, j.elem, j.mean);
      case Job::AllGather:
        return comm.allGather(j.in, j.out, j.count, j.elem);
      case Job::ReduceScatter:
        return comm.reduceScatter(j.in, j.out, j.count, j.elem, j.mean);
      }
    } catch (const PeerFailure &) {
      endSilently();
    } catch (const std::exception &e) {
      endJob(e.what());
    }
  }

  void work() {
    // mpirun binds a rank to the cores it computes on.
    useAllCores();
    std::unique_lock lock(mutex);
    while (true) {
      wake.wait(lock, [&] { return stopping || finished < started; });
      if (finished == started)
        return;
      Job job = ring[finished % ring.size()];
      lock.unlock();
      run(job);
      lock.lock();
      ++finished;
      progress.notify_all();
    }
  }

  Comm &comm;
  std::vector<Job> ring;        ///< as many as can be under way
  std::vector<uint64_t> turnOf; ///< by slot: the how-manieth start it was
  uint64_t started = 0, finished = 0;
  bool stopping = false;
  std::mutex mutex;
  std::condition_variable wake, progress;
  std::thread worker; ///< last: it uses all of the above
};

std::unique_ptr<Queue> queue;

void start(char *arena, int slot, Job::Kind kind, int64_t in, int64_t out, int64_t count, int elem,
           bool mean) {
  if (!queue)
    endJob("a collective was started outside the step loop");
  queue->start(slot, {kind, arena + in, arena + out, count, elem, mean});
}

} // namespace

void startCollectives(Comm &comm, int slots, bool ownThread) {
  queue =
      std::make_unique<Queue>(comm, std::max(slots, 1), ownThread && comm.ranks > 1 && slots > 0);
}

void stopCollectives() { queue.reset(); }

} // namespace zccrt

void zccrt_all_reduce_start(char *arena, int slot, int64_t in, int64_t out, int64_t count, int elem,
                            int mean) {
  zccrt::start(arena, slot, zccrt::Job::AllReduce, in, out, count, elem, mean != 0);
}

void zccrt_all_gather_start(char *arena, int slot, int64_t in, int64_t out, int64_t count,
                            int elem) {
  zccrt::start(arena, slot, zccrt::Job::AllGather, in, out, count, elem, false);
}

void zccrt_reduce_scatter_start(char *arena, int slot, int64_t in, int64_t out, int64_t count,
                                int elem, int mean) {
  zccrt::start(arena, slot, zccrt::Job::ReduceScatter, in, out, count, elem, mean != 0);
}

void zccrt_wait(int slot) {
  if (zccrt::queue)
    zccrt::queue->wait(slot);
}
