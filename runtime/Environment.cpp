// Finds out how the process was started, how many cores it may use, and whether the CPU has what the program needs.
#include "runtime/Environment.h"
#include "runtime/Fail.h"
#include <algorithm>
#include <atomic>
#include <cctype>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <malloc.h>
#include <omp.h>
#include <sched.h>
#include <sstream>
#include <unistd.h>
#include <vector>

namespace zccrt {

static int numberInEnvironment(std::initializer_list<const char *> names) {
  for (const char *name : names)
    if (const char *text = getenv(name))
      if (int n = atoi(text); n > 0)
        return n;
  return 0;
}

Launch readLaunch() {
  Launch l;
  // Open MPI, then MPICH and what follows its launcher. PMIX_RANK alone does not say how many there
  // are.
  int ranks = numberInEnvironment({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"});
  if (!ranks && !getenv("PMIX_RANK"))
    return l;
  l.underMpi = true;
  l.ranks = ranks;
  int onNode = numberInEnvironment({"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"});
  l.ranksOnNode = onNode ? onNode : std::max(1, ranks);
  l.rankOnNode = numberInEnvironment({"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID"});
  return l;
}

int availableCores() {
  cpu_set_t mask;
  if (sched_getaffinity(0, sizeof mask, &mask) != 0)
    return std::max(1l, sysconf(_SC_NPROCESSORS_ONLN));
  return std::max(1, CPU_COUNT(&mask));
}

void useAllCores() {
  cpu_set_t mask;
  memset(&mask, 0xff, sizeof mask);
  // The kernel keeps what the control group allows; where even that is refused, the old mask stays.
  sched_setaffinity(0, sizeof mask, &mask);
}

void gatherThreads() {
#pragma omp parallel
  std::atomic_signal_fence(std::memory_order_seq_cst);
}

/// Cores of the node that this process could use were it not bound by mpirun. What a user bound it
/// to without mpirun stays.
static int allowedCores(const Launch &launch) {
  cpu_set_t before;
  if (!launch.underMpi || sched_getaffinity(0, sizeof before, &before) != 0)
    return availableCores();
  useAllCores();
  int n = availableCores();
  sched_setaffinity(0, sizeof before, &before);
  return n;
}

int threadsPerRank(const zccrt_program &p, const Launch &launch) {
  if (p.threads > 0)
    return p.threads;
  if (int n = numberInEnvironment({"OMP_NUM_THREADS"}))
    return n;
  return std::max(1, allowedCores(launch) / launch.ranksOnNode);
}

bool hasSpareCore(const zccrt_program &p, const Launch &launch) {
  return allowedCores(launch) >= launch.ranksOnNode * (threadsPerRank(p, launch) + 1);
}

/// Whether other programs run on the cores that the ranks want. The ranks themselves are just
/// starting.
static bool isBusy(int threads, const Launch &launch) {
  int others = INT_MAX;
  for (int sample = 0; sample < 3; ++sample) {
    std::ifstream file("/proc/loadavg");
    std::string average;
    int running = 0;
    if (!(file >> average >> average >> average >> running))
      return false;
    others = std::min(others, std::max(0, running - launch.ranksOnNode));
    usleep(1000);
  }
  return others + threads * launch.ranksOnNode > sysconf(_SC_NPROCESSORS_ONLN);
}

/// OMP_PROC_BIND has libgomp bind the first thread to one place before main; counted is what the process began on, all of them.
static void leavePlace() {
  if (omp_get_proc_bind() == omp_proc_bind_false)
    return;
  cpu_set_t all;
  CPU_ZERO(&all);
  for (int place = 0; place < omp_get_num_places(); ++place) {
    std::vector<int> cores(omp_get_place_num_procs(place));
    omp_get_place_proc_ids(place, cores.data());
    for (int c : cores)
      CPU_SET(c, &all);
  }
  if (CPU_COUNT(&all) > 0)
    sched_setaffinity(0, sizeof all, &all);
}

/// Tells glibc's allocator, which reads it when a process starts; whether it has been told. What a thread's cache holds of
/// small pieces is not joined with what is free beside it. One that was cut off behind an aligned block would lie between the
/// place of that and the rest, too little for the next such block: a library that allocates 7 MiB for each product took 47.
static bool tuneAllocator() {
  const char *key = "GLIBC_TUNABLES", *given = getenv(key);
  const std::string tunables = given ? given : "", ours = "glibc.malloc.tcache_count";
  if (tunables.find(ours) != std::string::npos)
    return true;
  setenv(key, (tunables + (tunables.empty() ? "" : ":") + ours + "=0").c_str(), 1);
  return false;
}

void prepareProcess(const zccrt_program &p, char **argv) {
  // A step allocates nothing; what libraries allocate and free inside it must not go back to the
  // system each time.
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, -1);
  mallopt(M_ARENA_MAX, 1);
  Launch launch = readLaunch();
  constexpr const char *guard = "ZCCRT_STARTED";
  const bool isStarted = getenv(guard);
  cpu_set_t bound;
  CPU_ZERO(&bound);
  sched_getaffinity(0, sizeof bound, &bound);
  if (!isStarted)
    leavePlace();
  int threads = threadsPerRank(p, launch);
  omp_set_dynamic(0);
  omp_set_num_threads(threads);
  if (isStarted)
    return;
  bool widened = false;
  if (launch.underMpi && threads > availableCores()) {
    int before = availableCores();
    useAllCores();
    widened = availableCores() > before;
  }
  int wanted = threads * (p.host_slots ? 2 : 1); // what computes in host memory has a team of its own
  bool crowded = wanted > availableCores() || wanted * launch.ranksOnNode > allowedCores(launch);
  std::string count = std::to_string(threads);
  // Waiting threads spin, so that the next kernel starts at once; but where they share a core they
  // keep it from those that work. ResNet-18 on two cores, 5 ms a step: beside eight other processes
  // 31 ms with sleeping threads, 256 ms with spinning ones.
  const char *policy = crowded || p.device || (threads > 1 && isBusy(threads, launch)) ? "passive" : "active";
  const bool isTuned = tuneAllocator();
  const char *oldCount = getenv("OMP_NUM_THREADS"), *oldPolicy = getenv("OMP_WAIT_POLICY");
  bool fits = oldCount && oldCount == count && oldPolicy && !widened && isTuned;
  setenv(guard, "1", 1);
  if (fits) {
    sched_setaffinity(0, sizeof bound, &bound);
    return;
  }
  setenv("OMP_NUM_THREADS", count.c_str(), 1);
  setenv("OMP_WAIT_POLICY", policy, 0);
  // By its own path, so that the system's tools show its name.
  char self[PATH_MAX] = {};
  if (readlink("/proc/self/exe", self, sizeof self - 1) > 0)
    execv(self, argv);
  // Without /proc the program runs all the same, with what omp_set_num_threads could change.
}

// ---- CPU features

/// Lower case without separators: "avx512_bf16", "avx512bf16" and "AVX512-BF16" are one.
static std::string plainName(const std::string &name) {
  std::string s;
  for (char c : name)
    if (isalnum(static_cast<unsigned char>(c)))
      s += static_cast<char>(tolower(c));
  return s;
}

bool cpuHas(const std::string &feature) {
  std::string name = plainName(feature);
#if defined(__x86_64__)
  __builtin_cpu_init();
#define ZCCRT_FEATURE(gcc, plain)                                                                                                \
  if (name == plain)                                                                                                             \
    return __builtin_cpu_supports(gcc);
  ZCCRT_FEATURE("sse3", "sse3")
  ZCCRT_FEATURE("ssse3", "ssse3")
  ZCCRT_FEATURE("sse4.1", "sse41")
  ZCCRT_FEATURE("sse4.2", "sse42")
  ZCCRT_FEATURE("popcnt", "popcnt")
  ZCCRT_FEATURE("avx", "avx")
  ZCCRT_FEATURE("avx2", "avx2")
  ZCCRT_FEATURE("fma", "fma")
  ZCCRT_FEATURE("bmi", "bmi")
  ZCCRT_FEATURE("bmi2", "bmi2")
  ZCCRT_FEATURE("avx512f", "avx512f")
  ZCCRT_FEATURE("avx512bw", "avx512bw")
  ZCCRT_FEATURE("avx512cd", "avx512cd")
  ZCCRT_FEATURE("avx512dq", "avx512dq")
  ZCCRT_FEATURE("avx512vl", "avx512vl")
  ZCCRT_FEATURE("avx512vnni", "avx512vnni")
  ZCCRT_FEATURE("avx512bf16", "avx512bf16")
#undef ZCCRT_FEATURE
#endif
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("flags", 0) != 0 && line.rfind("Features", 0) != 0)
      continue;
    std::istringstream words(line.substr(std::min(line.size(), line.find(':') + 1)));
    for (std::string word; words >> word;)
      if (plainName(word) == name)
        return true;
    return false;
  }
  return false;
}

void checkCpu(const char *isa) {
  std::istringstream words(isa ? isa : "");
  std::string missing;
  for (std::string word; words >> word;)
    if (!cpuHas(word))
      missing += (missing.empty() ? "" : ", ") + word;
  if (!missing.empty())
    fail("this CPU lacks %s, for which the program was compiled; compile it here, or with --march= "
         "and the oldest CPU it "
         "shall run on",
         missing.c_str());
}

} // namespace zccrt
