// What --check-kernels finds: each kernel in a process of its own.
#ifndef ZCC_SANITIZED // whose functions the watcher defines
#include "runtime/Device.h"
#include "runtime/Fail.h"
#include "runtime/cuda/emulate/Watch.h"
#include "test/unit/BadKernels.h"
#include <cmath>
#include <gtest/gtest.h>

namespace kernel_watch_test {

using namespace zccrt;

namespace {

constexpr int64_t kBytes = 256 * sizeof(float);

/// Runs the kernel over memory of which the first `known` bytes are its result's; 0: it is not said which.
void run(const char *kernel, int64_t known = 0) {
  openDevice(zccrt_emulated_device, 0);
  char *memory = device()->allocate(kBytes);
  if (known)
    emulate::touch("/fc1/MatMul", {{memory, known, true}, {memory + known, kBytes - known, false}});
  kerneltest::queueBadKernel(kernel, reinterpret_cast<float *>(memory));
  device()->synchronize();
  exit(0);
}

void expectRight(const char *kernel, int64_t known = 0) {
  EXPECT_EXIT(run(kernel, known), testing::ExitedWithCode(0), "") << kernel;
}
void expectFault(const char *kernel, const char *message, int64_t known = 0) {
  EXPECT_EXIT(run(kernel, known), testing::ExitedWithCode(1), message) << kernel;
}

class KernelWatch : public testing::Test {
protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(KernelWatch, BarriersOrderSharedMemory) {
  expectRight("rotate");
  expectRight("rotate in warp");
  expectRight("sums");
  expectFault("no barrier before", "thread 0 of block 0 reads shared memory that nobody of the block has written");
  expectFault("no barrier behind", "writes shared memory that thread [0-9]+ of block 0 read, with no barrier between");
  expectFault("no barrier in warp", "reads shared memory that nobody of the block has written");
  expectFault("across warps", "reads shared memory that ");
  expectFault("unwritten", "reads shared memory that nobody of the block has written");
}

TEST_F(KernelWatch, NothingOrdersBlocksOnTheDevice) {
  expectFault("across blocks", "thread 0 of block 1 writes device memory that thread 0 of block 0 wrote");
  expectFault("neighbour", "writes device memory that thread 0 of block 0 read");
  expectRight("every second");
}

TEST_F(KernelWatch, KernelsTouchTheirOperandsAndResults) {
  expectFault("behind", "writes beside the device's memory");
  expectRight("every second", kBytes / 2);
  expectFault("every second", "node '/fc1/MatMul': kernel 'everySecond': thread 8 of block 0 writes memory that is an operand's",
              64);
  expectFault("long index", "thread 4 of block 0 goes to index 4 of an array that is shorter");
}

TEST_F(KernelWatch, LaunchesAreWhatEveryDeviceTakes) {
  expectFault("large block", "kernel 'acrossBlocks': CUDA would refuse 1 x 1 x 1 blocks of 1025 x 1 x 1 threads");
  expectFault("high grid", "CUDA would refuse 1 x 65536 x 1 blocks");
  expectFault("no block", "CUDA would refuse 0 x 1 x 1 blocks");
}

/// Ends with 7 where the kernel has read what no copy has brought.
void expectCopied(const char *kernel, bool isThere) {
  auto runAndLook = [&] {
    openDevice(zccrt_emulated_device, 0);
    auto *x = reinterpret_cast<float *>(device()->allocate(kBytes));
    for (int i = 0; i < 256; ++i)
      x[i] = float(i);
    kerneltest::queueBadKernel(kernel, x);
    device()->synchronize();
    exit(x[0] == 3 && x[255] == 252 ? 0 : std::isnan(x[0]) ? 7 : 1);
  };
  EXPECT_EXIT(runAndLook(), testing::ExitedWithCode(isThere ? 0 : 7), "") << kernel;
}

TEST_F(KernelWatch, CopiesAreThereOnceTheyAreWaitedFor) {
  expectCopied("copied", true);
  expectCopied("not waited for", false);
}

} // namespace

} // namespace kernel_watch_test
#endif
