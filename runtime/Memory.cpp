// Reads limits from /proc, control groups and the process, and refuses what cannot fit.
#include "runtime/Memory.h"
#include "runtime/Fail.h"
#include <algorithm>
#include <fstream>
#include <sstream>
#include <sys/resource.h>
#include <unistd.h>
#include <vector>

namespace zccrt {

// ---- control groups

/// Where a hierarchy of groups can be seen, and which part of it.
namespace {
struct Mount {
  std::string shown; ///< the group that is at the mount point
  std::string point;
};
} // namespace

static bool hasWord(const std::string &list, const std::string &word) {
  return ("," + list + ",").find("," + word + ",") != std::string::npos;
}

/// Mounts of version 2, or of version 1 with the memory controller. A line of mountinfo:
/// "36 35 0:30 /shown /point rw,relatime shared:9 - cgroup cgroup rw,memory".
static std::vector<Mount> groupMounts(const std::string &root, int version) {
  std::vector<Mount> mounts;
  std::ifstream file(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    size_t dash = line.find(" - ");
    if (dash == std::string::npos)
      continue;
    std::istringstream left(line), right(line.substr(dash + 3));
    std::string skipped, type, source, options;
    Mount m;
    left >> skipped >> skipped >> skipped >> m.shown >> m.point;
    right >> type >> source >> options;
    if (version == 2 ? type == "cgroup2" : type == "cgroup" && hasWord(options, "memory"))
      mounts.push_back(m);
  }
  return mounts;
}

static int64_t firstNumber(const std::string &path) {
  std::ifstream file(path);
  int64_t n;
  return file >> n ? n : -1; // "max": no limit
}

/// The least limit from `group` up to the mount point. A group that cannot be seen, as in a
/// container, has the limits of what is at the mount point.
static int64_t limitFrom(const std::string &root, const Mount &m, std::string group, const char *file) {
  if (m.shown != "/")
    group = group.compare(0, m.shown.size(), m.shown) == 0 ? group.substr(m.shown.size()) : "";
  int64_t least = INT64_MAX;
  for (;;) {
    while (!group.empty() && group.back() == '/')
      group.pop_back();
    int64_t limit = firstNumber(root + m.point + group + "/" + file);
    if (limit > 0)
      least = std::min(least, limit);
    if (group.empty())
      return least;
    group.erase(group.find_last_of('/') == std::string::npos ? 0 : group.find_last_of('/'));
  }
}

int64_t groupLimit(const std::string &root) {
  int64_t least = INT64_MAX;
  std::ifstream file(root + "/proc/self/cgroup"); // "0::/group" or "4:memory:/group"
  for (std::string line; std::getline(file, line);) {
    size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos)
      continue;
    std::string controllers = line.substr(first + 1, second - first - 1);
    int version = controllers.empty() ? 2 : 1;
    if (version == 1 && !hasWord(controllers, "memory"))
      continue;
    for (const Mount &m : groupMounts(root, version))
      least = std::min(least, limitFrom(root, m, line.substr(second + 1), version == 2 ? "memory.max" : "memory.limit_in_bytes"));
  }
  return least;
}

// ---- this machine and this process

static int64_t machineLeft() {
  int64_t left = INT64_MAX;
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);)
    if (line.rfind("MemAvailable:", 0) == 0)
      left = atoll(line.c_str() + 13) * 1024;
  return left;
}

/// Of this process, without files that it maps.
static int64_t heldBytes() {
  std::ifstream file("/proc/self/statm");
  int64_t all = 0, resident = 0, shared = 0;
  file >> all >> resident >> shared;
  return std::max<int64_t>(0, resident - shared) * sysconf(_SC_PAGESIZE);
}

int64_t addressSpaceLeft() {
  rlimit limit;
  if (getrlimit(RLIMIT_AS, &limit) || limit.rlim_cur == RLIM_INFINITY)
    return INT64_MAX;
  int64_t used = std::max<int64_t>(0, firstNumber("/proc/self/statm")) * sysconf(_SC_PAGESIZE);
  return std::max<int64_t>(0, int64_t(std::min<rlim_t>(limit.rlim_cur, INT64_MAX)) - used);
}

static int64_t aside = 0, ofBudget = INT64_MAX;

void setAside(int64_t bytes, int64_t budget) {
  aside = bytes;
  constexpr int64_t kSmall = 1 << 20; // no plan is that exact
  ofBudget = budget ? std::max(budget - bytes, kSmall) : INT64_MAX;
}

void takeMemory(int64_t bytes) {
  if (ofBudget != INT64_MAX)
    ofBudget = std::max<int64_t>(ofBudget - bytes, 0);
}

int64_t budgetLeft() { return ofBudget; }

// What a group uses includes page cache, which gives way; only the limit itself is firm.
int64_t memoryLeft(int ranksOnNode) {
  const int64_t ranks = std::max(1, ranksOnNode);
  const int64_t left = std::min({machineLeft() / ranks, groupLimit() / ranks - heldBytes(), addressSpaceLeft()}) - aside;
  return std::max<int64_t>(0, std::min(left, ofBudget));
}

void checkMemory(int64_t bytesPerRank, int64_t held, int ranksOnNode) {
  constexpr double kGiB = 1024.0 * 1024 * 1024;
  // Stacks of threads, generated code, buffers of libraries, which end in a fault where they get none.
  constexpr int64_t kLibraries = int64_t(32) << 20;
  if (int64_t may = addressSpaceLeft(); bytesPerRank + kLibraries > may)
    fail("out of memory: the program needs %.2f GiB more, and the limit on its address space "
         "(ulimit -v) leaves %.2f GiB",
         double(bytesPerRank + kLibraries) / kGiB, double(may) / kGiB);
  const int64_t machine = machineLeft(), group = groupLimit(), more = bytesPerRank * ranksOnNode, all = more + held * ranksOnNode;
  if (more <= machine && all <= group)
    return;
  const bool isGroup = all > group;
  const double needed = double(isGroup ? all : more) / kGiB;
  std::string each = ranksOnNode > 1 ? format(" (%d ranks of %.2f GiB)", ranksOnNode, needed / ranksOnNode) : "";
  fail("the program needs %.2f GiB of memory%s, %s; compile for more ranks or a smaller "
       "batch",
       needed, each.c_str(),
       format(isGroup ? "its control group may have %.2f GiB" : "this machine has %.2f GiB left",
              double(isGroup ? group : machine) / kGiB)
           .c_str());
}

} // namespace zccrt
