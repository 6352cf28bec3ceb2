// Cuts transfers into blocks, and puts together what becomes of the blocks.
#include "runtime/nvme/Transfers.h"
#include "runtime/Fail.h"
#include "runtime/Trace.h"
#include <algorithm>
#include <cerrno>
#include <cstring>

namespace zccrt {

using Lock = std::unique_lock<std::mutex>;

Transfers::Transfers(const NvmeOptions &o, SwapFiles &files)
    : files(files), blockBytes(o.blockBytes), mostAtOnce(o.mostAtOnce), slots(o.transfers) {
  if (o.checksum)
    sums.emplace(o.bytes);
  for (uint32_t slot = o.transfers; slot--;)
    freeSlots.push_back(slot);
  for (Queue &q : queues)
    q.ring.resize(o.transfers);
}

// ---- callers

NvmeTicket Transfers::start(Direction d, uint64_t offset, char *memory, uint64_t bytes, const char *what) {
  if ((offset | bytes | reinterpret_cast<uintptr_t>(memory)) % kNvmePage)
    fail("internal: a transfer of '%s' is not of whole pages: %llu bytes at %llu", what, static_cast<unsigned long long>(bytes),
         static_cast<unsigned long long>(offset));
  if (offset > files.bytes() || bytes > files.bytes() - offset)
    fail("internal: a transfer of '%s' is beyond the swap file's end", what);
  if (!bytes)
    return {};
  Lock lock(mutex);
  if (freeSlots.empty())
    fail("internal: more than %zu transfers are not waited for", slots.size());
  uint32_t slot = freeSlots.back();
  freeSlots.pop_back();
  uint32_t turn = slots[slot].turn + 1;
  slots[slot] = {d, turn, memory, offset, bytes, what, 0, 0, false, kNone, 0, 0, 0};
  queues[static_cast<int>(d)].push(slot);
  unfinishedWrites += d == Direction::Write;
  (d == Direction::Read ? started.read : started.written) += bytes;
  arrived.notify_all();
  return {slot, turn};
}

Transfers::Transfer &Transfers::find(NvmeTicket t) {
  if (t.slot >= slots.size() || slots[t.slot].turn != t.turn || !t.turn)
    fail("internal: a transfer is waited for twice");
  return slots[t.slot];
}

void Transfers::report(const Transfer &t) const {
  const std::string &folder = files.files()[files.place(t.faultOffset).file].path;
  const std::string name = *t.what ? format("'%s'", t.what) : "data";
  const auto bytes = static_cast<unsigned long long>(t.faultBytes), at = static_cast<unsigned long long>(t.faultOffset);
  if (t.fault == kBadSum)
    fail(
        "%s came back from the swap file in '%s' changed (%llu bytes at %llu have another checksum than when they were written); "
        "the disk is failing, or something else writes to it",
        name.c_str(), folder.c_str(), bytes, at);
  fail("cannot %s %s %s the swap file in '%s' (%llu bytes at %llu): %s", t.direction == Direction::Read ? "read" : "write",
       name.c_str(), t.direction == Direction::Read ? "from" : "to", folder.c_str(), bytes, at,
       t.fault == kEndOfFile ? "the file ends before" : strerror(t.fault));
}

void Transfers::wait(NvmeTicket t) {
  if (t.slot == NvmeTicket().slot)
    return;
  Lock lock(mutex);
  Transfer &waited = find(t);
  finished.wait(lock, [&] { return waited.isDone; });
  const Transfer result = waited;
  ++waited.turn; // the ticket is no longer good
  freeSlots.push_back(t.slot);
  lock.unlock();
  if (result.fault != kNone)
    report(result);
}

bool Transfers::isDone(NvmeTicket t) {
  if (t.slot == NvmeTicket().slot)
    return true;
  Lock lock(mutex);
  return find(t).isDone;
}

void Transfers::waitForWrites() {
  Lock lock(mutex);
  finished.wait(lock, [&] { return !unfinishedWrites; });
}

NvmeTraffic Transfers::traffic() {
  Lock lock(mutex);
  return started;
}

// ---- the engine

Block Transfers::cut(Queue &q) {
  const uint32_t slot = q.front();
  Transfer &t = slots[slot];
  const uint64_t offset = t.offset + t.cut;
  const SwapFiles::Place place = files.place(offset);
  if (t.cut == 0)
    t.began = traceClock();
  Block b{t.direction,
          slot,
          place.file,
          0,
          t.memory + t.cut,
          offset,
          place.offset,
          std::min({blockBytes, t.bytes - t.cut, place.bytes}),
          0};
  t.cut += b.bytes;
  ++t.blocks;
  if (t.cut == t.bytes)
    ++q.first;
  return b;
}

std::optional<Block> Transfers::cutNext() {
  for (int tries = 0; tries < 2; ++tries) {
    Queue &q = queues[static_cast<int>(turn)];
    turn = turn == Direction::Read ? Direction::Write : Direction::Read;
    if (!q.isEmpty())
      return cut(q);
  }
  return std::nullopt;
}

std::optional<Block> Transfers::take() {
  Lock lock(mutex);
  return cutNext();
}

std::optional<Block> Transfers::takeOrWait() {
  std::optional<Block> b;
  Lock lock(mutex);
  arrived.wait(lock, [&] { return isStopping || (b = cutNext()); });
  return b;
}

void Transfers::stop() {
  Lock lock(mutex);
  isStopping = true;
  arrived.notify_all();
}

uint64_t Transfers::request(const Block &b) const { return std::min(b.bytes - b.moved, mostAtOnce); }

Transfers::Next Transfers::settle(Block &b, int64_t result) {
  constexpr uint32_t kMostTries = 1000; // of calls that move nothing; each gives the system time
  const uint64_t rest = b.bytes - b.moved, at = b.offset + b.moved;
  if (result > 0) {
    // Direct I/O goes on at whole pages.
    const uint64_t moved = std::min<uint64_t>(b.moved + result, b.bytes) / kNvmePage * kNvmePage;
    b.tries = moved > b.moved ? 0 : b.tries + 1;
    b.moved = moved;
    if (b.moved < b.bytes && b.tries < kMostTries)
      return Next::Again;
    if (b.moved < b.bytes) {
      finish(b, EIO, at, rest);
      return Next::Done;
    }
    const uint64_t end = b.offset + b.bytes;
    uint64_t bad = end;
    if (sums && b.direction == Direction::Read)
      bad = sums->firstBad(b.offset, b.memory, b.bytes);
    else if (sums)
      sums->note(b.offset, b.memory, b.bytes); // nobody has been told that it may change
    finish(b, bad == end ? kNone : kBadSum, bad, kNvmePage);
    return Next::Done;
  }
  if ((result == -EINTR || result == -EAGAIN) && ++b.tries < kMostTries)
    return Next::Again;
  finish(b, result < 0 ? static_cast<int>(-result) : b.direction == Direction::Read ? kEndOfFile : ENOSPC, at, rest);
  return Next::Done;
}

void Transfers::finish(const Block &b, int fault, uint64_t offset, uint64_t bytes) {
  Lock lock(mutex);
  Transfer &t = slots[b.transfer];
  --t.blocks;
  if (fault != kNone && t.fault == kNone) {
    t.fault = fault;
    t.faultOffset = offset;
    t.faultBytes = bytes;
  }
  if (t.fault != kNone && t.cut < t.bytes) {
    // No more of it is tried. What is cut in part is the first of its queue.
    t.cut = t.bytes;
    ++queues[static_cast<int>(t.direction)].first;
  }
  if (t.blocks || t.cut < t.bytes)
    return;
  t.isDone = true;
  traceSpan(t.direction == Direction::Read ? Lane::Reads : Lane::Writes, t.what, -1, static_cast<int64_t>(t.bytes), t.began);
  unfinishedWrites -= t.direction == Direction::Write;
  finished.notify_all();
}

} // namespace zccrt
