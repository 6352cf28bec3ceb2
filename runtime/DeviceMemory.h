// What the plan knows of a device: memory that libraries take, the end of its arena; what a launch can be told.
#pragma once

#include <cstdint>

namespace zccrt {

constexpr int64_t kProductWorkspace = 32 << 20; ///< what cuBLAS takes for itself on an H100
/// What a rank's collectives receive from another one at a time to add it up; a link between GPUs moves as much in some 20 us.
constexpr int64_t kDeviceMessage = 4 << 20;
/// What moves between a disk and a device goes through so many pieces of the host's memory.
constexpr int64_t kPieceBytes = 2 << 20, kPieces = 8, kBounceBytes = kPieces * kPieceBytes;
constexpr int64_t kDeviceAlignment = 256; ///< of what libraries are given

/// Of a kernel that runs over several parts, each with so many operands and results: those that one launch is told the places of.
/// The arguments of a launch are at most 4 KiB.
constexpr int64_t partsOfLaunch(int64_t tensors) { return 3840 / (8 * tensors); }

} // namespace zccrt
