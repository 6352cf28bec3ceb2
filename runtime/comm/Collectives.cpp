// zccrt_*_start and zccrt_wait: collectives in the order of their starts, on a thread of their own or at once.
#include "runtime/Elem.h"
#include "runtime/Fail.h"
#include "runtime/comm/Comm.h"
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

namespace zccrt {

namespace {

struct Job {
  enum Kind { AllReduce, AllGather, ReduceScatter } kind = AllReduce;
  std::vector<Part> parts;
  int elem = 0;
  bool mean = false;
};

/// Collectives under way. Everything is allocated when it is made: a step only moves numbers.
class Queue {
public:
  Queue(Comm &comm, int slots, int mostParts, bool ownThread) : comm(comm), ring(slots), turnOf(slots, 0) {
    for (Job &j : ring)
      j.parts.reserve(mostParts);
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

  void start(char *arena, int slot, Job::Kind kind, const zccrt_part *parts, int n, int elem, bool mean) {
    if (slot < 0 || slot >= static_cast<int>(ring.size()))
      endJob(format("collective slot %d of %zu", slot, ring.size()));
    // No more are under way than there are slots, so this place of the ring is free.
    Job &job = ring[started % ring.size()];
    job.kind = kind;
    job.elem = elem;
    job.mean = mean;
    job.parts.clear();
    for (int i = 0; i < n; ++i)
      job.parts.push_back({arena + parts[i].in, arena + parts[i].out, parts[i].count});
    count(job);
    if (!worker.joinable())
      return run(job);
    {
      std::lock_guard lock(mutex);
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

  const Comm &ranks() const { return comm; }

  Traffic sent;

private:
  /// What a rank sends: its piece to each other (all-gather), theirs to each other
  /// (reduce-scatter), both (all-reduce).
  void count(const Job &j) {
    for (const Part &p : j.parts) {
      int64_t own = comm.pieceLength(p.count, comm.rank, 0, p.count);
      int64_t gathered = own * (comm.ranks - 1) * elemBytes(j.elem);
      int64_t scattered = (p.count - own) * elemBytes(j.elem);
      if (j.kind == Job::AllGather)
        sent.allGather += gathered;
      else if (j.kind == Job::ReduceScatter)
        sent.reduceScatter += scattered;
      else
        sent.allReduce += gathered + scattered;
    }
  }

  void run(const Job &j) {
    try {
      switch (j.kind) {
      case Job::AllReduce:
        return comm.allReduce(j.parts, j.elem, j.mean);
      case Job::AllGather:
        return comm.allGather(j.parts, j.elem);
      case Job::ReduceScatter:
        return comm.reduceScatter(j.parts, j.elem, j.mean);
      }
    } catch (const PeerFailure &) {
      endSilently();
    } catch (const RankDied &e) {
      endJob(e.what(), About::AnotherRank);
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
      const Job &job = ring[finished % ring.size()];
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

void start(char *arena, int slot, Job::Kind kind, const zccrt_part *parts, int n, int elem, bool mean) {
  if (!queue)
    endJob("a collective was started outside the step loop");
  queue->start(arena, slot, kind, parts, n, elem, mean);
}

} // namespace

void startCollectives(Comm &comm, int slots, int mostParts, bool ownThread) {
  queue = std::make_unique<Queue>(comm, std::max(slots, 1), mostParts, ownThread && comm.ranks > 1 && slots > 0);
}

void stopCollectives() { queue.reset(); }

Traffic traffic() { return queue ? queue->sent : Traffic(); }

} // namespace zccrt

void zccrt_all_reduce_start(char *arena, int slot, const zccrt_part *parts, int n, int elem, int mean) {
  zccrt::start(arena, slot, zccrt::Job::AllReduce, parts, n, elem, mean != 0);
}

void zccrt_all_gather_start(char *arena, int slot, const zccrt_part *parts, int n, int elem) {
  zccrt::start(arena, slot, zccrt::Job::AllGather, parts, n, elem, false);
}

void zccrt_reduce_scatter_start(char *arena, int slot, const zccrt_part *parts, int n, int elem, int mean) {
  zccrt::start(arena, slot, zccrt::Job::ReduceScatter, parts, n, elem, mean != 0);
}

void zccrt_wait(int slot) {
  if (zccrt::queue)
    zccrt::queue->wait(slot);
}

void zccrt_shard(char *arena, const zccrt_part *part, int elem) {
  if (!zccrt::queue)
    zccrt::endJob("a tensor was split outside the step loop");
  const zccrt::Comm &comm = zccrt::queue->ranks();
  int64_t size = zccrt::elemBytes(elem), whole = comm.piece(part->count);
  int64_t mine = comm.pieceLength(part->count, comm.rank, 0, whole);
  std::memcpy(arena + part->out, arena + part->in + comm.rank * whole * size, mine * size);
  std::memset(arena + part->out + mine * size, 0, (whole - mine) * size);
}
