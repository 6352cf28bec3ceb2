// Joining the job, and collectives by MPI messages for ranks on several nodes.
#include "runtime/Elem.h"
#include "runtime/Fail.h"
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

class MpiComm : public Comm {
public:
  MpiComm(int rank, int ranks)
      : Comm(rank, ranks), staging(kMessageBytes * ranks), requests(2 * ranks), parts(ranks) {}

  void allReduce(const void *in, void *out, int64_t count, int elem, bool mean) override {
    const int64_t size = elemBytes(elem), part = kMessageBytes / size;
    for (int64_t at = 0; at < count; at += part * ranks) {
      const char *from = static_cast<const char *>(in) + at * size;
      char *to = static_cast<char *>(out) + at * size;
      int64_t n = std::min(part * ranks, count - at), mine = (n + ranks - 1) / ranks;
      auto begin = [&](int r) { return std::min(n, r * mine) * size; };
      int64_t lo = begin(rank), bytes = begin(rank + 1) - lo;
      for (int r = 0; r < ranks; ++r)
        if (r != rank) {
          send(from + begin(r), begin(r + 1) - begin(r), r);
          receive(staging.data() + r * kMessageBytes, bytes, r);
        }
      finish();
      addUp(from + lo, to + lo, bytes / size, elem, mean);
      for (int r = 0; r < ranks; ++r)
        if (r != rank) {
          send(to + lo, bytes, r);
          receive(to + begin(r), begin(r + 1) - begin(r), r);
        }
      finish();
    }
  }

  void reduceScatter(const void *in, void *out, int64_t count, int elem, bool mean) override {
    const int64_t size = elemBytes(elem), whole = piece(count), chunk = kMessageBytes / size;
    const char *from = static_cast<const char *>(in);
    for (int64_t at = 0; at < whole; at += chunk) {
      int64_t n = std::min(chunk, whole - at), mine = pieceLength(count, rank, at, n);
      for (int r = 0; r < ranks; ++r)
        if (r != rank) {
          send(from + (r * whole + at) * size, pieceLength(count, r, at, n) * size, r);
          receive(staging.data() + r * kMessageBytes, mine * size, r);
        }
      finish();
      char *to = static_cast<char *>(out) + at * size;
      addUp(from + (rank * whole + at) * size, to, mine, elem, mean);
      std::memset(to + mine * size, 0, (n - mine) * size);
    }
  }

  void abort() override {}
  void barrier() override { MPI_Barrier(MPI_COMM_WORLD); }

private:
  void collect(const void *in, void *out, int64_t count, int elem, bool everyone) override {
    const int64_t size = elemBytes(elem), whole = piece(count), chunk = kMessageBytes / size;
    auto receives = [&](int r) { return everyone || r == 0; };
    for (int64_t at = 0; at < whole; at += chunk) {
      const char *from = static_cast<const char *>(in) + at * size;
      int64_t bytes = pieceLength(count, rank, at, chunk) * size;
      for (int r = 0; r < ranks; ++r) {
        if (r != rank && receives(r))
          send(from, bytes, r);
        if (!receives(rank))
          continue;
        char *to = static_cast<char *>(out) + (r * whole + at) * size;
        if (r != rank)
          receive(to, pieceLength(count, r, at, chunk) * size, r);
        else if (to != from)
          std::memcpy(to, from, bytes);
      }
      finish();
    }
  }

  void send(const char *data, int64_t bytes, int to) {
    if (bytes)
      MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, to, 0, MPI_COMM_WORLD,
                &requests[pending++]);
  }
  void receive(char *data, int64_t bytes, int from) {
    if (bytes)
      MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, from, 0, MPI_COMM_WORLD,
                &requests[pending++]);
  }
  void finish() {
    MPI_Waitall(pending, requests.data(), MPI_STATUSES_IGNORE);
    pending = 0;
  }
  /// Adds this rank's own addend and those in the staging buffer.
  void addUp(const char *own, char *to, int64_t count, int elem, bool mean) {
    for (int r = 0; r < ranks; ++r)
      parts[r] = r == rank ? own : staging.data() + r * kMessageBytes;
    sumInOrder(to, parts.data(), ranks, count, elem, mean);
  }

  std::vector<char> staging;
  std::vector<MPI_Request> requests;
  std::vector<const void *> parts;
  int pending = 0;
};

Comm *joined = nullptr;

/// Ends the whole job. MPI_Abort can hang when another thread is inside MPI; mpirun ends the others
/// then.
void abortJob() {
  if (joined)
    joined->abort();
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
  void *window =
      fd < 0 ? MAP_FAILED : mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
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

std::unique_ptr<Comm> mpiComm(int rank, int ranks) {
  return std::make_unique<MpiComm>(rank, ranks);
}

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
