// Joining the job, and collectives by MPI messages for ranks on several nodes.
#include "runtime/Elem.h"
#include "runtime/Fail.h"
#include "runtime/comm/Packed.h"
#include "runtime/comm/Shm.h"
#include "runtime/comm/Sum.h"
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <fcntl.h>
// Only the C interface.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>
#include <sys/mman.h>
#include <unistd.h>

namespace zccrt {

namespace {

// Messages of this size reach a network's bandwidth; the staging buffer holds one from every rank.
constexpr int64_t kMessageBytes = 1 << 20;

/// A chunk is a message to and from each rank, or one for each tensor of a bucket that it cuts, all
/// under way at once.
class MpiComm : public Comm {
public:
  MpiComm(int rank, int ranks) : Comm(rank, ranks), staging(kMessageBytes * ranks), requests(2 * ranks), parts(ranks) {}

  void allReduce(Parts tensors, int elem, bool mean) override {
    const int64_t size = elemBytes(elem), chunk = kMessageBytes / size * ranks;
    Packed packed(tensors, [](const Part &p) { return p.count; });
    for (int64_t at = 0; at < packed.total; at += chunk) {
      int64_t n = std::min(chunk, packed.total - at), share = (n + ranks - 1) / ranks;
      auto begin = [&](int r) { return at + std::min(n, r * share); };
      // f(tensor, byte in it, bytes, byte in the share) for what rank r adds up.
      auto shareOf = [&](int r, auto f) {
        packed.each(begin(r), begin(r + 1), [&](const Part &p, int64_t offset, int64_t length, int64_t behind) {
          f(p, offset * size, length * size, behind * size);
        });
      };
      for (int r = 0; r < ranks; ++r)
        if (r != rank) {
          shareOf(r, [&](auto &p, int64_t offset, int64_t bytes, int64_t) { send(from(p, offset), bytes, r); });
          shareOf(rank, [&](auto &, int64_t, int64_t bytes, int64_t behind) { receive(staged(r) + behind, bytes, r); });
        }
      finish();
      shareOf(rank, [&](auto &p, int64_t offset, int64_t bytes, int64_t behind) {
        addUp(from(p, offset), behind, to(p, offset), bytes / size, elem, mean);
      });
      for (int r = 0; r < ranks; ++r)
        if (r != rank) {
          shareOf(rank, [&](auto &p, int64_t offset, int64_t bytes, int64_t) { send(to(p, offset), bytes, r); });
          shareOf(r, [&](auto &p, int64_t offset, int64_t bytes, int64_t) { receive(to(p, offset), bytes, r); });
        }
      finish();
    }
  }

  void reduceScatter(Parts tensors, int elem, bool mean) override {
    const int64_t size = elemBytes(elem), chunk = kMessageBytes / size;
    Packed packed(tensors, [this](const Part &p) { return piece(p.count); });
    for (int64_t at = 0; at < packed.total; at += chunk) {
      int64_t end = std::min(at + chunk, packed.total);
      packed.each(at, end, [&](const Part &p, int64_t offset, int64_t length, int64_t behind) {
        for (int r = 0; r < ranks; ++r)
          if (r != rank) {
            send(from(p, (r * piece(p.count) + offset) * size), pieceLength(p.count, r, offset, length) * size, r);
            receive(staged(r) + behind * size, pieceLength(p.count, rank, offset, length) * size, r);
          }
      });
      finish();
      packed.each(at, end, [&](const Part &p, int64_t offset, int64_t length, int64_t behind) {
        int64_t mine = pieceLength(p.count, rank, offset, length);
        addUp(from(p, (rank * piece(p.count) + offset) * size), behind * size, to(p, offset * size), mine, elem, mean);
        std::memset(to(p, (offset + mine) * size), 0, (length - mine) * size);
      });
    }
  }

  void abort() override {}
  void barrier() override { MPI_Barrier(MPI_COMM_WORLD); }

private:
  void collect(Parts tensors, int elem, bool everyone) override {
    const int64_t size = elemBytes(elem), chunk = kMessageBytes / size;
    auto receives = [&](int r) { return everyone || r == 0; };
    Packed packed(tensors, [this](const Part &p) { return piece(p.count); });
    for (int64_t at = 0; at < packed.total; at += chunk) {
      packed.each(at, std::min(at + chunk, packed.total), [&](const Part &p, int64_t offset, int64_t length, int64_t) {
        int64_t bytes = pieceLength(p.count, rank, offset, length) * size;
        for (int r = 0; r < ranks; ++r) {
          if (r != rank && receives(r))
            send(from(p, offset * size), bytes, r);
          if (!receives(rank))
            continue;
          char *target = to(p, (r * piece(p.count) + offset) * size);
          if (r != rank)
            receive(target, pieceLength(p.count, r, offset, length) * size, r);
          else if (target != from(p, offset * size))
            std::memcpy(target, from(p, offset * size), bytes);
        }
      });
      finish();
    }
  }

