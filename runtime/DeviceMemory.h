// Memory of a device that libraries take: the end of its arena, of which the plan knows.
#pragma once

#include <cstdint>

namespace zccrt {

constexpr int64_t kProductWorkspace = 32 << 20; ///< what cuBLAS takes for itself on an H100
/// What a rank's collectives receive from another one at a time; a link between GPUs moves as much in some 20 us.
constexpr int64_t kDeviceMessage = 4 << 20;
constexpr int64_t kDeviceAlignment = 256; ///< of what libraries are given

} // namespace zccrt
