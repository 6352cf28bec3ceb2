// The window, its barrier, and the collectives over it.
#include "runtime/comm/Shm.h"
#include "runtime/Elem.h"
#include "runtime/Fail.h"
#include "runtime/comm/Packed.h"
#include "runtime/comm/Sum.h"
#include <algorithm>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace zccrt {

// A barrier spins this often before it yields, and yields this often before it sleeps: on a crowded
// node the ranks waited for need the core.
constexpr int kSpins = 2000, kYields = 20;
constexpr long kSleepNanoseconds = 200'000'000;
// So often a rank that failed looks whether rank 0 has ended, for a second.
constexpr long kLookNanoseconds = 5'000'000;
constexpr int kLooks = 200;
constexpr int64_t kLine = 64;

struct ShmComm::Control {
  alignas(kLine) std::atomic<uint32_t> arrived;
  alignas(kLine) std::atomic<uint32_t> generation; ///< of the barrier; what sleepers wait on
  alignas(kLine) std::atomic<uint32_t> sleepers;
  alignas(kLine) std::atomic<int32_t> failed;  ///< rank + 1 of the first rank that failed
  alignas(kLine) std::atomic<int32_t> pids[1]; ///< one for each rank
};

static int64_t controlBytes(int ranks) { return (4 * kLine + 4 * ranks + kLine - 1) / kLine * kLine; }

int64_t ShmComm::windowBytes(int ranks, int64_t chunkBytes) { return controlBytes(ranks) + 2 * chunkBytes * ranks; }

ShmComm::ShmComm(int rank, int ranks, void *window, int64_t chunkBytes)
    : Comm(rank, ranks), control(static_cast<Control *>(window)), buffers(static_cast<char *>(window) + controlBytes(ranks)),
      chunkBytes(chunkBytes), parts(ranks) {
  control->pids[rank].store(getpid());
}

char *ShmComm::buffer(int r) const { return buffers + (2 * r + turn) * chunkBytes; }

// ---- waiting

/// Whether a process has ended; a zombie has.
static bool hasEnded(int pid) {
  if (kill(pid, 0) != 0)
    return errno == ESRCH;
  char path[64], text[512] = {};
  snprintf(path, sizeof path, "/proc/%d/stat", pid);
  FILE *file = fopen(path, "r");
  if (!file)
    return false;
  size_t n = fread(text, 1, sizeof text - 1, file);
  fclose(file);
  const char *state = n ? strrchr(text, ')') : nullptr;
  return state && state[1] == ' ' && (state[2] == 'Z' || state[2] == 'X');
}

void ShmComm::abort() {
  int32_t none = 0;
  control->failed.compare_exchange_strong(none, rank + 1);
  const int first = control->pids[0].load();
  const timespec pause = {0, kLookNanoseconds};
  for (int i = 0; rank != 0 && i < kLooks && !hasEnded(first); ++i)
    nanosleep(&pause, nullptr);
}

void ShmComm::expectNoFailure() const {
  if (int32_t failed = control->failed.load(std::memory_order_relaxed))
    throw PeerFailure(format("rank %d has failed", failed - 1));
}

void ShmComm::expectAlive(uint32_t generation) {
  for (int r = 0; r < ranks; ++r) {
    int pid = control->pids[r].load();
    if (pid == 0 || !hasEnded(pid))
      continue;
    // It may have ended well, after this barrier.
    if (control->generation.load() != generation)
      return;
    int32_t none = 0;
    if (control->failed.compare_exchange_strong(none, r + 1))
      throw RankDied(format("rank %d has ended unexpectedly (process %d); if it said nothing, it "
                            "was killed, perhaps for want of memory (see dmesg)",
                            r, pid));
    expectNoFailure();
  }
}

void ShmComm::look() {
  expectNoFailure();
  expectAlive(control->generation.load());
}

void ShmComm::wait(uint32_t generation) {
  for (int i = 0; i < kSpins + kYields; ++i) {
    if (control->generation.load(std::memory_order_acquire) != generation)
      return;
    expectNoFailure();
    if (i >= kSpins)
      sched_yield();
#if defined(__x86_64__)
    else
      __builtin_ia32_pause();
#endif
  }
  const timespec timeout = {0, kSleepNanoseconds};
  control->sleepers.fetch_add(1);
  while (control->generation.load() == generation) {
    long woken = syscall(SYS_futex, &control->generation, FUTEX_WAIT, generation, &timeout, nullptr, 0);
    // A launcher's signal may say that another rank is dead.
    bool isLate = woken != 0 && (errno == ETIMEDOUT || errno == EINTR);
    if (control->generation.load() != generation)
      break;
    expectNoFailure();
    if (isLate)
      expectAlive(generation);
  }
  control->sleepers.fetch_sub(1);
}

