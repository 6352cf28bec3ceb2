// Two ranks, this process and a fork of it, run the runtime's collectives through memory that they share.
#include "tools/LinkRates.h"
#include "runtime/Fail.h"
#include "runtime/comm/Shm.h"
#include "runtime/zccrt.h"
#include "tools/Timing.h"
#include <cstring>
#include <limits>
#include <sys/mman.h>
#include <sys/wait.h>

using namespace zcc;
using zccrt::ShmComm;

constexpr int kRanks = 2;

namespace {
/// Memory that a fork shares.
class SharedMemory {
public:
  explicit SharedMemory(int64_t bytes) : bytes_(size_t(bytes)) {
    at_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (at_ == MAP_FAILED)
      zccrt::failErrno("cannot share %zu bytes with a second rank", bytes_);
  }
  ~SharedMemory() { munmap(at_, bytes_); }
  SharedMemory(const SharedMemory &) = delete;
  void *at() const { return at_; }

private:
  size_t bytes_;
  void *at_;
};

/// One rank: whatever it does, the other does too.
class LinkRank {
public:
  LinkRank(int rank, void *window) : comm(rank, kRanks, window, zccrt::kShmChunkBytes), memory(arenaBytes()) {
    memset(memory.data(), 0, size_t(arenaBytes()));
  }
  /// Seconds of a collective over so many f32, the mean of all kinds: each over the next ones, of as many that no cache holds
  /// them all, or all over the same. Rank 0 says how often.
  double secondsOf(int64_t count, double limit, bool areSame = false);

private:
  static int64_t arenaBytes() { return beyondCaches(); }
  void run(int kind, float *at, int64_t count);
  bool isMore(bool wanted) {
    char all[kRanks], mine = wanted;
    comm.exchange(&mine, 1, all);
    return all[0];
  }

  ShmComm comm;
  Buffer memory;
};
} // namespace

void LinkRank::run(int kind, float *at, int64_t count) {
  zccrt::Comm &job = comm;
  const int64_t piece = job.piece(count);
  if (kind == 0)
    job.allReduce(at, at, count, ZCCRT_F32, /*mean=*/false);
  else if (kind == 1)
    job.allGather(at + job.rank * piece, at, count, ZCCRT_F32);
  else
    job.reduceScatter(at, at + job.rank * piece, count, ZCCRT_F32, /*mean=*/false);
}

double LinkRank::secondsOf(int64_t count, double limit, bool areSame) {
  using Clock = std::chrono::steady_clock;
  constexpr int kKinds = 3;
  constexpr size_t kLeastRuns = 5;
  const int64_t places = areSame ? 1 : std::max<int64_t>(arenaBytes() / int64_t(sizeof(float)) / count, 1);
  std::vector<double> times;
  const auto begin = Clock::now();
  for (int64_t i = 0; isMore(times.size() < kLeastRuns || secondsSince(begin) < limit); ++i) {
    const auto start = Clock::now();
    for (int kind = 0; kind < kKinds; ++kind)
      run(kind, reinterpret_cast<float *>(memory.data()) + i % places * count, count);
    times.push_back(secondsSince(start));
  }
  return median(std::move(times)) / kKinds;
}

static Profile::Rates ratesOf(LinkRank &rank, double seconds) {
  constexpr int kRounds = 4;
  constexpr double kSent = 4.0 / 3 * sizeof(float) / kRanks; // bytes for each: an all_reduce sends twice what others do
  struct Run {
    Rate rate;
    int64_t count; ///< elements
    bool areSame;
    double seconds = std::numeric_limits<double>::infinity(); ///< in the quietest round
  } runs[] = {{Rate::Collectives, 16, false},
              {Rate::ShortLink, 1 << 18, false},
              {Rate::Link, 1 << 22, false},
              {Rate::NearLink, 1 << 18, true}};
  for (int round = 0; round < kRounds; ++round)
    for (Run &r : runs)
      r.seconds = std::min(r.seconds, rank.secondsOf(r.count, seconds / kRounds / double(std::size(runs)), r.areSame));
  const double none = runs[0].seconds;
  Profile::Rates rates = {{Rate::Collectives, 1 / none}};
  for (const Run &r : llvm::drop_begin(runs))
    rates[r.rate] = kSent * double(r.count) / std::max(r.seconds - none, 1e-9);
  return rates;
}

Profile::Rates zcc::measureLinks(double seconds) {
  SharedMemory window(ShmComm::windowBytes(kRanks, zccrt::kShmChunkBytes));
  const pid_t other = fork();
  if (other < 0)
    zccrt::failErrno("cannot start a second rank");
  if (other == 0) {
    try {
      LinkRank rank(1, window.at());
      ratesOf(rank, seconds);
    } catch (...) { // the first rank has ended, and has said why
    }
    _exit(0);
  }
  LinkRank rank(0, window.at());
  Profile::Rates rates = ratesOf(rank, seconds);
  waitpid(other, nullptr, 0);
  return rates;
}
