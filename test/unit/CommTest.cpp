// Collectives in processes of their own: values, the fixed order of sums, ranks that fail or die.
#include "RuntimeTest.h"
#include "runtime/comm/Shm.h"
#include "runtime/comm/Sum.h"
#include <chrono>
#include <cmath>
#include <csignal>
#include <numeric>
#include <random>
#include <sys/mman.h>
#include <thread>

namespace comm_test {

using namespace zccrt;
using namespace runtimetest;

namespace {

// Small, so that every collective takes several chunks and ends in a part of one.
constexpr int64_t kChunk = 4096;

/// Runs f on ranks that share a window.
void onRanks(int ranks, const std::function<void(Comm &)> &f, std::vector<int> expected = {}) {
  int64_t bytes = ShmComm::windowBytes(ranks, kChunk);
  void *window = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  inProcesses(
      ranks,
      [&](int r) {
        ShmComm comm(r, ranks, window, kChunk);
        comm.barrier();
        f(comm);
      },
      expected);
  munmap(window, bytes);
}

/// The same with threads of one process as ranks, so that a thread sanitizer sees them all.
void onThreads(int ranks, const std::function<void(Comm &)> &f) {
  std::vector<uint64_t> window(ShmComm::windowBytes(ranks, kChunk) / 8 + 16);
  auto *aligned = reinterpret_cast<char *>((reinterpret_cast<uintptr_t>(window.data()) + 63) / 64 * 64);
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r)
    threads.emplace_back([&, r] {
      ShmComm comm(r, ranks, aligned, kChunk);
      comm.barrier();
      f(comm);
    });
  for (std::thread &t : threads)
    t.join();
}

float valueOf(int rank, int64_t i) { return (i % 1000 + 1) * (rank % 2 ? 1e-3f : 1e3f) / (rank + 1); }

/// The sum in rank order, in float.
float sumOf(int ranks, int64_t i, bool mean) {
  float sum = valueOf(0, i);
  for (int r = 1; r < ranks; ++r)
    sum += valueOf(r, i);
  return mean ? sum / ranks : sum;
}

std::vector<float> valuesOf(int rank, int64_t n) {
  std::vector<float> v(n);
  for (int64_t i = 0; i < n; ++i)
    v[i] = valueOf(rank, i);
  return v;
}

const int64_t kCounts[] = {1, 3, 17, 1000, 1024, 5001};

void checkAllReduce(Comm &comm) {
  for (int64_t n : kCounts)
    for (bool mean : {false, true})
      for (bool inPlace : {false, true}) {
        std::vector<float> in = valuesOf(comm.rank, n), out(n);
        float *to = inPlace ? in.data() : out.data();
        comm.allReduce(in.data(), to, n, ZCCRT_F32, mean);
        for (int64_t i = 0; i < n; ++i)
          ASSERT_EQ(to[i], sumOf(comm.ranks, i, mean)) << n << " " << i;
      }
}

void checkReduceScatter(Comm &comm) {
  for (int64_t n : kCounts)
    for (bool inPlace : {false, true}) {
      int64_t piece = comm.piece(n);
      std::vector<float> in = valuesOf(comm.rank, n), out(piece, 7);
      in.resize(std::max(n, piece));
      float *to = inPlace ? in.data() : out.data();
      comm.reduceScatter(in.data(), to, n, ZCCRT_F32, true);
      for (int64_t i = 0; i < piece; ++i) {
        int64_t at = comm.rank * piece + i;
        ASSERT_EQ(to[i], at < n ? sumOf(comm.ranks, at, true) : 0) << n << " " << i;
      }
    }
}

void checkGathers(Comm &comm) {
  for (int64_t n : kCounts) {
    int64_t piece = comm.piece(n), begin = std::min(n, comm.rank * piece);
    std::vector<int64_t> mine(piece), out(n + comm.ranks, -1);
    std::iota(mine.begin(), mine.end(), comm.rank * piece);
    comm.allGather(mine.data(), out.data(), n, ZCCRT_I64);
    for (int64_t i = 0; i < n; ++i)
      ASSERT_EQ(out[i], i);
    EXPECT_EQ(out[n], -1);
    // In place: the piece lies where it will be.
    std::vector<int64_t> whole(n + piece, -1);
    std::iota(whole.begin() + begin, whole.begin() + begin + comm.pieceLength(n, comm.rank, 0, piece), begin);
    comm.allGather(whole.data() + begin, whole.data(), n, ZCCRT_I64);
    for (int64_t i = 0; i < n; ++i)
      ASSERT_EQ(whole[i], i);
    for (int r = 1; r < comm.ranks; ++r) {
      std::vector<int64_t> brought(comm.rank ? 0 : piece + 1, -1);
      comm.bring(r, mine.data(), brought.data(), piece * 8);
      for (int64_t i = 0; comm.rank == 0 && i <= piece; ++i)
        ASSERT_EQ(brought[i], i < piece ? r * piece + i : -1);
    }
  }
}

/// A bucket gives what its tensors give alone, though chunks end anywhere in them.
void checkBuckets(Comm &comm, std::vector<int64_t> counts) {
  std::vector<std::vector<float>> in, pieces, alone, together;
  for (int64_t n : counts) {
    in.push_back(valuesOf(comm.rank, n));
    pieces.push_back(valuesOf(comm.rank, comm.piece(n)));
  }
  for (int kind = 0; kind < 3; ++kind) {
    alone.clear();
    together.clear();
    for (int64_t n : counts) {
      alone.emplace_back(n + comm.ranks, 7.f);
      together.emplace_back(n + comm.ranks, 7.f);
    }
    std::vector<Part> parts;
    for (size_t i = 0; i < in.size(); ++i)
      parts.push_back({kind == 1 ? pieces[i].data() : in[i].data(), together[i].data(), counts[i]});
    if (kind == 0)
      comm.allReduce(Parts(parts), ZCCRT_F32, true);
    else if (kind == 1)
      comm.allGather(Parts(parts), ZCCRT_F32);
    else
      comm.reduceScatter(Parts(parts), ZCCRT_F32, false);
    for (size_t i = 0; i < in.size(); ++i) {
      if (kind == 0)
        comm.allReduce(in[i].data(), alone[i].data(), counts[i], ZCCRT_F32, true);
      else if (kind == 1)
        comm.allGather(pieces[i].data(), alone[i].data(), counts[i], ZCCRT_F32);
      else
        comm.reduceScatter(in[i].data(), alone[i].data(), counts[i], ZCCRT_F32, false);
      ASSERT_EQ(alone[i], together[i]) << kind << " " << counts[i];
    }
  }
}

} // namespace

