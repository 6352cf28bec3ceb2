// How fast the runtime's disk engine reads and writes in given folders: what zcc-nvme prints and what predictions rest on.
#pragma once

#include "codegen/Profile.h"
#include "runtime/nvme/Nvme.h"

namespace zcc {

/// Bytes per second over a whole file, in blocks as the options say. Mixed: reads and writes at the
/// same time, the sum of both.
struct DiskRates {
  double read = 0, write = 0, mixed = 0;
  /// Seconds from the start of a transfer of one page to its end, the median.
  double readLatency = 0, writeLatency = 0;
  /// What this process' threads move, mixed, in a second of one core, and how many transfers of one page they begin and end.
  double bytesPerCore = 0, movesPerCore = 0;
  bool isUring = false, isRegistered = false;
  std::vector<std::string> notes; ///< the engine's

  /// Puts in what predictions rest on.
  void addTo(Profile &p) const;
};

/// Makes a file of o.bytes for it. `memory`: bytes that each direction goes through, the most; less than caches hold may be moved
/// faster than the state of a model. Throws a zccrt::Failure.
DiskRates measureDisk(zccrt::NvmeOptions o, uint64_t memory = uint64_t(64) << 20);

} // namespace zcc
