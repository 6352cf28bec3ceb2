// The disk engine: what is written comes back, by either engine, in any sizes and over several folders; what goes wrong is named.
#include "runtime/nvme/Nvme.h"
#include "RuntimeTest.h"
#include <algorithm>
#include <cstring>
#include <fcntl.h>
#include <random>
#include <sys/stat.h>
#include <thread>

namespace nvme_test {

using namespace zccrt;
using namespace runtimetest;

namespace {

constexpr uint64_t kPage = kNvmePage;

/// Memory in whole pages.
struct Pages {
  explicit Pages(uint64_t bytes) : size(bytes), data(static_cast<char *>(aligned_alloc(kPage, bytes))) { memset(data, 0, bytes); }
  ~Pages() { free(data); }
  Pages(const Pages &) = delete;
  Pages &operator=(const Pages &) = delete;
  void fill(unsigned seed) {
    std::mt19937_64 random(seed);
    for (uint64_t at = 0; at < size; at += sizeof(uint64_t)) {
      uint64_t word = random();
      memcpy(data + at, &word, sizeof word);
    }
  }
  std::span<char> span() const { return {data, size}; }
  bool operator==(const Pages &o) const { return size == o.size && memcmp(data, o.data, size) == 0; }
  uint64_t size;
  char *data;
};

NvmeOptions options(const Folder &f, uint64_t pages, NvmeEngine engine) {
  NvmeOptions o;
  o.paths = {f.path};
  o.bytes = pages * kPage;
  o.engine = engine;
  return o;
}

/// Changes a byte of the file behind the engine's back.
void flipByte(const Nvme &n, uint64_t offset) {
  int fd = open(("/proc/self/fd/" + std::to_string(n.descriptors()[0])).c_str(), O_RDWR);
  ASSERT_GE(fd, 0);
  char byte;
  ASSERT_EQ(pread(fd, &byte, 1, offset), 1);
  byte ^= 0x10;
  ASSERT_EQ(pwrite(fd, &byte, 1, offset), 1);
  close(fd);
}

/// Writes all of a file in transfers of odd sizes, reads it in others, all in flight at once.
void roundTrip(const NvmeOptions &o, unsigned seed) {
  Nvme n(o);
  Pages from(o.bytes), to(o.bytes);
  from.fill(seed);
  std::mt19937 random(seed);
  for (bool writing : {true, false}) {
    std::vector<NvmeTicket> tickets;
    for (uint64_t at = 0, bytes; at < o.bytes; at += bytes) {
      bytes = std::min<uint64_t>((1 + random() % 700) * kPage, o.bytes - at);
      tickets.push_back(writing ? n.write(at, from.data + at, bytes) : n.read(at, to.data + at, bytes));
    }
    std::shuffle(tickets.begin(), tickets.end(), random);
    for (NvmeTicket t : tickets)
      n.wait(t);
    if (writing)
      n.flush();
  }
  EXPECT_TRUE(from == to);
  EXPECT_EQ(n.traffic().read, o.bytes);
  EXPECT_EQ(n.traffic().written, o.bytes);
}

class Engines : public testing::TestWithParam<NvmeEngine> {};
std::string engineName(const testing::TestParamInfo<NvmeEngine> &i) { return i.param == NvmeEngine::Uring ? "Uring" : "Threads"; }

} // namespace

INSTANTIATE_TEST_SUITE_P(Nvme, Engines, testing::Values(NvmeEngine::Uring, NvmeEngine::Threads), engineName);

TEST(PageSum, IsTheSameOnAllMachines) {
  for (unsigned seed = 0; seed < 8; ++seed) {
    Pages page(kPage);
    page.fill(seed);
    EXPECT_EQ(pageSum()(page.data), pageSumAnywhere(page.data));
    page.data[seed * 511] ^= 1;
    EXPECT_EQ(pageSum()(page.data), pageSumAnywhere(page.data));
  }
}

TEST_P(Engines, RoundTrip) {
  Folder f;
  for (unsigned seed = 1; seed <= 3; ++seed)
    roundTrip(options(f, 4099, GetParam()), seed);
  EXPECT_TRUE(std::filesystem::is_empty(f.path)); // the file has no name
}

TEST_P(Engines, SmallBlocksAndShallowQueue) {
  Folder f;
  NvmeOptions o = options(f, 1000, GetParam());
  o.blockBytes = 3 * kPage;
  o.depth = 2;
  roundTrip(o, 4);
  o.checksum = false;
  o.direct = false;
  roundTrip(o, 5);
}

TEST_P(Engines, SeveralFolders) {
  Folder a, b, c;
  NvmeOptions o = options(a, 4001, GetParam());
  o.paths = {a.path, b.path, c.path};
  o.blockBytes = 16 * kPage;
  roundTrip(o, 6);
  Nvme n(o);
  for (int fd : n.descriptors()) { // an equal share each
    struct stat info;
    ASSERT_EQ(fstat(fd, &info), 0);
    EXPECT_EQ(info.st_size, int64_t(84 * 16 * kPage));
  }
}

TEST_P(Engines, RegisteredMemory) {
  Folder f;
  NvmeOptions o = options(f, 600, GetParam());
  Pages registered(o.bytes), other(o.bytes);
  o.memory = {registered.span().first(100 * kPage), registered.span().last(100 * kPage)};
  Nvme n(o);
  EXPECT_TRUE(GetParam() == NvmeEngine::Threads || n.isRegistered());
  registered.fill(7);
  n.wait(n.write(0, registered.data, registered.size));
  n.wait(n.read(0, other.data, other.size));
  EXPECT_TRUE(registered == other);
  memset(registered.data, 0, registered.size);
  n.wait(n.read(kPage, registered.data + kPage, registered.size - kPage));
  EXPECT_EQ(memcmp(registered.data + kPage, other.data + kPage, other.size - kPage), 0);
}

TEST_P(Engines, ShortTransfersGoOn) {
  Folder f;
  NvmeOptions o = options(f, 2000, GetParam());
  o.mostAtOnce = 5 * kPage; // as if the system had moved no more
  roundTrip(o, 8);
}

TEST_P(Engines, AFreshFileIsZeros) {
  Folder f;
  Nvme n(options(f, 300, GetParam()));
  Pages p(300 * kPage), zeros(300 * kPage);
  p.fill(9);
  n.wait(n.read(0, p.data, p.size));
  EXPECT_TRUE(p == zeros);
}

TEST_P(Engines, AFlippedByteIsNoticed) {
  Folder f;
  for (bool checksum : {true, false}) {
    NvmeOptions o = options(f, 1000, GetParam());
    o.checksum = checksum;
    Nvme n(o);
    Pages p(o.bytes);
    p.fill(10);
    n.wait(n.write(0, p.data, p.size, "%w.m"));
    n.flush();
    flipByte(n, 700 * kPage + 123);
    NvmeTicket bad = n.read(690 * kPage, p.data, 20 * kPage, "%w.m");
    if (checksum)
      EXPECT_FAILURE(n.wait(bad), "'%w.m' came back from the swap file in '" + f.path + "' changed (4096 bytes at 2867200 ");
    else
      n.wait(bad);
    n.wait(n.read(0, p.data, 700 * kPage)); // all else is sound
  }
}

TEST_P(Engines, AnErrorNamesWhatAndWhere) {
  Folder f;
  NvmeOptions o = options(f, 1000, GetParam());
  Nvme n(o);
  Pages p(o.bytes);
  ASSERT_EQ(ftruncate(n.descriptors()[0], 500 * kPage), 0);
  NvmeTicket bad = n.read(0, p.data, p.size, "%w"), good = n.read(0, p.data, kPage);
  EXPECT_FAILURE(n.wait(bad), "cannot read '%w' from the swap file in '" + f.path + "' (");
  n.wait(good);
  bad = n.read(500 * kPage, p.data, 2 * kPage, "%w");
  EXPECT_FAILURE(n.wait(bad), "(8192 bytes at 2048000): the file ends before");
}

TEST_P(Engines, MisuseIsNamed) {
  Folder f;
  NvmeOptions o = options(f, 100, GetParam());
  o.transfers = 2;
  Nvme n(o);
  Pages p(o.bytes);
  EXPECT_FAILURE(n.read(1, p.data, kPage, "%x"), "a transfer of '%x' is not of whole pages");
  EXPECT_FAILURE(n.read(0, p.data + 64, kPage), "not of whole pages");
  EXPECT_FAILURE(n.read(kPage, p.data, o.bytes), "beyond the swap file's end");
  NvmeTicket a = n.read(0, p.data, kPage), b = n.read(0, p.data + kPage, kPage);
  EXPECT_FAILURE(n.read(0, p.data, kPage), "more than 2 transfers are not waited for");
  n.wait(a);
  n.wait(b);
  EXPECT_FAILURE(n.wait(a), "waited for twice");
  n.wait(NvmeTicket()); // nothing was started
  EXPECT_TRUE(n.isDone(n.read(0, p.data, 0)));
}

TEST_P(Engines, ReadsAndWritesFromTwoThreads) {
  Folder f;
  NvmeOptions o = options(f, 2048, GetParam());
  o.blockBytes = 4 * kPage;
  Nvme n(o);
  Pages first(1024 * kPage), second(1024 * kPage), to(1024 * kPage);
  first.fill(11);
  second.fill(12);
  n.wait(n.write(0, first.data, first.size));
  std::thread writer([&] {
    for (int i = 0; i < 5; ++i)
      n.wait(n.write(1024 * kPage, second.data, second.size));
  });
  for (int i = 0; i < 5; ++i)
    n.wait(n.read(0, to.data, to.size));
  writer.join();
  EXPECT_TRUE(first == to);
  n.wait(n.read(1024 * kPage, to.data, to.size));
  EXPECT_TRUE(second == to);
}

TEST_P(Engines, EndsWithTransfersInFlight) {
  Folder f;
  Pages p(4000 * kPage);
  for (int i = 0; i < 5; ++i) {
    Nvme n(options(f, 4000, GetParam()));
    n.write(0, p.data, p.size);
  }
}

} // namespace nvme_test
