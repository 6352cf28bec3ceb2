// The disk as a memory space: one file a rank (one in each of several folders, which share the load), read and written in bulk
// and past the system's page cache, beside the step. Transfers are started and waited for; the engine cuts them into blocks and
// keeps many of them in flight, by io_uring or, where that is refused, by threads. What is read is compared with checksums of
// what was written.
//
// Two transfers that touch the same bytes of the file or of memory, one of them writing, are ordered by waiting for the first.
#pragma once

#include "runtime/nvme/PageSum.h"
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace zccrt {

enum class NvmeEngine { Auto, Uring, Threads };

struct NvmeOptions {
  std::vector<std::string> paths;       ///< folders; blocks alternate between them
  uint64_t bytes = 0;                   ///< of the file, over all folders
  uint64_t blockBytes = 1 << 20;        ///< what the system is asked for at a time
  unsigned depth = 16;                  ///< blocks in flight, reads and writes together, for each folder
  unsigned threads = 2;                 ///< that submit blocks and look at checksums, with io_uring
  unsigned transfers = 1024;            ///< most that may be started and not waited for
  bool checksum = true;                 ///< see Nvme::checksumBytes for what it takes
  bool direct = true;                   ///< false: through the page cache
  NvmeEngine engine = NvmeEngine::Auto; ///< Auto: io_uring, and threads where it is refused
  /// Memory that transfers will use, registered with the system once where it allows that; other
  /// memory may be used too.
  std::vector<std::span<char>> memory;
  /// For tests: the most that the system is asked for at a time, as if it had moved no more.
  uint64_t mostAtOnce = UINT64_MAX;
};

/// A transfer that was started; the default one needs no waiting.
struct NvmeTicket {
  uint32_t slot = UINT32_MAX, turn = 0;
};

/// Bytes of transfers, counted as they are started: the same from run to run wherever a step ends.
struct NvmeTraffic {
  uint64_t read = 0, written = 0;
};

/// All functions may be called by several threads at the same time.
class Nvme {
public:
  /// Makes the files. Throws a Failure that names the folder and what it lacks.
  explicit Nvme(const NvmeOptions &o);
  /// Ends what is in flight. The files vanish.
  ~Nvme();
  Nvme(const Nvme &) = delete;
  Nvme &operator=(const Nvme &) = delete;

  /// Starts a transfer. `what` names it in messages and lives until it has been waited for. A fresh
  /// file reads as zeros.
  NvmeTicket read(uint64_t offset, void *to, uint64_t bytes, const char *what = "");
  NvmeTicket write(uint64_t offset, const void *from, uint64_t bytes, const char *what = "");
  /// Returns when the transfer is done and its memory no longer used. Each ticket is waited for once.
  /// Throws a Failure that names what, where and why it failed.
  void wait(NvmeTicket t);
  /// Whether wait() would return or throw at once.
  bool isDone(NvmeTicket t);
  /// Returns when all writes that were started are on the disk.
  void flush();

  NvmeTraffic traffic() const;
  /// What the user should know: a folder in memory, a refused io_uring.
  const std::vector<std::string> &notes() const;
  /// NvmeEngine::Uring or Threads.
  NvmeEngine engine() const;
  /// Whether the memory is registered.
  bool isRegistered() const;
  /// The files' descriptors, for tests.
  std::vector<int> descriptors() const;

  /// Memory that checksums of so many bytes take.
  static uint64_t checksumBytes(uint64_t bytes) { return bytes / kNvmePage * sizeof(uint32_t); }

private:
  struct Parts;
  std::unique_ptr<Parts> parts;
};

} // namespace zccrt