  void send(const char *data, int64_t bytes, int to) {
    if (bytes)
      MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, to, 0, MPI_COMM_WORLD, request());
  }
  void receive(char *data, int64_t bytes, int from) {
    if (bytes)
      MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, from, 0, MPI_COMM_WORLD, request());
  }
  MPI_Request *request() {
    if (pending == requests.size())
      requests.resize(2 * pending); // the largest bucket's, from the first step on
    return &requests[pending++];
  }
  void finish() {
    MPI_Waitall(static_cast<int>(pending), requests.data(), MPI_STATUSES_IGNORE);
    pending = 0;
  }
  /// What rank r sent.
  char *staged(int r) { return staging.data() + r * kMessageBytes; }
  /// Adds this rank's own addend and those in the staging buffer, `behind` bytes from its begin.
  void addUp(const char *own, int64_t behind, char *to, int64_t count, int elem, bool mean) {
    for (int r = 0; r < ranks; ++r)
      parts[r] = r == rank ? own : staged(r) + behind;
    sumInOrder(to, parts.data(), ranks, count, elem, mean);
  }

  std::vector<char> staging;
  std::vector<MPI_Request> requests;
  std::vector<const void *> parts;
  size_t pending = 0;
};

Comm *joined = nullptr;

/// Ends the whole job. MPI_Abort can hang when another thread is inside MPI; mpirun ends the others
/// then.
void abortJob() {
  alarm(5);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

/// Maps a window that all ranks of the node share. The memory is reserved at once, so that a full
/// /dev/shm is an error here and no SIGBUS later.
void *mapWindow(int rank, int64_t bytes) {
  char name[64] = {};
  int code = 0, fd = -1;
  if (rank == 0) {
    timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    snprintf(name, sizeof name, "/zccrt.%d.%ld", getpid(), now.tv_nsec);
    fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    code = fd < 0 ? errno : posix_fallocate(fd, 0, bytes);
    if (code && fd >= 0)
      shm_unlink(name);
  }
  MPI_Bcast(&code, 1, MPI_INT, 0, MPI_COMM_WORLD);
  if (code) {
    std::string text = format("cannot get %.1f MiB of shared memory in /dev/shm: %s; make it "
                              "larger (docker: --shm-size), "
                              "or run with --comm=mpi",
                              bytes / 1048576.0, strerror(code));
    if (rank == 0)
      throw Failure(text);
    throw PeerFailure(text);
  }
  MPI_Bcast(name, sizeof name, MPI_CHAR, 0, MPI_COMM_WORLD);
  if (rank != 0)
    fd = shm_open(name, O_RDWR, 0);
  void *window = fd < 0 ? MAP_FAILED : mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  code = window == MAP_FAILED ? errno : 0;
  int worst = 0;
  MPI_Allreduce(&code, &worst, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  if (fd >= 0)
    close(fd);
  if (rank == 0)
    shm_unlink(name);
  if (code)
    fail("cannot map shared memory: %s", strerror(code));
  if (worst)
    throw PeerFailure("another rank cannot map shared memory");
  return window;
}

} // namespace

std::unique_ptr<Comm> mpiComm(int rank, int ranks) { return std::make_unique<MpiComm>(rank, ranks); }

std::unique_ptr<Comm> joinJob(const Launch &launch, CommKind kind) {
  if (!launch.underMpi)
    return singleRank();
  int level = 0, rank = 0, ranks = 1, onNode = 1;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  where.rank = rank;
  where.ranks = ranks;
  abortRanks = abortJob;
  tellRanks = [] {
    if (joined)
      joined->abort();
  };
  if (level < MPI_THREAD_SERIALIZED)
    fail("this MPI has no thread support (MPI_THREAD_SERIALIZED)");
  if (ranks == 1)
    return singleRank();
  MPI_Comm node;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
  MPI_Comm_size(node, &onNode);
  MPI_Comm_free(&node);
  std::unique_ptr<Comm> comm;
  int everyoneHere = onNode == ranks, all = 0;
  MPI_Allreduce(&everyoneHere, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  if (all && kind == CommKind::Auto) {
    void *window = mapWindow(rank, ShmComm::windowBytes(ranks, kShmChunkBytes));
    comm = std::make_unique<ShmComm>(rank, ranks, window, kShmChunkBytes);
  } else {
    comm = mpiComm(rank, ranks);
  }
  joined = comm.get();
  return comm;
}

void leaveJob() {
  int started = 0, ended = 0;
  MPI_Initialized(&started);
  MPI_Finalized(&ended);
  joined = nullptr;
  if (started && !ended)
    MPI_Finalize();
}

} // namespace zccrt