TEST(Sum, InOrderAndRoundedOnce) {
  const float big[] = {1e8f}, one[] = {1}, minus[] = {-1e8f};
  const void *parts[] = {big, one, minus};
  float out;
  sumInOrder(&out, parts, 3, 1, ZCCRT_F32, false);
  EXPECT_EQ(out, (1e8f + 1.f) - 1e8f);
  // 256 + 1 + 1 in bf16 would stay 256 if each sum were rounded.
  const Bf16 a[] = {Bf16(256.f)}, b[] = {Bf16(1.f)};
  const void *halves[] = {a, b, b};
  Bf16 sum;
  sumInOrder(&sum, halves, 3, 1, ZCCRT_BF16, false);
  EXPECT_EQ(float(sum), 258.f);
  const int64_t i[] = {INT64_MAX}, j[] = {1};
  const void *ints[] = {i, j};
  int64_t wrapped;
  sumInOrder(&wrapped, ints, 2, 1, ZCCRT_I64, false);
  EXPECT_EQ(wrapped, INT64_MIN);
}

/// Rows longer than a block of sums, of an odd length, as a loop over single elements has them.
template <class T> static void checkSums(int elem, bool mean) {
  constexpr int64_t kCount = 2 * 1024 + 37;
  std::vector<T> parts[3], out(kCount);
  std::minstd_rand draw(7);
  for (auto &part : parts)
    for (int64_t i = 0; i < kCount; ++i)
      part.push_back(T(std::ldexp(float(draw()) / float(draw.max()) - 0.5f, int(draw() % 28) - 20))); // some below normal in f16
  parts[0][3] = parts[1][5] = T(HUGE_VALF), parts[2][7] = T(NAN);
  const void *all[] = {parts[0].data(), parts[1].data(), parts[2].data()};
  sumInOrder(out.data(), all, 3, kCount, elem, mean);
  for (int64_t i = 0; i < kCount; ++i) {
    const float sum = float(parts[0][i]) + float(parts[1][i]) + float(parts[2][i]);
    const float expected = float(T(mean ? sum / 3.0f : sum));
    ASSERT_TRUE(float(out[i]) == expected || (std::isnan(expected) && std::isnan(float(out[i])))) << elem << " " << i;
  }
}

TEST(Sum, LongRows) {
  for (bool mean : {false, true}) {
    checkSums<float>(ZCCRT_F32, mean);
    checkSums<Bf16>(ZCCRT_BF16, mean);
    checkSums<F16>(ZCCRT_F16, mean);
  }
}

TEST(Comm, AllReduce) {
  for (int ranks : {2, 3, 4})
    onRanks(ranks, checkAllReduce);
}

TEST(Comm, ReduceScatter) {
  for (int ranks : {2, 3, 4})
    onRanks(ranks, checkReduceScatter);
}

TEST(Comm, Gathers) {
  for (int ranks : {2, 3, 4})
    onRanks(ranks, checkGathers);
}

TEST(Comm, Buckets) {
  for (int ranks : {2, 3, 4})
    onRanks(ranks, [](Comm &comm) { checkBuckets(comm, {std::begin(kCounts), std::end(kCounts)}); });
}

