// Starts each transfer on the engine for its two spaces, and waits for all that a slot has started.
#include "runtime/Spaces.h"
#include "runtime/Fail.h"
#include "runtime/HostWorker.h"
#include "runtime/JobQueue.h"
#include "runtime/Trace.h"
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <span>

namespace zccrt {

namespace {

struct Copy {
  char *to = nullptr;
  const char *from = nullptr;
  int64_t bytes = 0;
  const char *name = "";
};

/// What one slot has started.
struct Slot {
  std::vector<NvmeTicket> tickets;
  uint64_t down = 0, up = 0;
};

/// The swap file, for what reads and writes it outside the step: by way of a buffer of whole pages.
class DiskArena : public Arena {
public:
  explicit DiskArena(Nvme &disk) : disk(disk), buffer(static_cast<char *>(std::aligned_alloc(kNvmePage, kBytes))) {}

  char *base() const override { return nullptr; }
  char *onHost(int64_t) const override { return nullptr; }

  void copyTo(int64_t offset, const void *from, int64_t bytes) override {
    std::lock_guard lock(mutex);
    inPages(offset, bytes, [&](int64_t page, int64_t length, int64_t skip, int64_t n) {
      if (n < length) // what else is in the first and the last page stays
        disk.wait(disk.read(page, buffer.get(), length));
      std::memcpy(buffer.get() + skip, from, n);
      from = static_cast<const char *>(from) + n;
      disk.wait(disk.write(page, buffer.get(), length));
    });
  }

  void copyFrom(void *to, int64_t offset, int64_t bytes) const override {
    std::lock_guard lock(mutex);
    inPages(offset, bytes, [&](int64_t page, int64_t length, int64_t skip, int64_t n) {
      disk.wait(disk.read(page, buffer.get(), length));
      std::memcpy(to, buffer.get() + skip, n);
      to = static_cast<char *>(to) + n;
    });
  }

private:
  static constexpr int64_t kBytes = 1 << 20;
  struct Free {
    void operator()(char *p) const { std::free(p); }
  };

  /// Calls fn with whole pages that the buffer has room for, and which of their bytes are meant.
  template <class Fn> static void inPages(int64_t offset, int64_t bytes, Fn fn) {
    constexpr int64_t kPage = kNvmePage;
    for (int64_t end = offset + bytes; offset < end;) {
      int64_t page = offset / kPage * kPage, skip = offset - page, n = std::min(end - offset, kBytes - skip);
      fn(page, (skip + n + kPage - 1) / kPage * kPage, skip, n);
      offset += n;
    }
  }

  Nvme &disk;
  mutable std::mutex mutex; ///< a checkpoint is saved by a thread of its own
  std::unique_ptr<char, Free> buffer;
};

template <Lane lane> void run(const Copy &c) {
  TraceScope span(lane, c.name, c.bytes);
  std::memcpy(c.to, c.from, c.bytes);
}

} // namespace

struct Spaces::Engines {
  Engines(const zccrt_program &p, bool copies)
      : down(
            p.transfer_slots * p.most_moves, copies, [] { return Copy(); }, run<Lane::ToHost>),
        up(
            p.transfer_slots * p.most_moves, copies, [] { return Copy(); }, run<Lane::FromHost>),
        work(p.host_slots), slots(p.transfer_slots), workOf(p.host_slots) {
    for (Slot &s : slots)
      s.tickets.reserve(p.most_moves);
  }

