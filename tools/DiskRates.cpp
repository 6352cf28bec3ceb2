// Moves a file's bytes through the engine as a training step does: bulk transfers, the next started before the last is waited
// for.
#include "tools/DiskRates.h"
#include "runtime/Arena.h"
#include "tools/Timing.h"
#include <algorithm>
#include <ctime>
#include <deque>

using namespace zcc;
using zccrt::Nvme;
using zccrt::NvmeTicket;

using Clock = std::chrono::steady_clock;

namespace {
/// Memory that transfers use, filled with what no disk can compress. An arena as programs have it: in small pages a block is
/// hundreds of pieces, and a disk may take five times as long for it.
class TransferMemory {
public:
  explicit TransferMemory(uint64_t bytes) : size(bytes), memory(static_cast<int64_t>(bytes)) {
    uint64_t word = 0x9e3779b97f4a7c15u;
    for (uint64_t *at = reinterpret_cast<uint64_t *>(memory.base()), *end = at + bytes / sizeof word; at != end; ++at) {
      word ^= word << 13, word ^= word >> 7, word ^= word << 17; // xorshift
      *at = word;
    }
  }
  std::span<char> span() const { return {memory.base(), size}; }

private:
  uint64_t size;
  zccrt::MappedArena memory;
};

enum class Kind { Read, Write };

/// Bulk transfers over a range of the file, two in flight.
class Stream {
public:
  Stream(Nvme &nvme, Kind kind, uint64_t begin, uint64_t end, std::span<char> memory)
      : nvme(nvme), kind(kind), at(begin), end(end), memory(memory) {}

  /// Starts the next transfer; false at the end.
  bool start() {
    if (at == end)
      return false;
    const uint64_t half = memory.size() / 2, bytes = std::min(half, end - at);
    char *place = memory.data() + (count++ % 2 ? half : 0);
    tickets.push_back(kind == Kind::Read ? nvme.read(at, place, bytes) : nvme.write(at, place, bytes));
    at += bytes;
    return true;
  }
  void waitForFirst() {
    if (tickets.empty())
      return;
    NvmeTicket first = tickets.front();
    tickets.pop_front();
    nvme.wait(first);
  }
  bool isDone() const { return at == end && tickets.empty(); }

private:
  Nvme &nvme;
  Kind kind;
  uint64_t at, end;
  std::span<char> memory;
  uint64_t count = 0;
  std::deque<NvmeTicket> tickets;
};
} // namespace

/// Seconds of cores that this process has taken.
static double coreSeconds() {
  timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}

/// The same since then; not 0.
static double coreSecondsSince(double then) { return std::max(coreSeconds() - then, 1e-9); }

/// Seconds until all of them are through.
static double run(std::vector<Stream> streams) {
  const auto start = Clock::now();
  for (int i = 0; i < 2; ++i)
    for (Stream &s : streams)
      s.start();
  while (!std::all_of(streams.begin(), streams.end(), [](const Stream &s) { return s.isDone(); }))
    for (Stream &s : streams) {
      s.waitForFirst();
      s.start();
    }
  return secondsSince(start);
}

static constexpr int kTimes = 101; // of one page

static double latency(Nvme &nvme, Kind kind, uint64_t bytes, char *page) {
  constexpr uint64_t kStride = 7919; // pages; a prime, so that neighbours are not asked for in turn
  std::vector<double> seconds;
  for (uint64_t i = 0; i < kTimes; ++i) {
    const uint64_t at = i * kStride % (bytes / zccrt::kNvmePage) * zccrt::kNvmePage;
    const auto start = Clock::now();
    nvme.wait(kind == Kind::Read ? nvme.read(at, page, zccrt::kNvmePage) : nvme.write(at, page, zccrt::kNvmePage));
    seconds.push_back(secondsSince(start));
  }
  std::nth_element(seconds.begin(), seconds.begin() + kTimes / 2, seconds.end());
  return seconds[kTimes / 2];
}

DiskRates zcc::measureDisk(zccrt::NvmeOptions o, uint64_t memory) {
  const uint64_t pages = o.bytes / zccrt::kNvmePage, two = 2 * zccrt::kNvmePage;
  TransferMemory in(std::min(std::max(memory / two, uint64_t(1)) * two, std::max<uint64_t>(pages / 4, 1) * two));
  TransferMemory out(in.span().size());
  o.memory = {in.span(), out.span()};
  Nvme nvme(o);
  const uint64_t half = pages / 2 * zccrt::kNvmePage;
  DiskRates r;
  r.isUring = nvme.engine() == zccrt::NvmeEngine::Uring;
  r.isRegistered = nvme.isRegistered();
  r.notes = nvme.notes();
  // The first writes to a file also change the file system's tables; a training run does that once.
  run({Stream(nvme, Kind::Write, 0, o.bytes, out.span())});
  nvme.flush();
  r.write = o.bytes / run({Stream(nvme, Kind::Write, 0, o.bytes, out.span())});
  r.read = o.bytes / run({Stream(nvme, Kind::Read, 0, o.bytes, in.span())});
  double before = coreSeconds();
  r.mixed = o.bytes / run({Stream(nvme, Kind::Read, 0, half, in.span()), Stream(nvme, Kind::Write, half, o.bytes, out.span())});
  r.bytesPerCore = o.bytes / coreSecondsSince(before);
  before = coreSeconds();
  r.readLatency = latency(nvme, Kind::Read, o.bytes, in.span().data());
  r.writeLatency = latency(nvme, Kind::Write, o.bytes, out.span().data());
  r.movesPerCore = 2 * kTimes / coreSecondsSince(before);
  return r;
}

void DiskRates::addTo(Profile &p) const {
  // Reads and writes as fast to each other as alone, equal parts of both as fast as those were.
  const double beside = mixed * (1 / read + 1 / write) / 2;
  p.whole[Rate::Disk] = read * beside;
  p.whole[Rate::DiskWrites] = write * beside;
  p.whole[Rate::DiskCores] = bytesPerCore;
  p.whole[Rate::DiskStarts] = movesPerCore;
}
