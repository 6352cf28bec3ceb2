// Measures this machine with one thread and with all of them, and its disks where folders are named.
#include "tools/Calibrate.h"
#include "tools/DiskRates.h"
#include "tools/LinkRates.h"
#include "tools/MachineRates.h"
#include "tools/ProfileFile.h"
#include "tools/Timing.h"
#include "tools/WayRates.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"
#include <filesystem>
#include <fstream>
#include <map>
#include <sched.h>
#include <set>

using namespace zcc;
using llvm::StringRef;

int zcc::ownCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) ? 1 : std::max(1, CPU_COUNT(&set));
}

/// Of what the folders are on, with the sizes that programs use.
static DiskRates diskRates(StringRef folders, double seconds) {
  constexpr uint64_t kLeast = uint64_t(32) << 20, kMost = uint64_t(1) << 30;
  zccrt::NvmeOptions o;
  for (StringRef f : llvm::split(folders, ','))
    o.paths.push_back(f.str());
  o.bytes = kLeast;
  DiskRates r = measureDisk(o);
  for (const std::string &note : r.notes)
    llvm::errs() << "zcc: note: " << note << '\n';
  // The file is passed over four times; a large one shows what a disk does behind its own memory.
  uint64_t bytes = uint64_t(r.mixed * seconds / 4) / kLeast * kLeast;
  if (bytes > kLeast) {
    o.bytes = std::min(bytes, kMost);
    r = measureDisk(o);
  }
  return r;
}

/// Seconds that this process' threads were ready to run and another program had their processor (the second number of
/// `/proc/PID/task/TID/schedstat`, Documentation/scheduler/sched-stats of Linux); 0 where the system does not tell.
static double waitedSeconds() {
  double seconds = 0;
  std::error_code ec;
  for (std::filesystem::directory_iterator thread("/proc/self/task", ec), end; !ec && thread != end; thread.increment(ec)) {
    std::ifstream file(thread->path() / "schedstat");
    double ran, waited; // ns
    if (file >> ran >> waited)
      seconds += waited * 1e-9;
  }
  return seconds;
}

/// Warns at its end where other programs ran in this one's place: their profile is of a slower machine.
class OwnCores {
public:
  template <class F> void run(int threads, F body) {
    const double waited = waitedSeconds();
    const auto start = std::chrono::steady_clock::now();
    body();
    lost_ += waitedSeconds() - waited;
    all_ += secondsSince(start) * threads;
  }
  ~OwnCores() {
    constexpr double kNoise = 0.05;
    if (lost_ > kNoise * all_)
      llvm::errs()
          << "zcc: warning: other programs took " << llvm::format("%.0f", lost_ / all_ * 100)
          << " % of the processors' time meanwhile: this profile is of a slower machine; calibrate again when they have ended\n";
  }

private:
  double lost_ = 0, all_ = 0;
};

static Profile measure(const ToolOptions &tool, int threads) {
  const double seconds = tool.calibrateSeconds;
  const bool hasDisk = !tool.calibrate->empty();
  Profile p;
  p.cpu = cpuName();
  p.whole = measureLinks(seconds / 40); // while there are no threads: it forks
  if (hasDisk)                          // first: a folder that cannot be used is known at once
    diskRates(*tool.calibrate, seconds / 4).addTo(p);
  std::map<int, OwnCores> cores;
  const std::set<int> counts{1, threads};
  const double share = seconds / (hasDisk ? 1.5 : 1.1) / double(counts.size());
  for (int n : counts) {
    llvm::errs() << "zcc: measuring ways of " << p.cpu << " with " << n << (n > 1 ? " threads\n" : " thread\n");
    cores[n].run(n, [&] { p.waysByThreads[n] = measureWays(n, share / 3); });
  }
  std::map<int, RateRounds> rates;
  for (int n : counts)
    rates.try_emplace(n, n, p);
  const int rounds = std::clamp(int(share * 2 / 3 / 3), 1, 4);
  for (int round = 0; round < rounds; ++round) {
    llvm::errs() << "zcc: measuring rates, " << round + 1 << " of " << rounds << '\n';
    for (auto &[n, of] : rates)
      cores[n].run(n, [&, &of = of] { of.measure(share * 2 / 3 / rounds); });
  }
  for (auto &[n, of] : rates)
    p.byThreads[n] = of.rates();
  p.whole[Rate::HostCopy] = measureCopy(seconds / 40);
  return p;
}

llvm::Error zcc::calibrate(const Request &r) {
  if (!r.model.empty())
    return error("--calibrate takes no model; a folder to measure its disk is named as --calibrate=" + r.model);
  auto o = readPassOptions(r);
  if (!o)
    return o.takeError();
  std::string path = r.tool.profile.empty() ? ownProfilePath() : r.tool.profile;
  if (path.empty())
    return error("neither HOME nor XDG_CACHE_HOME is set: --profile=FILE says where the profile is to be kept");
  if (std::error_code ec =
          r.tool.profile.empty() ? llvm::sys::fs::create_directories(llvm::sys::path::parent_path(path)) : std::error_code())
    return error("cannot make the folder of '" + path + "': " + ec.message());
  auto text = updateProfile(path, [&] { return measure(r.tool, o->threads ? o->threads : ownCores()); });
  if (!text)
    return text.takeError();
  llvm::outs() << *text;
  llvm::errs() << "zcc: note: kept in '" << path << "'" << (r.tool.profile.empty() ? "" : "; --profile=" + path + " uses it")
               << '\n';
  return llvm::Error::success();
}
