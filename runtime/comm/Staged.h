// Collectives of what lies on a device by way of the host: operands are copied to memory of the host, the ranks communicate
// there, results are copied back; all of it in the order of a stream of its own. For ranks that share a device, and wherever the
// device's own library is not to be had.
#pragma once

#include "runtime/Device.h"
#include "runtime/comm/Comm.h"
#include <vector>

namespace zccrt {

struct StagedPart {
  Part part; ///< addresses of the device
  int64_t inBytes, outBytes;
};

class StagedCollectives {
public:
  StagedCollectives(Device &d, int slots) : on(d), marks(slots) {}

  /// Runs `communicate` with the parts' copies, behind what the device has been given so far.
  void start(int slot, const std::vector<StagedPart> &parts, std::function<void(const std::vector<Part> &parts)> communicate);
  void wait(int slot);

private:
  Device &on;
  std::vector<Device::Mark> marks; ///< by slot
  std::unique_ptr<PinnedArena> memory;
  int64_t room = 0;

  void makeRoom(int64_t bytes);
};

} // namespace zccrt
