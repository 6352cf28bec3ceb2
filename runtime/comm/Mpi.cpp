// Joining the job, and collectives by MPI messages for ranks on several nodes.
#include "runtime/Fail.h"
#include "runtime/comm/Messages.h"
#include "runtime/comm/Shm.h"
#include "runtime/comm/Sum.h"
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

// Messages of this size reach a network's bandwidth.
constexpr int64_t kMessageBytes = 1 << 20;

class MpiTransport : public Transport {
public:
  char *allocate(int64_t bytes) override {
    memory.resize(bytes);
    return memory.data();
  }
  void send(const char *data, int64_t bytes, int to) override {
    MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, to, 0, MPI_COMM_WORLD, request());
  }
  void receive(char *data, int64_t bytes, int from) override {
    MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, from, 0, MPI_COMM_WORLD, request());
  }
  void finish() override {
    MPI_Waitall(static_cast<int>(pending), requests.data(), MPI_STATUSES_IGNORE);
    pending = 0;
  }
  void copy(char *to, const char *from, int64_t bytes) override { std::memcpy(to, from, bytes); }
  void zero(char *to, int64_t bytes) override { std::memset(to, 0, bytes); }
  void sum(char *out, const Addends &a, int64_t count, int elem, bool mean) override {
    parts.resize(a.ranks);
    for (int r = 0; r < a.ranks; ++r)
      parts[r] = a.of(r);
    sumInOrder(out, parts.data(), a.ranks, count, elem, mean);
  }

private:
  MPI_Request *request() {
    if (pending == requests.size())
      requests.resize(2 * pending + 2); // the largest bucket's, from the first step on
    return &requests[pending++];
  }

  std::vector<char> memory;
  std::vector<MPI_Request> requests;
  std::vector<const void *> parts;
  size_t pending = 0;
};

class MpiComm : public MessageComm {
public:
  MpiComm(int rank, int ranks) : MessageComm(rank, ranks, mpiTransport(), kMessageBytes) {}
  void barrier() override { MPI_Barrier(MPI_COMM_WORLD); }
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

std::unique_ptr<Transport> mpiTransport() { return std::make_unique<MpiTransport>(); }
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
