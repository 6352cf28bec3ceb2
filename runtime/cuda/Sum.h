// Sums over ranks on the device.
#pragma once

#include "runtime/Device.h"
#include "runtime/comm/Messages.h"

namespace zccrt::cuda {

/// Queues out[i] = the addends' sum, as sumInOrder has it.
void sumOnDevice(Device::Stream s, char *out, const Addends &parts, int64_t count, int elem, bool mean);

} // namespace zccrt::cuda
