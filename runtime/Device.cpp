// The process's device, and what an emitted schedule asks of it directly.
#include "runtime/Device.h"
#include "runtime/DeviceMemory.h"
#include "runtime/Fail.h"
#include "runtime/zccrt.h"
#include <utility>

namespace zccrt {

Device::~Device() = default;
DeviceGraph::~DeviceGraph() = default;

char *Device::take(int64_t bytes) {
  bytes = (bytes + kDeviceAlignment - 1) / kDeviceAlignment * kDeviceAlignment;
  if (bytes > lentBytes)
    fail("internal: libraries need more of the device's memory than was planned");
  lentBytes -= bytes;
  return std::exchange(lent, lent + bytes);
}

static std::unique_ptr<Device> current;

Device *device() { return current.get(); }

void openDevice(void *(*make)(void), int rankOnNode) {
  current.reset(static_cast<Device *>(make()));
  current->open(rankOnNode);
}

std::unique_ptr<Device> exchangeDevice(std::unique_ptr<Device> d) { return std::exchange(current, std::move(d)); }

void runToEnd(void (*function)(char *arena), const Arena &arena) {
  function(arena.base());
  if (!current)
    return;
  current->synchronize();
  current->checkFaults();
}

} // namespace zccrt

void zccrt_device_copy(char *to, const char *from, int64_t bytes) {
  zccrt::device()->copy(zccrt::Device::Compute, to, from, bytes);
}

int zccrt_device_flag(const char *at) {
  unsigned char flag = 0;
  zccrt::Device &d = *zccrt::device();
  d.copy(zccrt::Device::Compute, &flag, at, 1);
  d.synchronize(zccrt::Device::Compute);
  return flag;
}
