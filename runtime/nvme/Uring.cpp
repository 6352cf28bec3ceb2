// The engine on io_uring: threads that each keep a ring full and settle what completes.
#include "runtime/Environment.h"
#include "runtime/Fail.h"
#include "runtime/nvme/Transfers.h"
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <liburing.h>
#include <sys/eventfd.h>
#include <system_error>
#include <thread>
#include <unistd.h>

namespace zccrt {

namespace {

/// A thread and its ring.
class Ring {
public:
  Ring(Transfers &t, unsigned depth) : transfers(t), slots(depth) {
    for (unsigned slot = depth; slot--;)
      freeSlots.push_back(slot);
    again.reserve(depth);
    completed.reserve(depth);
  }
  ~Ring();

  /// Why the system refuses, or "".
  std::string open();
  void registerMemory(const std::vector<std::span<char>> &memory);
  void run() {
    try {
      thread = std::thread([this] { loop(); });
    } catch (const std::system_error &e) {
      fail("cannot start a thread for the swap file: %s", e.code().message().c_str());
    }
  }
  void wake() { eventfd_write(bell, 1); }
  bool isRegistered() const { return !buffers.empty(); }

private:
  static constexpr uint64_t kBell = UINT64_MAX;
  struct Completed {
    Block block;
    int result;
  };

  void loop();
  /// Fills the ring; returns when it is full or there is nothing to do.
  void fill();
  void prepare(const Block &b);
  void submit(unsigned waitFor);
  void listen();
  void collect();
  int bufferOf(const char *memory, uint64_t bytes) const;

