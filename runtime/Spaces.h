// The memory spaces of a rank and the engines beside the device's compute: copies to the host's arena and back and what is
// computed there, each on a thread, and the disk; where a device computes, streams of it.
#pragma once

#include "runtime/DeviceTransfers.h"
#include "runtime/nvme/Nvme.h"
#include "runtime/zccrt.h"
#include <memory>
#include <string>
#include <vector>

namespace zccrt {

struct SpaceOptions {
  std::vector<std::string> nvmePaths; ///< folders for what lies on the disk
  bool checksum = true;               ///< of what is read back from there
};

class Spaces {
public:
  /// Maps the arenas, and makes the file of @nvme. Throws a Failure where there is no room.
  Spaces(const zccrt_program &p, const SpaceOptions &o);
  ~Spaces();

  const Arenas &arenas() const { return all; }
  /// What the user should know.
  std::vector<std::string> notes() const;
  /// Of the disk, since the start.
  NvmeTraffic diskTraffic() const { return nvme ? nvme->traffic() : NvmeTraffic(); }

  /// zccrt_transfer_start and zccrt_transfer_wait.
  void start(int slot, const zccrt_move *moves, int n);
  void wait(int slot);
  /// zccrt_host_start and zccrt_host_wait.
  void startWork(int slot, void (*work)(char *));
  void waitForWork(int slot);

private:
  struct Engines;

  std::unique_ptr<Nvme> nvme; ///< before the arenas: one is its
  std::unique_ptr<Arena> device, host, disk;
  Arenas all;
  std::unique_ptr<Engines> engines;          ///< where the host computes
  std::unique_ptr<DeviceTransfers> onDevice; ///< where a device does
};

/// Whose transfers zccrt_transfer_start starts; nullptr at the end.
void useSpaces(Spaces *s);

} // namespace zccrt
