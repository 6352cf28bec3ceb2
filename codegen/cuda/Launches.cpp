// Counts what a node gives the device: the function that would queue its work is called with a device that only counts.
#include "codegen/cuda/Launches.h"
#include "codegen/CodePrinter.h"
#include "codegen/KernelCall.h"
#include "codegen/cuda/CudaLoops.h"
#include "ir/Control.h"
#include "ir/Op.h"
#include "ir/View.h"
#include "passes/memory/Liveness.h"
#include "runtime/Device.h"
#include "runtime/DeviceMemory.h"
#include "runtime/comm/Messages.h"
#include <mutex>

using namespace zcc;

namespace {
class CountingDevice : public zccrt::Device {
public:
  explicit CountingDevice(int64_t &count) : count(count) {}

  std::string name() const override { return "a device that counts"; }
  void open(int) override {}
  void pin(char *, int64_t) override {}
  void unpin(char *) override {}
  void copy(Stream, void *, const void *, int64_t bytes) override { count += bytes > 0; }
  void fill(Stream, void *, int, int64_t bytes) override { count += bytes > 0; }
  void call(Stream, std::function<void()>) override { ++count; }
  std::unique_ptr<zccrt::DeviceGraph> capture(const std::function<void()> &) override { return nullptr; }
  void timeAt(Stream, double *, double *) override {}
  void readTimes() override {}
  void checkFaults() override {}
  std::unique_ptr<zccrt::Transport> transport(zccrt::Comm &, std::string &) override { return nullptr; }
  Mark mark(Stream) override { return {}; }
  void wait(Stream, Mark) override {}
  void synchronize(Mark) override {}

private:
  char *map(int64_t) override { return nullptr; }

  int64_t &count;
};
} // namespace

/// Of a library's kernel. No byte of the arena is touched.
static int64_t launchesOfCall(const Node &n, const Target &target) {
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  auto call = KernelCall::make(*n.parent(), n, target);
  if (!call) {
    llvm::consumeError(call.takeError()); // the emitter reports it
    return 0;
  }
  int64_t count = 0;
  auto before = zccrt::exchangeDevice(std::make_unique<CountingDevice>(count));
  (*call)->kernel->run(reinterpret_cast<char *>(uintptr_t(1) << 32), &(*call)->call);
  zccrt::exchangeDevice(std::move(before));
  return count;
}

/// Parts of a node are as many as a launch can be told of.
static int64_t launchesOfLoops(const Node &n) {
  const Function *kernel = n.parent()->module->function(n.attrs.s("kernel"));
  if (n.op->feedsKernel) // it takes no totals
    return 1;
  std::vector<Dims> strides;
  for (unsigned i = 0; kernel && i < kernel->args.size(); ++i)
    if (auto view = viewOf(n.operand(i)))
      strides.push_back(view->strides);
  if (!kernel || strides.size() != kernel->args.size())
    return 0;
  const int64_t parts = n.attrs.i("parts", 1), most = zccrt::partsOfLaunch(kernel->args.size() + kernel->results.size());
  const int64_t launches = parts == 1 ? 1 : (parts + most - 1) / most;
  return launches * gridsOf(planLoops(*kernel, strides, kGrid, parts));
}

int64_t zcc::launchesOf(const Node &n, const Target &target) {
  const Function &f = *n.parent();
  auto isApart = [&](Value *a, Value *b) { return !(placeOf(f, a) == placeOf(f, b)); };
  if (n.op->kernel || runsKernel(n))
    return (n.op->kernel ? launchesOfCall(n, target) : 0) + (runsKernel(n) ? launchesOfLoops(n) : 0);
  if (assigns(n))
    return isApart(n.operand(0), n.operand(1));
  if (n.op->structural == Structural::Insert)
    return 1 + (n.operand(0) && isApart(n.operand(0), n.result()));
  return 0;
}