  Transfers &transfers;
  io_uring ring;
  bool isOpen = false;
  int bell = -1; ///< an eventfd, read through the ring: new work, or the end
  uint64_t bellCount = 0;
  std::vector<iovec> buffers;
  std::vector<Block> slots;
  std::vector<uint32_t> freeSlots;
  std::vector<Block> again; ///< blocks whose rest is still to be moved
  std::vector<Completed> completed;
  std::atomic<bool> isStopping = false;
  std::thread thread;
};

Ring::~Ring() {
  if (thread.joinable()) {
    isStopping = true;
    wake();
    thread.join();
  }
  if (isOpen)
    io_uring_queue_exit(&ring);
  if (bell >= 0)
    close(bell);
}

std::string Ring::open() {
  // One more entry for the bell.
  int error = -io_uring_queue_init(static_cast<unsigned>(slots.size()) + 1, &ring, 0);
  if (error)
    return strerror(error);
  isOpen = true;
  io_uring_probe *probe = io_uring_get_probe_ring(&ring);
  const bool canRead = probe && io_uring_opcode_supported(probe, IORING_OP_READ);
  io_uring_free_probe(probe);
  if (!canRead)
    return "this kernel's lacks reads";
  bell = eventfd(0, EFD_CLOEXEC);
  return bell < 0 ? strerror(errno) : "";
}

/// The system pins a registered buffer once instead of at each call. It refuses where the limit of locked memory is lower
/// (8 MiB for ordinary users); transfers then go on without, at the same rate.
void Ring::registerMemory(const std::vector<std::span<char>> &memory) {
  constexpr size_t kMost = size_t(1) << 30; // the system's limit for one buffer
  for (std::span<char> range : memory)
    for (size_t at = 0; at < range.size(); at += kMost)
      buffers.push_back({range.data() + at, std::min(kMost, range.size() - at)});
  if (!buffers.empty() && io_uring_register_buffers(&ring, buffers.data(), static_cast<unsigned>(buffers.size())) != 0)
    buffers.clear();
}

int Ring::bufferOf(const char *memory, uint64_t bytes) const {
  for (size_t i = 0; i < buffers.size(); ++i) {
    const char *base = static_cast<const char *>(buffers[i].iov_base);
    if (memory >= base && memory + bytes <= base + buffers[i].iov_len)
      return static_cast<int>(i);
  }
  return -1;
}

void Ring::prepare(const Block &b) {
  const uint32_t slot = freeSlots.back();
  freeSlots.pop_back();
  slots[slot] = b;
  io_uring_sqe *sqe = io_uring_get_sqe(&ring);
  const int fd = transfers.files.files()[b.file].fd, buffer = bufferOf(b.memory, b.bytes);
  char *memory = b.memory + b.moved;
  const uint64_t at = b.fileOffset + b.moved;
  const auto bytes = static_cast<unsigned>(transfers.request(b));
  const bool reads = b.direction == Direction::Read;
  if (buffer >= 0)
    reads ? io_uring_prep_read_fixed(sqe, fd, memory, bytes, at, buffer)
          : io_uring_prep_write_fixed(sqe, fd, memory, bytes, at, buffer);
  else
    reads ? io_uring_prep_read(sqe, fd, memory, bytes, at) : io_uring_prep_write(sqe, fd, memory, bytes, at);
  io_uring_sqe_set_data64(sqe, slot);
}

void Ring::fill() {
  while (!freeSlots.empty() && !again.empty()) {
    prepare(again.back());
    again.pop_back();
  }
  while (!freeSlots.empty() && !isStopping) {
    std::optional<Block> b = transfers.take();
    if (!b)
      return;
    prepare(*b);
  }
}

void Ring::listen() {
  io_uring_sqe *sqe = io_uring_get_sqe(&ring);
  io_uring_prep_read(sqe, bell, &bellCount, sizeof bellCount, 0);
  io_uring_sqe_set_data64(sqe, kBell);
}

void Ring::submit(unsigned waitFor) {
  int n;
  do
    n = io_uring_submit_and_wait(&ring, waitFor);
  while (n == -EINTR || n == -EAGAIN || n == -EBUSY);
  if (n < 0)
    endJob(format("io_uring failed: %s", strerror(-n)));
}

void Ring::collect() {
  unsigned head, n = 0;
  io_uring_cqe *cqe;
  io_uring_for_each_cqe(&ring, head, cqe) {
    ++n;
    if (cqe->user_data == kBell) {
      listen();
      continue;
    }
    const auto slot = static_cast<uint32_t>(cqe->user_data);
    completed.push_back({slots[slot], cqe->res});
    freeSlots.push_back(slot);
  }
  io_uring_cq_advance(&ring, n);
}

void Ring::loop() {
  useAllCores();
  listen();
  for (;;) {
    fill();
    if (isStopping && freeSlots.size() == slots.size())
      return;
    submit(/*waitFor=*/1);
    collect();
    // The disk gets its next blocks before the last ones are summed up.
    fill();
    submit(/*waitFor=*/0);
    for (Completed &c : completed)
      if (transfers.settle(c.block, c.result) == Transfers::Next::Again)
        again.push_back(c.block);
    completed.clear();
  }
}

class UringEngine : public BlockEngine {
public:
  /// Why the system refuses, or "".
  std::string open(Transfers &t, const NvmeOptions &o) {
    const unsigned depth = o.depth * static_cast<unsigned>(o.paths.size()), count = std::min(o.threads, depth);
    for (unsigned i = 0; i < count; ++i) {
      rings.push_back(std::make_unique<Ring>(t, depth / count + (i < depth % count)));
      if (std::string why = rings.back()->open(); !why.empty())
        return why;
      rings.back()->registerMemory(o.memory);
    }
    for (auto &r : rings)
      r->run();
    return "";
  }
  void wake() override {
    for (auto &r : rings)
      r->wake();
  }
  bool isRegistered() const override { return rings.back()->isRegistered(); }

private:
  std::vector<std::unique_ptr<Ring>> rings;
};

} // namespace

std::unique_ptr<BlockEngine> startUring(Transfers &t, const NvmeOptions &o, std::string &why) {
  auto engine = std::make_unique<UringEngine>();
  why = engine->open(t, o);
  return why.empty() ? std::move(engine) : nullptr;
}

} // namespace zccrt
