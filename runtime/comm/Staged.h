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
  /// `bytes`: of the host, which every bucket passes; the largest one is known when the program is compiled.
  StagedCollectives(Device &d, int slots, int64_t bytes) : on(d), marks(slots), memory(d, bytes), room(bytes) {}

  /// Runs `communicate` with the parts' copies, behind what the device has been given so far.
  void start(int slot, const std::vector<StagedPart> &parts, std::function<void(const std::vector<Part> &parts)> communicate);
  void wait(int slot);

private:
  Device &on;
  std::vector<Device::Mark> marks; ///< by slot
  PinnedArena memory;
  const int64_t room;
};

} // namespace zccrt
