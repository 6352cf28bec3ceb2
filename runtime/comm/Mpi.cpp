// Joining the job, and collectives by MPI messages for ranks on several nodes. The MPI that the runtime was built with is loaded
// where mpirun has started the program.
#include "runtime/Library.h"
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
#include <utility>
#include <vector>

namespace zccrt {

namespace {

/// The functions that are used, and the handles: objects of the library, or numbers.
struct MpiLibrary {
#define ZCC_MPI(F)                                                                                                               \
  F(MPI_Init_thread)                                                                                                             \
  F(MPI_Comm_rank)                                                                                                               \
  F(MPI_Comm_size)                                                                                                               \
  F(MPI_Comm_split_type)                                                                                                         \
  F(MPI_Comm_free)                                                                                                               \
  F(MPI_Isend)                                                                                                                   \
  F(MPI_Irecv)                                                                                                                   \
  F(MPI_Waitall)                                                                                                                 \
  F(MPI_Get_count)                                                                                                               \
  F(MPI_Barrier)                                                                                                                 \
  F(MPI_Bcast)                                                                                                                   \
  F(MPI_Allreduce)                                                                                                               \
  F(MPI_Abort)                                                                                                                   \
  F(MPI_Initialized)                                                                                                             \
  F(MPI_Finalized)                                                                                                               \
  F(MPI_Finalize)
#define ZCC_MEMBER(NAME) decltype(::NAME) *NAME = nullptr;
  ZCC_MPI(ZCC_MEMBER)
#undef ZCC_MEMBER
  MPI_Comm world;
  MPI_Datatype bytes, integers, characters;
  MPI_Op most, least;
  MPI_Info noInfo;

