// The disk engine where the system is against it: refused calls, limits, signals, folders that hold no file; and what it costs.
#include "RuntimeTest.h"
#include "runtime/nvme/Nvme.h"
#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <thread>

namespace nvme_system_test {

using namespace zccrt;
using namespace runtimetest;

namespace {

constexpr uint64_t kPage = kNvmePage;

NvmeOptions options(const Folder &f, uint64_t pages, NvmeEngine engine = NvmeEngine::Auto) {
  NvmeOptions o;
  o.paths = {f.path};
  o.bytes = pages * kPage;
  o.engine = engine;
  return o;
}

/// Whole pages of memory, all bytes the same.
struct Pages {
  Pages(uint64_t bytes, char value) : size(bytes), data(static_cast<char *>(aligned_alloc(kPage, bytes))) {
    memset(data, value, bytes);
  }
  ~Pages() { free(data); }
  Pages(const Pages &) = delete;
  uint64_t size;
  char *data;
};

void expectRoundTrip(Nvme &n, uint64_t bytes) {
  Pages from(bytes, 'x'), to(bytes, 'y');
  n.wait(n.write(0, from.data, bytes));
  n.flush();
  n.wait(n.read(0, to.data, bytes));
  EXPECT_EQ(memcmp(from.data, to.data, bytes), 0);
}

/// Makes a system call fail from now on in this thread and what it starts: always, or where an argument has a flag.
void refuse(unsigned call, int error, unsigned argument = 0, unsigned flag = 0) {
  const uint8_t otherwise = flag ? 1 : 0;
  const auto at = static_cast<unsigned>(offsetof(seccomp_data, args) + argument * sizeof(uint64_t));
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, at),
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, flag, 0, otherwise),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(error)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  sock_fprog program = {std::size(filter), filter};
  ASSERT_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
  ASSERT_EQ(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

/// The system counts locked memory of who may not lock any amount.
void dropLockingRight() {
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {};
  ASSERT_EQ(syscall(SYS_capget, &header, data), 0);
  data[0].effective &= ~(1u << CAP_IPC_LOCK);
  ASSERT_EQ(syscall(SYS_capset, &header, data), 0);
}

long openDescriptors() {
  auto all = std::filesystem::directory_iterator("/proc/self/fd");
  return std::distance(begin(all), end(all));
}

} // namespace

TEST(NvmeSystem, RefusedUringFallsBackToThreads) {
  Folder f;
  // In a thread of its own: a filter stays for ever.
  std::thread([&] {
    refuse(SYS_io_uring_setup, EPERM);
    EXPECT_FAILURE(Nvme(options(f, 64, NvmeEngine::Uring)), "the system refuses io_uring: Operation not permitted");
    Nvme n(options(f, 64));
    EXPECT_EQ(n.engine(), NvmeEngine::Threads);
    ASSERT_EQ(n.notes().size(), 1u);
    EXPECT_EQ(n.notes()[0], "the system refuses io_uring (Operation not permitted); 16 threads read and write the swap file");
    expectRoundTrip(n, 64 * kPage);
  }).join();
}

TEST(NvmeSystem, RefusedDirectIoFallsBackToThePageCache) {
  Folder f;
  std::thread([&] {
    refuse(SYS_openat, EINVAL, /*argument=*/2, O_DIRECT);
    Nvme n(options(f, 64));
    EXPECT_EQ(n.engine(), NvmeEngine::Threads);
    ASSERT_EQ(n.notes().size(), 1u);
    EXPECT_EQ(n.notes()[0], "'" + f.path + "' refuses direct I/O; its data goes through the system's page cache");
    expectRoundTrip(n, 64 * kPage);
  }).join();
}

TEST(NvmeSystem, AFileSystemWithoutNamelessFiles) {
  Folder f;
  std::thread([&] {
    refuse(SYS_openat, EOPNOTSUPP, /*argument=*/2, O_TMPFILE & ~O_DIRECTORY);
    Nvme n(options(f, 64));
    EXPECT_TRUE(std::filesystem::is_empty(f.path));
    expectRoundTrip(n, 64 * kPage);
  }).join();
}

TEST(NvmeSystem, AFileSystemThatReservesNothing) {
  Folder f;
  std::thread([&] {
    refuse(SYS_fallocate, EOPNOTSUPP);
    Nvme n(options(f, 64));
    ASSERT_EQ(n.notes().size(), 1u);
    EXPECT_EQ(n.notes()[0], "the file system of '" + f.path + "' cannot reserve space; the disk may become full during the run");
    expectRoundTrip(n, 64 * kPage);
  }).join();
  std::thread([&] {
    refuse(SYS_fallocate, ENOSPC); // another rank was faster
    EXPECT_FAILURE(Nvme(options(f, 64)), "cannot make a swap file of 256.0 KiB in '" + f.path + "': No space left on device");
  }).join();
}

TEST(NvmeSystem, NoThreadsToBeHad) {
  Folder f;
  std::thread([&] {
    refuse(SYS_clone3, EAGAIN);
    for (NvmeEngine engine : {NvmeEngine::Uring, NvmeEngine::Threads})
      EXPECT_FAILURE(Nvme(options(f, 64, engine)), "cannot start a thread for the swap file: Resource temporarily unavailable");
  }).join();
}

TEST(NvmeSystem, NoLockedMemoryMeansPlainDirectIo) {
  Folder f;
  rlimit before, none;
  ASSERT_EQ(getrlimit(RLIMIT_MEMLOCK, &before), 0);
  none = {0, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_MEMLOCK, &none), 0);
  std::thread([&] {
    dropLockingRight();
    Pages p(64 * kPage, 0);
    NvmeOptions o = options(f, 64);
    o.memory = {{p.data, p.size}};
    Nvme n(o);
    EXPECT_FALSE(n.isRegistered());
    expectRoundTrip(n, 64 * kPage);
  }).join();
  ASSERT_EQ(setrlimit(RLIMIT_MEMLOCK, &before), 0);
}

