// Which stream moves what, and the way between the disk and the device.
#include "runtime/DeviceTransfers.h"
#include "runtime/Trace.h"
#include "runtime/nvme/Nvme.h"
#include <algorithm>
#include <array>
#include <memory>

namespace zccrt {

DeviceTransfers::DeviceTransfers(Device &d, const Arenas &arenas, Nvme *disk, const zccrt_program &p)
    : on(d), arenas(arenas), disk(disk), slots(p.transfer_slots), workOf(p.host_slots), worker(p.host_slots ? 1 : 0) {
  if (disk)
    bounce = std::make_unique<PinnedArena>(on, kBounceBytes);
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

/// Of one byte at least. In pieces of half the bounce: while one is copied, the disk has the one before or behind it.
void DeviceTransfers::throughBounce(const zccrt_move &m) {
  const bool isRead = m.from_space == kNvme;
  const int64_t half = kBounceBytes / 2, pieces = (m.bytes + half - 1) / half;
  auto tickets = std::make_shared<std::array<NvmeTicket, 2>>(); // of the halves; a graph calls the functions again
  auto start = [=, this](int64_t i) {
    const int64_t n = std::min(half, m.bytes - i * half);
    char *piece = bounce->base() + i % 2 * half;
    (*tickets)[i % 2] = isRead ? disk->read(m.from + i * half, piece, n, m.name) : disk->write(m.to + i * half, piece, n, m.name);
  };
  auto end = [=, this](int64_t i) { disk->wait((*tickets)[i % 2]); };
  auto copy = [&](int64_t i) {
    char *piece = bounce->base() + i % 2 * half;
    const int64_t n = std::min(half, m.bytes - i * half);
    if (isRead)
      on.copy(Device::Disk, arenas[kDevice].base() + m.to + i * half, piece, n);
    else
      on.copy(Device::Disk, piece, arenas[kDevice].base() + m.from + i * half, n);
  };
  if (isRead) {
    on.call(Device::Disk, [=] { start(0); });
    for (int64_t i = 0; i < pieces; ++i) {
      on.call(Device::Disk, [=] {
        end(i);
        if (i + 1 < pieces)
          start(i + 1);
      });
      copy(i);
    }
  } else {
    for (int64_t i = 0; i < pieces; ++i) {
      copy(i);
      on.call(Device::Disk, [=] {
        if (i)
          end(i - 1);
        start(i);
      });
    }
    on.call(Device::Disk, [=] { end(pieces - 1); });
  }
}

void DeviceTransfers::move(const zccrt_move &m, Device::Stream s) {
  if (s != Device::Disk) {
    StreamScope span(s, s == Device::ToHost ? Lane::ToHost : Lane::FromHost, m.name, m.bytes);
    on.copy(s, arenas[m.to_space].base() + m.to, arenas[m.from_space].base() + m.from, m.bytes);
  } else if (m.from_space == kDevice || m.to_space == kDevice)
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
  on.call(Device::Host,
          [this, work, arena = arenas[kHost].base(), node = nodeNow()] { worker.wait(worker.start(work, arena, node)); });
  workOf[slot] = on.mark(Device::Host);
}

void DeviceTransfers::waitForWork(int slot) { on.wait(Device::Compute, workOf[slot]); }

} // namespace zccrt
