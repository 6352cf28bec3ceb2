// Graphs of a device: what is captured does not run, runs as often as it is launched in the order that streams and marks give it,
// and what CUDA's runtime refuses while it captures is refused.
#include "runtime/Device.h"
#include "runtime/Fail.h"
#include "runtime/zccrt.h"
#include <cstdlib>
#include <gtest/gtest.h>

namespace device_graph_test {

using namespace zccrt;

namespace {

/// A device whose work waits by chance before it runs, and some of its memory.
class DeviceGraphs : public testing::Test {
protected:
  void SetUp() override {
    setenv("ZCC_EMULATE_DELAY", "200", 1);
    on.reset(static_cast<Device *>(zccrt_emulated_device()));
    on->open(0);
    unsetenv("ZCC_EMULATE_DELAY");
    memory = reinterpret_cast<int64_t *>(on->allocate(4 * sizeof(int64_t)));
  }

  void add(Device::Stream s, int at, int64_t what) {
    on->call(s, [this, at, what] { memory[at] += what; });
  }
  void copy(Device::Stream s, int to, int from) { on->copy(s, memory + to, memory + from, sizeof(int64_t)); }
  /// A stream goes on behind what another one has been given.
  void follow(Device::Stream s, Device::Stream other) { on->wait(s, on->mark(other)); }

  std::unique_ptr<Device> on;
  int64_t *memory = nullptr;
};

using S = Device;

} // namespace

TEST_F(DeviceGraphs, RunInTheirOrderAsOftenAsTheyAreLaunched) {
  auto graph = on->capture([&] {
    add(S::Compute, 0, 1);
    follow(S::Collectives, S::Compute);
    copy(S::Collectives, 1, 0);
    follow(S::FromHost, S::Collectives);
    copy(S::FromHost, 2, 1);
    add(S::Compute, 3, 10);
    follow(S::Compute, S::FromHost);
    copy(S::Compute, 3, 2);
  });
  on->synchronize();
  EXPECT_EQ(memory[0], 0) << "what is captured has run";
  for (int64_t i = 1; i <= 20; ++i) {
    add(S::Compute, 0, 100); // before all of it
    graph->launch();
    copy(S::Compute, 0, 3); // behind all of it
    on->synchronize();
    ASSERT_EQ(memory[3], 101 * i);
    ASSERT_EQ(memory[0], 101 * i);
  }
}

TEST_F(DeviceGraphs, RefuseWhatCudaRefuses) {
  auto refusal = [&](const std::function<void()> &f) -> std::string {
    try {
      on->capture(f);
    } catch (const Failure &e) {
      return e.what();
    }
    return "";
  };
  EXPECT_NE(refusal([&] { on->synchronize(S::Compute); }).find("StreamCaptureUnsupported"), std::string::npos);
  EXPECT_NE(refusal([&] { on->allocate(64); }).find("StreamCaptureUnsupported"), std::string::npos);
  EXPECT_NE(refusal([&] { add(S::Collectives, 0, 1); }).find("has not come to it"), std::string::npos);
  Device::Mark before = on->mark(S::Compute);
  add(S::Collectives, 0, 1);
  Device::Mark elsewhere = on->mark(S::Collectives);
  EXPECT_NE(refusal([&] { on->wait(S::Compute, elsewhere); }).find("StreamCaptureIsolation"), std::string::npos);
  EXPECT_NE(refusal([&] {
              follow(S::ToHost, S::Compute);
              copy(S::ToHost, 1, 0);
            }).find("StreamCaptureUnjoined"),
            std::string::npos);
  // A stream that another one has waited for, which Compute waits for, is joined.
  EXPECT_EQ(refusal([&] {
              follow(S::ToHost, S::Compute);
              copy(S::ToHost, 1, 0);
              follow(S::FromHost, S::ToHost);
              follow(S::Compute, S::FromHost);
            }),
            "");
  on->synchronize(before); // and the device goes on
  add(S::Compute, 2, 5);
  on->synchronize();
  EXPECT_EQ(memory[2], 5);
}

} // namespace device_graph_test
