// Puts files, transfers and engine together.
#include "runtime/nvme/Nvme.h"
#include "runtime/Fail.h"
#include "runtime/nvme/Transfers.h"
#include <algorithm>

namespace zccrt {

// A block's call keeps a thread; more than these gain nothing (16 blocks of 1 MiB fill the queue of any one disk).
static constexpr unsigned kMostThreads = 16;

static const NvmeOptions &checked(const NvmeOptions &o) {
  if (o.paths.empty())
    fail("there is no folder for the swap file; name one on a fast disk");
  if (!o.bytes || o.bytes % kNvmePage || !o.blockBytes || o.blockBytes % kNvmePage || o.blockBytes > 1u << 30)
    fail("internal: a swap file's bytes and its blocks' are multiples of %llu, blocks up to 1 GiB",
         static_cast<unsigned long long>(kNvmePage));
  if (!o.depth || o.depth > 1024 || !o.threads || !o.transfers || !o.mostAtOnce)
    fail("internal: a depth of 1 to 1024 blocks, at least one thread and one transfer");
  return o;
}

struct Nvme::Parts {
  explicit Parts(const NvmeOptions &o)
      : files(checked(o).paths, o.bytes, o.blockBytes, o.direct), transfers(o, files), notes(files.notes) {
    const bool isAuto = o.engine == NvmeEngine::Auto;
    std::string why;
    // Through the page cache io_uring would only hand the blocks to threads of its own.
    if (o.engine == NvmeEngine::Uring || (isAuto && files.areDirect()))
      engine = startUring(transfers, o, why);
    if (engine) {
      kind = NvmeEngine::Uring;
      return;
    }
    if (o.engine == NvmeEngine::Uring)
      fail("the system refuses io_uring: %s", why.c_str());
    const unsigned threads = std::min(kMostThreads, o.depth * static_cast<unsigned>(o.paths.size()));
    if (!why.empty())
      notes.push_back(format("the system refuses io_uring (%s); %u threads read and write the swap file", why.c_str(), threads));
    engine = startThreads(transfers, threads);
  }

  SwapFiles files;
  Transfers transfers;
  std::vector<std::string> notes;
  NvmeEngine kind = NvmeEngine::Threads;
  std::unique_ptr<BlockEngine> engine; // destroyed first
};

Nvme::Nvme(const NvmeOptions &o) : parts(std::make_unique<Parts>(o)) {}
Nvme::~Nvme() = default;

NvmeTicket Nvme::read(uint64_t offset, void *to, uint64_t bytes, const char *what) {
  NvmeTicket t = parts->transfers.start(Direction::Read, offset, static_cast<char *>(to), bytes, what);
  parts->engine->wake();
  return t;
}

NvmeTicket Nvme::write(uint64_t offset, const void *from, uint64_t bytes, const char *what) {
  // A write's memory is only read from.
  char *memory = static_cast<char *>(const_cast<void *>(from));
  NvmeTicket t = parts->transfers.start(Direction::Write, offset, memory, bytes, what);
  parts->engine->wake();
  return t;
}

void Nvme::wait(NvmeTicket t) { parts->transfers.wait(t); }
bool Nvme::isDone(NvmeTicket t) { return parts->transfers.isDone(t); }

void Nvme::flush() {
  parts->transfers.waitForWrites();
  parts->files.flush();
}

NvmeTraffic Nvme::traffic() const { return parts->transfers.traffic(); }
const std::vector<std::string> &Nvme::notes() const { return parts->notes; }
NvmeEngine Nvme::engine() const { return parts->kind; }
bool Nvme::isRegistered() const { return parts->engine->isRegistered(); }

std::vector<int> Nvme::descriptors() const {
  std::vector<int> out;
  for (const SwapFiles::File &f : parts->files.files())
    out.push_back(f.fd);
  return out;
}

} // namespace zccrt
