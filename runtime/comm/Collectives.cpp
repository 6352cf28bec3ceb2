// zccrt_*_start and zccrt_wait: collectives in the order of their starts, on a thread of their own or at once.
#include "runtime/Device.h"
#include "runtime/Elem.h"
#include "runtime/Fail.h"
#include "runtime/JobQueue.h"
#include "runtime/Trace.h"
#include "runtime/comm/Comm.h"
#include "runtime/comm/OnDevice.h"
#include "runtime/comm/Staged.h"
#include <cstring>
#include <vector>

namespace zccrt {

namespace {

struct Job {
  enum Kind { AllReduce, AllGather, ReduceScatter } kind = AllReduce;
  std::vector<Part> parts; ///< in the arena
  int elem = 0;
  bool mean = false;
  int node = -1; ///< that starts it
};

/// Collectives under way.
class Queue {
public:
  Queue(Comm &comm, int slots, int mostParts, bool ownThread)
      : comm(comm), turnOf(slots, 0), jobs(
                                          slots, ownThread,
                                          [mostParts] {
                                            Job j;
                                            j.parts.reserve(mostParts);
                                            return j;
                                          },
                                          [this](const Job &j) { run(this->comm, j); }) {}

  /// From now on between the memories of devices.
  void use(Device &d, std::unique_ptr<Transport> by, int64_t stagingBytes) {
    int slots = static_cast<int>(turnOf.size());
    if (by)
      onDevice = std::make_unique<DeviceCollectives>(d, std::move(by), comm, slots);
    else
      staged = std::make_unique<StagedCollectives>(d, slots, stagingBytes);
  }

  void start(char *arena, int slot, Job::Kind kind, const zccrt_part *parts, int n, int elem, bool mean) {
    if (slot < 0 || slot >= static_cast<int>(turnOf.size()))
      endJob(format("collective slot %d of %zu", slot, turnOf.size()));
    auto fill = [&](Job &job) {
      job.kind = kind;
      job.elem = elem;
      job.mean = mean;
      job.node = nodeNow();
      job.parts.clear();
      for (int i = 0; i < n; ++i)
        job.parts.push_back({arena + parts[i].in, arena + parts[i].out, parts[i].count});
      count(job);
    };
    if (onDevice) {
      Job &job = queued;
      fill(job);
      return onDevice->start(slot, [&](Comm &by) {
        StreamScope span(Device::Collectives, Lane::Collectives, nullptr, -1, job.node);
        runJob(by, job);
      });
    }
    if (staged) {
      Job job;
      fill(job);
      return staged->start(slot, bytesOf(job), [this, job](const std::vector<Part> &parts) {
        Job onHost = job;
        onHost.parts = parts;
        run(comm, onHost);
      });
    }
    // No more are under way than there are slots, so the job's place is free.
    turnOf[slot] = jobs.start(fill);
  }

  void wait(int slot) {
    if (onDevice)
      onDevice->wait(slot);
    else if (staged)
      staged->wait(slot);
    else
      jobs.wait(turnOf[slot]);
  }

  const Comm &ranks() const { return comm; }

  bool isStaged() const { return staged != nullptr; }

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

  /// What a job's parts read and write.
  std::vector<StagedPart> bytesOf(const Job &j) const {
    std::vector<StagedPart> out;
    for (const Part &p : j.parts) {
      int64_t all = p.count * elemBytes(j.elem), piece = comm.piece(p.count) * elemBytes(j.elem);
      out.push_back({p, j.kind == Job::AllGather ? piece : all, j.kind == Job::ReduceScatter ? piece : all});
    }
    return out;
  }

  static void run(Comm &comm, const Job &j) {
    TraceScope span(Lane::Collectives, nullptr, -1, j.node);
    runJob(comm, j);
  }

  static void runJob(Comm &comm, const Job &j) {
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

  Comm &comm;
  std::vector<uint64_t> turnOf; ///< by slot: what to wait for
  JobQueue<Job> jobs;
  // Where the arena is a device's, one of:
  std::unique_ptr<DeviceCollectives> onDevice;
  std::unique_ptr<StagedCollectives> staged;
  Job queued; ///< its memory is used again
};

std::unique_ptr<Queue> queue;

void start(char *arena, int slot, Job::Kind kind, const zccrt_part *parts, int n, int elem, bool mean) {
  if (!queue)
    endJob("a collective was started outside the step loop");
  queue->start(arena, slot, kind, parts, n, elem, mean);
}

} // namespace

std::string startCollectives(Comm &comm, const CollectiveOptions &o) {
  Device *d = device();
  queue = std::make_unique<Queue>(comm, std::max(o.slots, 1), o.mostParts, o.ownThread && comm.ranks > 1 && o.slots > 0 && !d);
  if (!d || !o.slots) // the program has none
    return "";
  std::string whyNot;
  std::unique_ptr<Transport> by;
  if (o.kind == CommKind::Auto)
    by = d->transport(comm, whyNot);
  queue->use(*d, std::move(by), o.stagingBytes);
  return whyNot;
}

void stopCollectives() { queue.reset(); }

Traffic traffic() { return queue ? queue->sent : Traffic(); }

void addTraffic(const Traffic &more) {
  if (!queue)
    return;
  queue->sent.allReduce += more.allReduce;
  queue->sent.allGather += more.allGather;
  queue->sent.reduceScatter += more.reduceScatter;
}

bool collectivesAreStaged() { return queue && queue->isStaged(); }

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
  if (zccrt::Device *d = zccrt::device()) {
    d->copy(zccrt::Device::Compute, arena + part->out, arena + part->in + comm.rank * whole * size, mine * size);
    d->fill(zccrt::Device::Compute, arena + part->out + mine * size, 0, (whole - mine) * size);
    return;
  }
  std::memcpy(arena + part->out, arena + part->in + comm.rank * whole * size, mine * size);
  std::memset(arena + part->out + mine * size, 0, (whole - mine) * size);
}
