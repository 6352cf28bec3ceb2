// Transfers between memory spaces, and what is computed in host memory, where the arena is a device's: each engine is a stream,
// and what is started runs behind what the schedule has queued so far.
#pragma once

#include "runtime/Device.h"
#include "runtime/DeviceMemory.h"
#include "runtime/HostWorker.h"
#include "runtime/zccrt.h"
#include <vector>

namespace zccrt {

class Nvme;

class DeviceTransfers {
public:
  /// `disk` may be nullptr. What moves between the disk and the device goes through `kBounceBytes` of the host's memory.
  DeviceTransfers(Device &d, const Arenas &arenas, Nvme *disk, const zccrt_program &p);

  void start(int slot, const zccrt_move *moves, int n);
  /// What the device is given from now on runs behind what the slot has started.
  void wait(int slot);
  /// The same of a function of the host's arena.
  void startWork(int slot, void (*work)(char *arena));
  void waitForWork(int slot);

private:
  struct Slot {
    Device::Mark marks[Device::kStreams];
  };

  Device &on;
  const Arenas &arenas;
  Nvme *disk;
  std::vector<Slot> slots;
  std::vector<Device::Mark> workOf; ///< by slot of the host
  std::unique_ptr<PinnedArena> bounce;
  HostWorker worker; ///< a driver calls functions by whichever of its threads

  void move(const zccrt_move &m, Device::Stream s);
  void throughBounce(const zccrt_move &m);
  void betweenHostAndDisk(std::vector<zccrt_move> moves);
};

} // namespace zccrt
