// The limits of control groups, read from a file system of the test's own.
#include "runtime/Memory.h"
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <unistd.h>

namespace memory_test {

using namespace zccrt;
namespace fs = std::filesystem;

namespace {

class Groups : public testing::Test {
protected:
  fs::path root = fs::temp_directory_path() / ("zcc-groups-" + std::to_string(getpid()));
  void SetUp() override { fs::remove_all(root); }
  void TearDown() override { fs::remove_all(root); }

  void write(const std::string &path, const std::string &text) {
    fs::path file = root / path.substr(1);
    fs::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  void mount(const std::string &lines) { write("/proc/self/mountinfo", lines); }
  void group(const std::string &lines) { write("/proc/self/cgroup", lines); }
  int64_t limit() const { return groupLimit(root.string()); }
};

const char *kSecond = "25 20 0:22 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n";
const char *kFirst = "24 20 0:21 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
                     "26 20 0:23 / /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory\n";

TEST_F(Groups, NoLimit) {
  EXPECT_EQ(limit(), INT64_MAX);
  mount(kSecond);
  group("0::/\n");
  EXPECT_EQ(limit(), INT64_MAX);
  write("/sys/fs/cgroup/memory.max", "max\n");
  EXPECT_EQ(limit(), INT64_MAX);
}

TEST_F(Groups, OwnGroupOfVersion2) {
  mount(kSecond);
  group("0::/system.slice/slurm/job_7/step_0\n");
  write("/sys/fs/cgroup/system.slice/slurm/job_7/step_0/memory.max", "1000000\n");
  EXPECT_EQ(limit(), 1000000);
}

TEST_F(Groups, EveryParentCounts) {
  mount(kSecond);
  group("0::/system.slice/slurm/job_7/step_0\n");
  write("/sys/fs/cgroup/system.slice/slurm/job_7/step_0/memory.max", "max\n");
  write("/sys/fs/cgroup/system.slice/slurm/job_7/memory.max", "3000000\n");
  write("/sys/fs/cgroup/system.slice/memory.max", "2000000\n");
  EXPECT_EQ(limit(), 2000000);
  write("/sys/fs/cgroup/memory.max", "500000\n"); // of a container
  EXPECT_EQ(limit(), 500000);
}

TEST_F(Groups, Version1) {
  mount(kFirst);
  group("7:cpu,cpuacct:/other\n4:memory:/slurm/job_7\n");
  write("/sys/fs/cgroup/cpu/other/memory.limit_in_bytes", "1\n");
  write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("/sys/fs/cgroup/memory/slurm/job_7/memory.limit_in_bytes", "4000000\n");
  EXPECT_EQ(limit(), 4000000);
}

TEST_F(Groups, BothVersions) {
  mount(std::string(kFirst) + "27 20 0:24 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
  group("4:memory:/a\n0::/b\n");
  write("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "4000000\n");
  write("/sys/fs/cgroup/unified/b/memory.max", "3000000\n");
  EXPECT_EQ(limit(), 3000000);
}

// A container without a namespace of groups: the host's path, of which only the end is mounted.
TEST_F(Groups, PartOfTheHierarchy) {
  mount("26 20 0:23 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n");
  group("4:memory:/docker/abc/inner\n");
  write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "4000000\n");
  write("/sys/fs/cgroup/memory/inner/memory.limit_in_bytes", "2000000\n");
  EXPECT_EQ(limit(), 2000000);
  group("4:memory:/elsewhere\n");
  EXPECT_EQ(limit(), 4000000);
}

} // namespace

} // namespace memory_test