  MpiLibrary();
};

bool isLoaded = false;

#ifdef OPEN_MPI
template <typename T> T objectOf(void *file, const char *name) {
  T object = nullptr;
  load(object, file, name);
  return object;
}
#define ZCC_HANDLE(TYPE, NAME, SYMBOL) objectOf<TYPE>(file, SYMBOL)
#else
#define ZCC_HANDLE(TYPE, NAME, SYMBOL) NAME
#endif

MpiLibrary::MpiLibrary() {
  void *file = openFirst({ZCC_MPI_SONAME, ZCC_MPI_FILE}, RTLD_GLOBAL);
  if (!file)
    fail("mpirun has started this program, and the MPI that it was built with, %s, is not found: name its folder in "
         "LD_LIBRARY_PATH",
         ZCC_MPI_SONAME);
#define ZCC_LOAD(NAME) load(NAME, file, #NAME);
  ZCC_MPI(ZCC_LOAD)
#undef ZCC_LOAD
  world = ZCC_HANDLE(MPI_Comm, MPI_COMM_WORLD, "ompi_mpi_comm_world");
  bytes = ZCC_HANDLE(MPI_Datatype, MPI_BYTE, "ompi_mpi_byte");
  integers = ZCC_HANDLE(MPI_Datatype, MPI_INT, "ompi_mpi_int");
  characters = ZCC_HANDLE(MPI_Datatype, MPI_CHAR, "ompi_mpi_char");
  most = ZCC_HANDLE(MPI_Op, MPI_MAX, "ompi_mpi_op_max");
  least = ZCC_HANDLE(MPI_Op, MPI_MIN, "ompi_mpi_op_min");
  noInfo = ZCC_HANDLE(MPI_Info, MPI_INFO_NULL, "ompi_mpi_info_null");
  isLoaded = true;
}

const MpiLibrary &mpi() {
  static const MpiLibrary library;
  return library;
}

// Messages of this size reach a network's bandwidth.
constexpr int64_t kMessageBytes = 1 << 20;

class MpiTransport : public Transport {
public:
  char *allocate(int64_t bytes) override {
    memory.resize(bytes);
    return memory.data();
  }
  void send(const char *data, int64_t bytes, int to) override {
    mpi().MPI_Isend(data, static_cast<int>(bytes), mpi().bytes, to, 0, mpi().world, request(kSent));
  }
  void receive(char *data, int64_t bytes, int from) override {
    mpi().MPI_Irecv(data, static_cast<int>(bytes), mpi().bytes, from, 0, mpi().world, request(static_cast<int>(bytes)));
  }
  void finish() override {
    const size_t count = std::exchange(pending, 0);
    mpi().MPI_Waitall(static_cast<int>(count), requests.data(), statuses.data());
    // MPI takes a message that is shorter than its place. NCCL would wait for the rest of it.
    for (size_t i = 0; i < count; ++i)
      if (int bytes = 0; expected[i] != kSent) {
        mpi().MPI_Get_count(&statuses[i], mpi().bytes, &bytes);
        if (bytes != expected[i])
          fail("internal: rank %d has sent %d bytes where %d are expected", statuses[i].MPI_SOURCE, bytes, expected[i]);
      }
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
  static constexpr int kSent = -1;

  MPI_Request *request(int bytes) {
    if (pending == requests.size()) { // the largest bucket's, from the first step on
      requests.resize(2 * pending + 2);
      statuses.resize(requests.size());
      expected.resize(requests.size());
    }
    expected[pending] = bytes;
    return &requests[pending++];
  }

  std::vector<char> memory;
  std::vector<MPI_Request> requests;
  std::vector<MPI_Status> statuses;
  std::vector<int> expected; ///< bytes to receive; kSent
  std::vector<const void *> parts;
  size_t pending = 0;
};

class MpiComm : public MessageComm {
public:
  MpiComm(int rank, int ranks) : MessageComm(rank, ranks, mpiTransport(), kMessageBytes) {}
  void barrier() override { mpi().MPI_Barrier(mpi().world); }
};

Comm *joined = nullptr;

/// Ends the whole job. MPI_Abort can hang when another thread is inside MPI; mpirun ends the others
/// then.
void abortJob() {
  alarm(5);
  mpi().MPI_Abort(mpi().world, 1);
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
  mpi().MPI_Bcast(&code, 1, mpi().integers, 0, mpi().world);
  if (code) {
    const char *remedy = code == EFBIG ? "raise the limit of a file's size (ulimit -f)" : "make it larger (docker: --shm-size)";
    std::string text = format("cannot get %.1f MiB of shared memory in /dev/shm: %s; %s, or run with --comm=mpi",
                              bytes / 1048576.0, strerror(code), remedy);
    if (rank == 0)
      throw Failure(text);
    throw PeerFailure(text);
  }
  mpi().MPI_Bcast(name, sizeof name, mpi().characters, 0, mpi().world);
  if (rank != 0)
    fd = shm_open(name, O_RDWR, 0);
  void *window = fd < 0 ? MAP_FAILED : mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  code = window == MAP_FAILED ? errno : 0;
  int worst = 0;
  mpi().MPI_Allreduce(&code, &worst, 1, mpi().integers, mpi().most, mpi().world);
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

/// Every rank calls it before anything that options decide.
static void expectSameCommand(int rank, int ranks, uint64_t command) {
  uint64_t first = command;
  mpi().MPI_Bcast(&first, sizeof first, mpi().bytes, 0, mpi().world);
  int mine = first == command ? ranks : rank, other = ranks;
  mpi().MPI_Allreduce(&mine, &other, 1, mpi().integers, mpi().least, mpi().world);
  if (other == ranks)
    return;
  const std::string text = format("rank %d runs with another command line than rank 0", other);
  if (rank == 0)
    fprintf(stderr, "%s: error: %s\n", where.program.c_str(), text.c_str());
  throw AgreedFailure(text);
}

std::unique_ptr<Comm> joinJob(Launch &launch, CommKind kind, uint64_t command) {
  if (launch.ranks == 1)
    return singleRank();
  // What draws or reads topologies for people takes 2 MiB of each rank (libX11, libxml2 with ICU) where ranks are not bound
  // (hwloc's manual, "Environment Variables").
  setenv("HWLOC_PLUGINS_BLACKLIST", "hwloc_gl.so,hwloc_opencl.so,hwloc_xml_libxml.so", 0);
  int level = 0, rank = 0, ranks = 1;
  mpi().MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level);
  mpi().MPI_Comm_rank(mpi().world, &rank);
  mpi().MPI_Comm_size(mpi().world, &ranks);
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
  expectSameCommand(rank, ranks, command);
  MPI_Comm node;
  mpi().MPI_Comm_split_type(mpi().world, MPI_COMM_TYPE_SHARED, 0, mpi().noInfo, &node);
  mpi().MPI_Comm_size(node, &launch.ranksOnNode);
  mpi().MPI_Comm_rank(node, &launch.rankOnNode);
  mpi().MPI_Comm_free(&node);
  std::unique_ptr<Comm> comm;
  int everyoneHere = launch.ranksOnNode == ranks && kind == CommKind::Auto, all = 0;
  mpi().MPI_Allreduce(&everyoneHere, &all, 1, mpi().integers, mpi().least, mpi().world);
  if (all) {
    void *window = mapWindow(rank, ShmComm::windowBytes(ranks, kShmChunkBytes));
    comm = std::make_unique<ShmComm>(rank, ranks, window, kShmChunkBytes);
  } else {
    comm = mpiComm(rank, ranks);
  }
  joined = comm.get();
  return comm;
}

void leaveJob() {
  if (!isLoaded)
    return;
  int started = 0, ended = 0;
  mpi().MPI_Initialized(&started);
  mpi().MPI_Finalized(&ended);
  joined = nullptr;
  if (started && !ended)
    mpi().MPI_Finalize();
}

} // namespace zccrt
