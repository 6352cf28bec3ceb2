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

/// All of it under way at once.
void DeviceTransfers::betweenHostAndDisk(std::vector<zccrt_move> moves) {
  on.call(Device::Disk, [this, host = arenas[kHost].base(), moves = std::move(moves)] {
    std::vector<NvmeTicket> tickets;
    for (const zccrt_move &m : moves)
      tickets.push_back(m.from_space == kNvme ? disk->read(m.from, host + m.to, m.bytes, m.name)
                                              : disk->write(m.to, host + m.from, m.bytes, m.name));
    for (NvmeTicket t : tickets)
      disk->wait(t);
  });
}

/// Of one byte at least. In pieces, so many of which are under way between the disk and the bounce, each in the place of the one
/// so many before it.
void DeviceTransfers::throughBounce(const zccrt_move &m) {
  const bool isRead = m.from_space == kNvme;
  const int64_t pieces = (m.bytes + kPieceBytes - 1) / kPieceBytes;
  auto tickets = std::make_shared<std::array<NvmeTicket, kPieces>>(); // a graph calls the functions again
  auto sizeOf = [bytes = m.bytes](int64_t i) { return std::min(kPieceBytes, bytes - i * kPieceBytes); };
  auto placeOf = [this](int64_t i) { return bounce->base() + i % kPieces * kPieceBytes; };
  auto start = [=, this](int64_t i) {
    const int64_t at = i * kPieceBytes;
    (*tickets)[i % kPieces] =
        isRead ? disk->read(m.from + at, placeOf(i), sizeOf(i), m.name) : disk->write(m.to + at, placeOf(i), sizeOf(i), m.name);
  };
  auto end = [=, this](int64_t i) { disk->wait((*tickets)[i % kPieces]); };
  auto copy = [&](int64_t i) {
    char *const onDevice = arenas[kDevice].base() + (isRead ? m.to : m.from) + i * kPieceBytes;
    on.copy(Device::Disk, isRead ? onDevice : placeOf(i), isRead ? placeOf(i) : onDevice, sizeOf(i));
  };
  for (int64_t i = 0; i < pieces; ++i) {
    if (!isRead)
      copy(i);
    on.call(Device::Disk, [=] {
      if (isRead) {
        for (int64_t next = i ? i + kPieces - 1 : 0; next < std::min(i + kPieces, pieces); ++next)
          start(next);
        end(i);
        return;
      }
      start(i);
      // The one whose place the next piece takes; in the end all.
      const int64_t first = std::max<int64_t>(i + 1 - kPieces, 0), behind = i + 1 == pieces ? pieces : i + 2 - kPieces;
      for (int64_t ended = first; ended < behind; ++ended)
        end(ended);
    });
    if (isRead)
      copy(i);
  }
}

void DeviceTransfers::move(const zccrt_move &m, Device::Stream s) {
  if (s != Device::Disk) {
    StreamScope span(s, s == Device::ToHost ? Lane::ToHost : Lane::FromHost, m.name, m.bytes);
    on.copy(s, arenas[m.to_space].base() + m.to, arenas[m.from_space].base() + m.from, m.bytes);
  } else {
    throughBounce(m);
  }
}

void DeviceTransfers::start(int slot, const zccrt_move *moves, int n) {
  Slot &s = slots[slot];
  s = Slot();
  Device::Mark before = on.mark(Device::Compute);
  bool isBehind[Device::kStreams] = {};
  std::vector<zccrt_move> ofHost; // to and from the disk
  for (int i = 0; i < n; ++i) {
    Device::Stream stream = streamOf(moves[i]);
    if (!isBehind[stream])
      on.wait(stream, before);
    isBehind[stream] = true;
    if (stream == Device::Disk && moves[i].from_space != kDevice && moves[i].to_space != kDevice)
      ofHost.push_back(moves[i]);
    else
      move(moves[i], stream);
  }
  if (!ofHost.empty())
    betweenHostAndDisk(std::move(ofHost));
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
