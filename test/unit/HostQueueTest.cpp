// Work in host memory goes on a thread of its own, in the order of its starts, beside copies and the device's compute.
#include "runtime/JobQueue.h"
#include "runtime/Spaces.h"
#include <gtest/gtest.h>
#include <thread>

namespace host_queue_test {

using namespace zccrt;

namespace {
constexpr int64_t kBytes = 1 << 16, kCount = kBytes / 4;

zccrt_program programOf(int slots) {
  zccrt_program p{};
  p.arena_bytes[kDevice] = p.arena_bytes[kHost] = kBytes;
  p.transfer_slots = 2;
  p.most_moves = 1;
  p.host_slots = slots;
  return p;
}

float *floats(char *arena) { return reinterpret_cast<float *>(arena); }

void addOne(char *host) {
#pragma omp parallel for num_threads(2)
  for (int64_t i = 0; i < kCount; ++i)
    floats(host)[i] += 1;
}
void twice(char *host) {
  for (int64_t i = 0; i < kCount; ++i)
    floats(host)[i] *= 2;
}
std::thread::id worker;
void noteThread(char *) { worker = std::this_thread::get_id(); }
} // namespace

TEST(HostQueue, WorkFollowsTheOrderOfItsStarts) {
  zccrt_program p = programOf(2);
  Spaces spaces(p, {});
  float *host = floats(spaces.arenas()[kHost].base());
  for (int step = 0; step < 50; ++step) {
    float before = host[kCount - 1];
    spaces.startWork(0, addOne);
    spaces.startWork(1, twice);
    spaces.waitForWork(1);
    ASSERT_EQ(host[0], (before + 1) * 2);
    ASSERT_EQ(host[kCount - 1], (before + 1) * 2);
    if (host[0] > 1e6)
      std::fill_n(host, kCount, 0.0f);
    spaces.waitForWork(0);
  }
}

TEST(HostQueue, ItRunsBesideTheProgram) {
  zccrt_program p = programOf(1);
  Spaces spaces(p, {});
  spaces.startWork(0, noteThread);
  spaces.waitForWork(0);
  EXPECT_NE(worker, std::this_thread::get_id());
}

// A gradient goes down while the device computes the next one, is added, and comes back.
TEST(HostQueue, CopiesAndWorkHandOverToOneAnother) {
  zccrt_program p = programOf(1);
  Spaces spaces(p, {});
  float *device = floats(spaces.arenas()[kDevice].base());
  const zccrt_move down{kDevice, kHost, 0, 0, kBytes / 2, "gradient"}, up{kHost, kDevice, 0, kBytes / 2, kBytes / 2, "weights"};
  for (int step = 0; step < 50; ++step) {
    std::fill_n(device, kCount / 2, float(step));
    spaces.start(0, &down, 1);
    spaces.wait(0);
    spaces.startWork(0, addOne);
    std::fill_n(device, kCount / 2, -1.0f); // meanwhile
    spaces.waitForWork(0);
    spaces.start(1, &up, 1);
    spaces.wait(1);
    ASSERT_EQ(device[kCount / 2], float(step + 1));
    ASSERT_EQ(device[kCount - 1], float(step + 1));
  }
}

TEST(HostQueue, JobsAreNotLostWhenAQueueEnds) {
  int sum = 0;
  {
    JobQueue<int> q(4, /*ownThread=*/true, [] { return 0; }, [&](const int &n) { sum += n; });
    for (int i = 1; i <= 4; ++i)
      q.start([&](int &job) { job = i; });
  }
  EXPECT_EQ(sum, 10);
}

} // namespace host_queue_test