TEST(NvmeSystem, FoldersThatHoldNoFile) {
  Folder f;
  writeFile(f / "file", "");
  NvmeOptions o = options(f, 64);
  auto made = [&](const std::vector<std::string> &paths) {
    o.paths = paths;
    Nvme n(o);
  };
  EXPECT_FAILURE(made({}), "there is no folder for the swap file; name one on a fast disk");
  EXPECT_FAILURE(made({f.path, f / "none"}), "cannot make a swap file in '" + f / "none" + "': No such file or directory");
  EXPECT_FAILURE(made({f / "file"}), "cannot make a swap file in '" + f / "file" + "': it is not a folder");
  o.bytes = uint64_t(1) << 52;
  EXPECT_FAILURE(made({f.path}), "'" + f.path + "' has no room for the swap file: 4194304.0 GiB are needed, ");
  o.bytes = uint64_t(1) << 40; // two folders on one disk need their sum
  EXPECT_FAILURE(made({f.path, f.path}), ": 1024.0 GiB are needed, ");
}

TEST(NvmeSystem, AFullDiskInMidStep) {
  // A limit of the process stands in for the disk's.
  Folder f;
  for (NvmeEngine engine : {NvmeEngine::Uring, NvmeEngine::Threads})
    inProcesses(1, [&](int) {
      signal(SIGXFSZ, SIG_IGN);
      Nvme n(options(f, 64, engine));
      rlimit limit = {32 * kPage, 32 * kPage};
      ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
      Pages p(64 * kPage, 0);
      n.wait(n.write(0, p.data, 32 * kPage));
      EXPECT_FAILURE(n.wait(n.write(32 * kPage, p.data, 32 * kPage, "%w.v")),
                     "cannot write '%w.v' to the swap file in '" + f.path + "' (131072 bytes at 131072): File too large");
    });
}

TEST(NvmeSystem, SignalsInterruptNothing) {
  Folder f;
  struct sigaction action = {}, before;
  action.sa_handler = [](int) {};
  ASSERT_EQ(sigaction(SIGALRM, &action, &before), 0);
  const itimerval often = {{0, 200}, {0, 200}}, never = {}; // us
  for (NvmeEngine engine : {NvmeEngine::Uring, NvmeEngine::Threads}) {
    Nvme n(options(f, 4096, engine));
    setitimer(ITIMER_REAL, &often, nullptr);
    expectRoundTrip(n, 4096 * kPage);
    setitimer(ITIMER_REAL, &never, nullptr);
  }
  sigaction(SIGALRM, &before, nullptr);
}

TEST(NvmeSystem, TransfersAllocateNothing) {
  Folder f;
  constexpr unsigned kAtOnce = 512;
  for (NvmeEngine engine : {NvmeEngine::Uring, NvmeEngine::Threads}) {
    NvmeOptions o = options(f, 2 * kAtOnce, engine);
    Pages p(o.bytes, 'z');
    o.memory = {{p.data, p.size}};
    o.direct = false; // the disk's speed is not the point
    Nvme n(o);
    auto round = [&] {
      NvmeTicket t[kAtOnce];
      for (unsigned i = 0; i < kAtOnce; ++i)
        t[i] = i % 2 ? n.read((i + kAtOnce) * kPage, p.data + (i + kAtOnce) * kPage, kPage)
                     : n.write(i * kPage, p.data + i * kPage, kPage);
      for (NvmeTicket ticket : t)
        n.wait(ticket);
    };
    round();
    const long opened = openDescriptors(), made = allocations;
    for (unsigned i = 0; i < 50000 / kAtOnce + 1; ++i)
      round();
    EXPECT_EQ(allocations, made);
    EXPECT_EQ(openDescriptors(), opened);
  }
}

} // namespace nvme_system_test