TEST(Comm, RanksAsThreads) {
  for (int ranks : {2, 3})
    onThreads(ranks, [](Comm &comm) {
      checkBuckets(comm, {std::begin(kCounts), std::end(kCounts)});
      checkAllReduce(comm);
      checkReduceScatter(comm);
      checkGathers(comm);
    });
}

TEST(Comm, OneRank) {
  auto comm = singleRank();
  checkBuckets(*comm, {std::begin(kCounts), std::end(kCounts)});
  checkAllReduce(*comm);
  checkReduceScatter(*comm);
  checkGathers(*comm);
}

// Several under way at once, waited in another order, with a thread of their own and without.
TEST(Comm, StartAndWait) {
  for (bool ownThread : {false, true})
    onRanks(3, [&](Comm &comm) {
      startCollectives(comm, {2, 2, ownThread});
      const int64_t n = 3000;
      alignas(64) static float arena[3 * n];
      for (int step = 0; step < 50; ++step) {
        for (int64_t i = 0; i < 2 * n; ++i)
          arena[i] = valueOf(comm.rank, i) + step;
        char *base = reinterpret_cast<char *>(arena);
        const zccrt_part parts[] = {{0, 0, n}, {4 * n, 8 * n, n}};
        zccrt_all_reduce_start(base, 0, parts, 1, ZCCRT_F32, 0);
        zccrt_reduce_scatter_start(base, 1, parts + 1, 1, ZCCRT_F32, 1);
        zccrt_wait(1);
        zccrt_wait(0);
        float expected = valueOf(0, 5) + step;
        for (int r = 1; r < comm.ranks; ++r)
          expected += valueOf(r, 5) + step;
        ASSERT_EQ(arena[5], expected);
      }
      stopCollectives();
    });
}

TEST(Comm, AgreesOnErrors) {
  onRanks(3, [](Comm &comm) {
    comm.agree("");
    EXPECT_FAILURE(comm.agree(comm.rank == 1 ? "no such file" : ""), "no such file");
    const std::string names(3000, 'n');
    EXPECT_FAILURE(comm.agree(comm.rank == 2 ? "other" : "none"), "none");
    EXPECT_FAILURE(comm.agree(comm.rank == 0 ? names + "." : ""), names + ".");
  });
}

// One rank fails, one is killed: the others notice within seconds and end.
TEST(Comm, FailuresReachTheOthers) {
  onRanks(3,
          [](Comm &comm) {
            if (comm.rank == 1) {
              comm.abort();
              _exit(1);
            }
            EXPECT_FAILURE(comm.barrier(), "rank 1 has failed");
          },
          {0, 1, 0});
  onRanks(3,
          [](Comm &comm) {
            if (comm.rank == 2)
              raise(SIGKILL);
            std::string text = failureOf([&] { comm.barrier(); });
            EXPECT_TRUE(text.starts_with("rank 2 has ended unexpectedly") || text == "rank 2 has failed") << text;
          },
          {0, 0, 128 + SIGKILL});
  onRanks(2, // waits for something else of it
          [](Comm &comm) {
            if (comm.rank == 1)
              raise(SIGKILL);
            std::string text;
            do
              text = failureOf([&] { comm.look(); });
            while (text == "no failure");
            EXPECT_TRUE(text.starts_with("rank 1 has ended unexpectedly")) << text;
          },
          {0, 128 + SIGKILL});
}

// A rank that fails leaves rank 0 the time to write what the run came to.
TEST(Comm, RankZeroEndsFirst) {
  auto *words = static_cast<std::atomic<int> *>(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  onRanks(3,
          [&](Comm &comm) {
            if (comm.rank != 0) {
              comm.abort();
              _exit(*words == 1 ? 1 : 2);
            }
            std::this_thread::sleep_for(std::chrono::milliseconds(300));
            *words = 1;
            _exit(0);
          },
          {0, 1, 1});
  munmap(words, 4096);
}

// Run by the next test under mpirun.
TEST(Comm, DISABLED_UnderMpirun) {
  Launch launch = readLaunch();
  ASSERT_TRUE(launch.underMpi);
  auto comm = joinJob(launch, getenv("ZCC_TEST_MPI_PATH") ? CommKind::Mpi : CommKind::Auto, /*command=*/0);
  checkAllReduce(*comm);
  checkReduceScatter(*comm);
  checkGathers(*comm);
  checkBuckets(*comm, {5, 800001, 1, 300000, 17});
  comm->barrier();
  leaveJob();
}

TEST(Comm, MpirunAndBothPaths) {
  if (shell("mpirun --version").status != 0)
    GTEST_SKIP() << "no mpirun";
  for (const char *path : {"", "ZCC_TEST_MPI_PATH=1 "}) {
    Result r = shell(std::string(path) +
                     "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
                     "OMPI_MCA_rmaps_base_oversubscribe=1 "
                     "mpirun -n 3 " +
                     alone("Comm.DISABLED_UnderMpirun"));
    EXPECT_EQ(r.status, 0) << r.out << r.err;
  }
}

} // namespace comm_test