  JobQueue<Copy> down, up; ///< to the host, from it
  HostWorker work;
  std::vector<Slot> slots;
  std::vector<uint64_t> workOf; ///< by slot of the host: what to wait for
};

static std::span<char> whole(const Arena *a, int64_t bytes) { return a ? std::span(a->base(), bytes) : std::span<char>(); }

static std::unique_ptr<Nvme> openDisk(const zccrt_program &p, const SpaceOptions &o, std::vector<std::span<char>> memory) {
  if (p.arena_bytes[kNvme] == 0)
    return nullptr;
  if (o.nvmePaths.empty())
    fail("%.1f MiB of each rank lie on a disk: give a folder there with --nvme-path=DIR", p.arena_bytes[kNvme] / 0x1p20);
  NvmeOptions n;
  n.paths = o.nvmePaths;
  n.bytes = p.arena_bytes[kNvme];
  n.checksum = o.checksum;
  n.transfers = p.transfer_slots * p.most_moves + kPieces + 1; // pieces of a move, and one outside the step
  n.memory = std::move(memory);
  return std::make_unique<Nvme>(n);
}

static std::unique_ptr<Arena> deviceArena(int64_t bytes) {
  if (Device *d = zccrt::device())
    return std::make_unique<DeviceArena>(*d, bytes);
  return std::make_unique<MappedArena>(bytes);
}

static std::unique_ptr<Arena> hostArena(int64_t bytes) {
  if (Device *d = zccrt::device())
    return std::make_unique<PinnedArena>(*d, bytes);
  return std::make_unique<MappedArena>(bytes);
}

Spaces::Spaces(const zccrt_program &p, const SpaceOptions &o) : device(deviceArena(p.arena_bytes[kDevice])) {
  Device *d = zccrt::device();
  if (d)
    d->lend(device->base() + p.arena_bytes[kDevice] - p.device_library_bytes, p.device_library_bytes);
  if (p.arena_bytes[kHost])
    host = hostArena(p.arena_bytes[kHost]);
  nvme = openDisk(p, o, {whole(d ? nullptr : device.get(), p.arena_bytes[kDevice]), whole(host.get(), p.arena_bytes[kHost])});
  if (nvme)
    disk = std::make_unique<DiskArena>(*nvme);
  all = {{device.get(), host.get(), disk.get()}};
  if (d)
    onDevice = std::make_unique<DeviceTransfers>(*d, all, nvme.get(), p);
  else if (p.transfer_slots || p.host_slots)
    engines = std::make_unique<Engines>(p, host != nullptr);
}

Spaces::~Spaces() = default;

std::vector<std::string> Spaces::notes() const { return nvme ? nvme->notes() : std::vector<std::string>(); }

void Spaces::start(int slot, const zccrt_move *moves, int n) {
  if (onDevice)
    return onDevice->start(slot, moves, n);
  Slot &s = engines->slots[slot];
  s.tickets.clear();
  for (int i = 0; i < n; ++i) {
    const zccrt_move &m = moves[i];
    if (m.to_space == kNvme) {
      s.tickets.push_back(nvme->write(m.to, all[m.from_space].base() + m.from, m.bytes, m.name));
    } else if (m.from_space == kNvme) {
      s.tickets.push_back(nvme->read(m.from, all[m.to_space].base() + m.to, m.bytes, m.name));
    } else {
      auto fill = [&](Copy &c) { c = {all[m.to_space].base() + m.to, all[m.from_space].base() + m.from, m.bytes, m.name}; };
      if (m.to_space == kHost)
        s.down = engines->down.start(fill);
      else
        s.up = engines->up.start(fill);
    }
  }
}

void Spaces::wait(int slot) {
  if (onDevice)
    return onDevice->wait(slot);
  Slot &s = engines->slots[slot];
  engines->down.wait(s.down);
  engines->up.wait(s.up);
  for (NvmeTicket t : s.tickets)
    nvme->wait(t);
  s.tickets.clear();
}

void Spaces::startWork(int slot, void (*run)(char *)) {
  if (onDevice)
    return onDevice->startWork(slot, run);
  engines->workOf[slot] = engines->work.start(run, host->base(), nodeNow());
}

void Spaces::waitForWork(int slot) { onDevice ? onDevice->waitForWork(slot) : engines->work.wait(engines->workOf[slot]); }

// ---- what the program calls

static Spaces *currentSpaces;

void useSpaces(Spaces *s) { currentSpaces = s; }

} // namespace zccrt

void zccrt_transfer_start(int slot, const zccrt_move *moves, int n) {
  try {
    zccrt::currentSpaces->start(slot, moves, n);
  } catch (const std::exception &e) {
    zccrt::endJob(e.what());
  }
}

void zccrt_transfer_wait(int slot) {
  try {
    zccrt::currentSpaces->wait(slot);
  } catch (const std::exception &e) {
    zccrt::endJob(e.what());
  }
}

void zccrt_host_start(int slot, void (*work)(char *)) { zccrt::currentSpaces->startWork(slot, work); }
void zccrt_host_wait(int slot) { zccrt::currentSpaces->waitForWork(slot); }
