// What stands for NCCL under emulation.
#pragma once

#include "runtime/comm/Messages.h"

namespace zccrt {
class Device;

namespace emulate {
std::unique_ptr<Transport> emulatedTransport(Device &on);
}
} // namespace zccrt