void ShmComm::barrier() {
  uint32_t generation = control->generation.load(std::memory_order_acquire);
  if (control->arrived.fetch_add(1, std::memory_order_acq_rel) + 1 < uint32_t(ranks)) {
    wait(generation);
    return;
  }
  control->arrived.store(0, std::memory_order_relaxed);
  control->generation.store(generation + 1);
  if (control->sleepers.load())
    syscall(SYS_futex, &control->generation, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

// ---- collectives

void ShmComm::allReduce(Parts tensors, int elem, bool mean) {
  const int64_t size = elemBytes(elem), chunk = chunkBytes / size;
  Packed packed(tensors, [](const Part &p) { return p.count; });
  for (int64_t at = 0; at < packed.total; at += chunk) {
    int64_t n = std::min(chunk, packed.total - at);
    // Each rank adds up one part of the chunk, whole cache lines.
    int64_t part = ((n + ranks - 1) / ranks + kLine - 1) / kLine * kLine;
    auto begin = [&](int r) { return at + std::min(n, r * part); };
    int64_t lo = begin(rank), hi = begin(rank + 1);
    char *mine = buffer(rank);
    auto give = [&](int64_t first, int64_t last) {
      packed.each(first, last, [&](const Part &p, int64_t offset, int64_t length, int64_t behind) {
        std::memcpy(mine + (first - at + behind) * size, from(p, offset * size), length * size);
      });
    };
    give(at, lo);
    give(hi, at + n);
    barrier();
    packed.each(lo, hi, [&](const Part &p, int64_t offset, int64_t length, int64_t behind) {
      int64_t place = (lo - at + behind) * size;
      for (int r = 0; r < ranks; ++r)
        parts[r] = r == rank ? from(p, offset * size) : buffer(r) + place;
      sumInOrder(to(p, offset * size), parts.data(), ranks, length, elem, mean);
      // Nobody reads this rank's own part of its buffer before the next barrier.
      std::memcpy(mine + place, to(p, offset * size), length * size);
    });
    barrier();
    for (int r = 0; r < ranks; ++r)
      if (r != rank)
        packed.each(begin(r), begin(r + 1), [&](const Part &p, int64_t offset, int64_t length, int64_t behind) {
          std::memcpy(to(p, offset * size), buffer(r) + (begin(r) - at + behind) * size, length * size);
        });
    turn ^= 1;
  }
}

void ShmComm::allGather(Parts tensors, int elem) {
  const int64_t size = elemBytes(elem), chunk = chunkBytes / size;
  Packed packed(tensors, [this](const Part &p) { return piece(p.count); });
  for (int64_t at = 0; at < packed.total; at += chunk) {
    int64_t end = std::min(at + chunk, packed.total);
    packed.each(at, end, [&](const Part &p, int64_t offset, int64_t length, int64_t behind) {
      std::memcpy(buffer(rank) + behind * size, from(p, offset * size), pieceLength(p.count, rank, offset, length) * size);
    });
    barrier();
    for (int r = 0; r < ranks; ++r)
      packed.each(at, end, [&](const Part &p, int64_t offset, int64_t length, int64_t behind) {
        char *target = to(p, (r * piece(p.count) + offset) * size);
        const char *source = r == rank ? from(p, offset * size) : buffer(r) + behind * size;
        if (target != source)
          std::memcpy(target, source, pieceLength(p.count, r, offset, length) * size);
      });
    turn ^= 1;
  }
}

void ShmComm::reduceScatter(Parts tensors, int elem, bool mean) {
  const int64_t size = elemBytes(elem);
  const int64_t chunk = std::max<int64_t>(1, chunkBytes / size / ranks);
  Packed packed(tensors, [this](const Part &p) { return piece(p.count); });
  for (int64_t at = 0; at < packed.total; at += chunk) {
    int64_t end = std::min(at + chunk, packed.total);
    packed.each(at, end, [&](const Part &p, int64_t offset, int64_t length, int64_t behind) {
      for (int r = 0; r < ranks; ++r)
        if (r != rank)
          std::memcpy(buffer(rank) + (r * chunk + behind) * size, from(p, (r * piece(p.count) + offset) * size),
                      pieceLength(p.count, r, offset, length) * size);
    });
    barrier();
    packed.each(at, end, [&](const Part &p, int64_t offset, int64_t length, int64_t behind) {
      for (int r = 0; r < ranks; ++r)
        parts[r] = r == rank ? from(p, (rank * piece(p.count) + offset) * size) : buffer(r) + (rank * chunk + behind) * size;
      int64_t mine = pieceLength(p.count, rank, offset, length);
      sumInOrder(to(p, offset * size), parts.data(), ranks, mine, elem, mean);
      std::memset(to(p, (offset + mine) * size), 0, (length - mine) * size);
    });
    turn ^= 1;
  }
}

void ShmComm::bring(int from, const void *data, void *to, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += chunkBytes) {
    const int64_t n = std::min(chunkBytes, bytes - at);
    if (rank == from)
      std::memcpy(buffer(from), static_cast<const char *>(data) + at, n);
    barrier();
    if (rank == 0)
      std::memcpy(static_cast<char *>(to) + at, buffer(from), n);
    turn ^= 1;
  }
}

} // namespace zccrt
