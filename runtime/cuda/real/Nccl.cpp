// Between GPUs by NCCL, whose communicator the ranks make with an id that rank 0 hands round. What is queued between two
// finish() is one group of it.
#include "runtime/Fail.h"
#include "runtime/comm/Messages.h"
#include "runtime/cuda/Sum.h"
#include "runtime/cuda/real/CudaDevice.h"
#include "runtime/cuda/real/Library.h"
#include <cstring>
#include <nccl.h>
#include <vector>

namespace zccrt::cuda {

namespace {

/// The functions that are used.
struct Nccl {
#define ZCC_NCCL(F)                                                                                                              \
  F(ncclGetUniqueId)                                                                                                             \
  F(ncclCommInitRank)                                                                                                            \
  F(ncclGetErrorString)                                                                                                          \
  F(ncclGetLastError)                                                                                                            \
  F(ncclCommGetAsyncError)                                                                                                       \
  F(ncclGroupStart)                                                                                                              \
  F(ncclGroupEnd)                                                                                                                \
  F(ncclSend)                                                                                                                    \
  F(ncclRecv)                                                                                                                    \
  F(ncclAllGather)                                                                                                               \
  F(ncclBroadcast)
#define ZCC_MEMBER(NAME) decltype(::NAME) *NAME = nullptr;
  ZCC_NCCL(ZCC_MEMBER)
#undef ZCC_MEMBER

  explicit Nccl(void *file) {
#define ZCC_LOAD(NAME) load(NAME, file, #NAME);
    ZCC_NCCL(ZCC_LOAD)
#undef ZCC_LOAD
  }
  void expect(ncclResult_t r, const char *what) const {
    if (r == ncclSuccess)
      return;
    std::string text = textOf(r);
    size_t free = 0, total = 0;
    if (r == ncclUnhandledCudaError && cudaMemGetInfo(&free, &total) == cudaSuccess) // its buffers are in no plan
      text +=
          format("; %.3f GiB of the GPU's memory are free for its buffers, beside what the program takes", double(free) / 0x1p30);
    fail("NCCL fails to %s: %s; NCCL_DEBUG=WARN in the environment says more", what, text.c_str());
  }
  std::string textOf(ncclResult_t r) const {
    const char *last = ncclGetLastError(nullptr);
    return last && *last ? format("%s, %s", ncclGetErrorString(r), last) : ncclGetErrorString(r);
  }
};

class NcclTransport : public Transport {
public:
  NcclTransport(CudaDevice &on, std::unique_ptr<Nccl> library, Comm &comm) : on(on), nccl(std::move(library)) {
    if (!nccl)
      return; // one rank
    ncclUniqueId id = {};
    if (comm.rank == 0)
      nccl->expect(nccl->ncclGetUniqueId(&id), "begin");
    std::vector<ncclUniqueId> all(comm.ranks);
    comm.exchange(&id, sizeof id, all.data());
    nccl->expect(nccl->ncclCommInitRank(&ranks, comm.ranks, all[0], comm.rank), "connect the ranks");
    on.whileWaiting = [this, &comm] { look(comm); };
  }
  ~NcclTransport() override { on.whileWaiting = nullptr; }

  char *allocate(int64_t bytes) override { return on.take(bytes); }
  void send(const char *data, int64_t bytes, int to) override {
    open();
    nccl->expect(nccl->ncclSend(data, size_t(bytes), ncclInt8, to, ranks, on.stream(kStream)), "send");
  }
  void receive(char *data, int64_t bytes, int from) override {
    open();
    nccl->expect(nccl->ncclRecv(data, size_t(bytes), ncclInt8, from, ranks, on.stream(kStream)), "receive");
  }
  /// By rings and trees between nodes, where messages would cross the network once for each rank.
  void gather(const Pieces &p) override {
    if (!nccl)
      return Transport::gather(p);
    open();
    const auto queue = on.stream(kStream);
    if (p.length == p.step && p.bytes(p.ranks - 1) == p.step)
      return nccl->expect(nccl->ncclAllGather(p.mine, p.all, size_t(p.step), ncclInt8, ranks, queue), "gather");
    for (int r = 0; r < p.ranks; ++r)
      if (const int64_t bytes = p.bytes(r)) // its sender alone reads
        nccl->expect(nccl->ncclBroadcast(r == p.rank ? p.mine : p.of(r), p.of(r), size_t(bytes), ncclInt8, r, ranks, queue),
                     "gather");
  }
  void finish() override {
    if (isOpen)
      nccl->expect(nccl->ncclGroupEnd(), "exchange messages");
    isOpen = false;
  }
  bool gathersAtOnce() const override { return true; }

  void copy(char *to, const char *from, int64_t bytes) override { on.copy(kStream, to, from, bytes); }
  void zero(char *to, int64_t bytes) override { on.fill(kStream, to, 0, bytes); }
  void sum(char *out, const Addends &parts, int64_t count, int elem, bool mean) override {
    sumOnDevice(kStream, out, parts, count, elem, mean);
  }

private:
  static constexpr auto kStream = Device::Collectives;

  CudaDevice &on;
  std::unique_ptr<Nccl> nccl; ///< nullptr: there is one rank
  ncclComm_t ranks = nullptr;
  bool isOpen = false; ///< a group

  /// While the host waits: ends the job where messages cannot come any more. What is under way on the GPU would not end, so
  /// nothing is unwound.
  void look(Comm &comm) const {
    ncclResult_t state = ncclSuccess;
    if (nccl->ncclCommGetAsyncError(ranks, &state) != ncclSuccess || (state != ncclSuccess && state != ncclInProgress))
      zccrt_fail(nullptr, "messages between ranks fail: NCCL: %s", nccl->textOf(state).c_str());
    try {
      comm.look();
    } catch (const PeerFailure &) {
      endSilently();
    } catch (const RankDied &e) {
      endJob(e.what(), About::AnotherRank);
    }
  }

  void open() {
    if (!isOpen)
      nccl->expect(nccl->ncclGroupStart(), "exchange messages");
    isOpen = true;
  }
};

/// What a rank tells the others before they connect.
struct Introduction {
  char gpu[16]; ///< its number for life
  int64_t hasLibrary;
};

} // namespace

std::unique_ptr<Transport> CudaDevice::transport(Comm &comm, std::string &whyNot) {
  if (comm.ranks == 1)
    return std::make_unique<NcclTransport>(*this, nullptr, comm);
  void *file = openLibrary({"libnccl.so.2"});
  Introduction mine = {};
  std::memcpy(mine.gpu, properties.uuid.bytes, sizeof mine.gpu);
  mine.hasLibrary = file != nullptr;
  std::vector<Introduction> all(comm.ranks);
  comm.exchange(&mine, sizeof mine, all.data());
  for (int r = 0; r < comm.ranks; ++r) {
    if (!all[r].hasLibrary)
      whyNot = format("libnccl is not found: install NCCL (pip has nvidia-nccl-cu%d), or name its folder in LD_LIBRARY_PATH",
                      CUDART_VERSION / 1000);
    for (int other = 0; other < r; ++other)
      if (!std::memcmp(all[r].gpu, all[other].gpu, sizeof mine.gpu))
        whyNot = "ranks share a GPU, between which NCCL has no messages";
  }
  return whyNot.empty() ? std::make_unique<NcclTransport>(*this, std::make_unique<Nccl>(file), comm) : nullptr;
}

} // namespace zccrt::cuda
