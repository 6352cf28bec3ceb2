// Which stream moves what, and the way between the disk and the device.
#include "runtime/DeviceTransfers.h"
#include "runtime/Environment.h"
#include "runtime/Trace.h"
#include "runtime/nvme/Nvme.h"
#include <algorithm>

namespace zccrt {

DeviceTransfers::DeviceTransfers(Device &d, const Arenas &arenas, Nvme *disk, const zccrt_program &p)
    : on(d), arenas(arenas), disk(disk), slots(p.transfer_slots), workOf(p.host_slots) {
  if (disk)
    bounce = std::make_unique<PinnedArena>(on, kBounceBytes);
  if (p.host_slots) {
    on.call(Device::Host, [] {
      useAllCores(); // as for JobQueue
      gatherThreads();
    });
    on.synchronize(Device::Host);
  }
}

static Device::Stream streamOf(const zccrt_move &m) {
  if (m.from_space == kNvme || m.to_space == kNvme)
    return Device::Disk;
  return m.to_space == kHost ? Device::ToHost : Device::FromHost;
}

void DeviceTransfers::diskToHost(int64_t from, char *to, int64_t bytes, const char *name) {
  on.call(Device::Disk, [=, this] { disk->wait(disk->read(from, to, bytes, name)); });
}

void DeviceTransfers::hostToDisk(const char *from, int64_t to, int64_t bytes, const char *name) {
  on.call(Device::Disk, [=, this] { disk->wait(disk->write(to, from, bytes, name)); });
}

void DeviceTransfers::throughBounce(const zccrt_move &m) {
  for (int64_t at = 0; at < m.bytes; at += kBounceBytes) {
    int64_t n = std::min(kBounceBytes, m.bytes - at);
    if (m.from_space == kNvme) {
      diskToHost(m.from + at, bounce->base(), n, m.name);
      on.copy(Device::Disk, arenas[kDevice].base() + m.to + at, bounce->base(), n);
    } else {
      on.copy(Device::Disk, bounce->base(), arenas[kDevice].base() + m.from + at, n);
      hostToDisk(bounce->base(), m.to + at, n, m.name);
    }
  }
}

void DeviceTransfers::move(const zccrt_move &m, Device::Stream s) {
  if (s != Device::Disk)
    on.copy(s, arenas[m.to_space].base() + m.to, arenas[m.from_space].base() + m.from, m.bytes);
  else if (m.from_space == kDevice || m.to_space == kDevice)
    throughBounce(m);
  else if (m.from_space == kNvme)
    diskToHost(m.from, arenas[m.to_space].base() + m.to, m.bytes, m.name);
  else
    hostToDisk(arenas[m.from_space].base() + m.from, m.to, m.bytes, m.name);
}

void DeviceTransfers::start(int slot, const zccrt_move *moves, int n) {
  Slot &s = slots[slot];
  s = Slot();
  Device::Mark before = on.mark(Device::Compute);
  bool isBehind[Device::kStreams] = {};
  for (int i = 0; i < n; ++i) {
    Device::Stream stream = streamOf(moves[i]);
    if (!isBehind[stream])
      on.wait(stream, before);
    isBehind[stream] = true;
    move(moves[i], stream);
  }
  for (int i = 0; i < Device::kStreams; ++i)
    if (isBehind[i])
      s.marks[i] = on.mark(static_cast<Device::Stream>(i));
}

void DeviceTransfers::wait(int slot) {
  for (Device::Mark &m : slots[slot].marks) {
    if (m.number)
      on.wait(Device::Compute, m);
    m = {};
  }
}

void DeviceTransfers::startWork(int slot, void (*work)(char *)) {
  on.wait(Device::Host, on.mark(Device::Compute));
  on.call(Device::Host, [work, arena = arenas[kHost].base(), node = nodeNow()] {
    TraceScope span(Lane::Host, nullptr, -1, node);
    work(arena);
  });
  workOf[slot] = on.mark(Device::Host);
}

void DeviceTransfers::waitForWork(int slot) { on.wait(Device::Compute, workOf[slot]); }

} // namespace zccrt
