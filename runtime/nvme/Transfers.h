// What was asked of an Nvme, cut into blocks that its engine moves: shared by callers, who start and wait, and by the engine's
// threads, who take blocks and settle them. Everything is allocated at the start.
#pragma once

#include "runtime/nvme/Nvme.h"
#include "runtime/nvme/PageSums.h"
#include "runtime/nvme/SwapFiles.h"
#include <condition_variable>
#include <mutex>
#include <optional>
#include <sys/types.h>

namespace zccrt {

enum class Direction : uint32_t { Read, Write };

/// A part of a transfer that lies in one piece in one file.
struct Block {
  Direction direction;
  uint32_t transfer; ///< its slot
  uint32_t file;
  uint32_t tries = 0; ///< calls since the last byte was moved
  char *memory;
  uint64_t offset;     ///< of the Nvme's range
  uint64_t fileOffset; ///< of its file
  uint64_t bytes;      ///< of all of it
  uint64_t moved = 0;  ///< a whole number of pages
};

class Transfers {
public:
  Transfers(const NvmeOptions &o, SwapFiles &files);

  // ---- of callers
  NvmeTicket start(Direction d, uint64_t offset, char *memory, uint64_t bytes, const char *what);
  void wait(NvmeTicket t);
  bool isDone(NvmeTicket t);
  /// Returns when no write is unfinished.
  void waitForWrites();
  NvmeTraffic traffic();

  // ---- of the engine
  /// The next block, reads and writes in turn.
  std::optional<Block> take();
  /// The same; waits until there is one. Nothing once `stop` was called.
  std::optional<Block> takeOrWait();
  /// What follows from a system call that moved `result` bytes of the rest of a block or failed with
  /// the error -result. Whether the rest must be moved by another call. Notes the checksums of what was
  /// written, and compares those of what was read: an engine gives the disk its next blocks before.
  enum class Next { Again, Done };
  Next settle(Block &b, int64_t result);
  /// How much of a block's rest the system is asked for.
  uint64_t request(const Block &b) const;
  /// Lets takeOrWait return.
  void stop();

  SwapFiles &files;

private:
  /// What became of a transfer: an error number, or one of these.
  enum Fault : int { kNone = 0, kEndOfFile = -1, kBadSum = -2 };
  struct Transfer {
    Direction direction;
    uint32_t turn = 0;
    char *memory;
    uint64_t offset, bytes;
    const char *what;
    uint64_t cut;    ///< bytes that blocks were made of
    uint32_t blocks; ///< in flight
    bool isDone;
    int fault;
    uint64_t faultOffset, faultBytes;
    double began; ///< when the first block was cut, where that is traced
  };
  /// Slots of transfers that are not wholly cut, in the order of their start.
  struct Queue {
    std::vector<uint32_t> ring;
    uint64_t first = 0, end = 0;
    bool isEmpty() const { return first == end; }
    uint32_t front() const { return ring[first % ring.size()]; }
    void push(uint32_t slot) { ring[end++ % ring.size()] = slot; }
  };

  std::optional<Block> cutNext();
  Block cut(Queue &q);
  void finish(const Block &b, int fault, uint64_t offset, uint64_t bytes);
  Transfer &find(NvmeTicket t);
  [[noreturn]] void report(const Transfer &t) const;

  const uint64_t blockBytes, mostAtOnce;
  std::optional<PageSums> sums;
  std::mutex mutex;
  std::condition_variable arrived, finished;
  std::vector<Transfer> slots;
  std::vector<uint32_t> freeSlots;
  Queue queues[2];
  Direction turn = Direction::Read; ///< whose block comes next
  uint64_t unfinishedWrites = 0;
  NvmeTraffic started;
  bool isStopping = false;
};

/// Moves blocks until it is destroyed; then ends those that are in flight.
class BlockEngine {
public:
  virtual ~BlockEngine() = default;
  /// There are new blocks to take, for an engine that waits elsewhere than in takeOrWait.
  virtual void wake() {}
  virtual bool isRegistered() const { return false; }
};

/// Nothing, with a reason in `why`, where the system refuses io_uring.
std::unique_ptr<BlockEngine> startUring(Transfers &t, const NvmeOptions &o, std::string &why);
std::unique_ptr<BlockEngine> startThreads(Transfers &t, unsigned threads);

} // namespace zccrt
