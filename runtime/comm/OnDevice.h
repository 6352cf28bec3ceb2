// Collectives between the memories of devices, in the order of the stream Collectives.
#pragma once

#include "runtime/Device.h"
#include "runtime/DeviceMemory.h"
#include "runtime/Fail.h"
#include "runtime/comm/Messages.h"
#include <vector>

namespace zccrt {

class DeviceCollectives {
public:
  DeviceCollectives(Device &d, std::unique_ptr<Transport> by, const Comm &comm, int slots)
      : on(d), comm(comm.rank, comm.ranks, std::move(by), kDeviceMessage), marks(slots) {}

  /// Runs `communicate`, which queues, behind what the device has been given so far.
  template <typename F> void start(int slot, F communicate) {
    on.wait(Device::Collectives, on.mark(Device::Compute));
    communicate(comm);
    marks[slot] = on.mark(Device::Collectives);
  }
  void wait(int slot) {
    if (marks[slot].number)
      on.wait(Device::Compute, marks[slot]);
    marks[slot] = {};
  }

private:
  class Queueing : public MessageComm {
  public:
    using MessageComm::MessageComm;
    void barrier() override { fail("a stream has no barrier"); }
  };

  Device &on;
  Queueing comm;
  std::vector<Device::Mark> marks; ///< by slot
};

} // namespace zccrt
