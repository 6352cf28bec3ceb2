// The engine where io_uring is refused: threads that each move one block at a time.
#include "runtime/Environment.h"
#include "runtime/Fail.h"
#include "runtime/nvme/Transfers.h"
#include <cerrno>
#include <system_error>
#include <thread>
#include <unistd.h>

namespace zccrt {

namespace {

class ThreadEngine : public BlockEngine {
public:
  ThreadEngine(Transfers &t, unsigned count) : transfers(t) {
    try {
      for (unsigned i = 0; i < count; ++i)
        threads.emplace_back([this] { run(); });
    } catch (const std::system_error &e) { // some will do
      if (threads.empty())
        fail("cannot start a thread for the swap file: %s", e.code().message().c_str());
    }
  }
  ~ThreadEngine() override {
    transfers.stop();
    for (std::thread &t : threads)
      t.join();
  }

private:
  void run() {
    useAllCores();
    while (std::optional<Block> b = transfers.takeOrWait())
      while (transfers.settle(*b, move(*b)) == Transfers::Next::Again)
        ;
  }

  int64_t move(const Block &b) const {
    const int fd = transfers.files.files()[b.file].fd;
    char *memory = b.memory + b.moved;
    const uint64_t bytes = transfers.request(b);
    const auto at = static_cast<off_t>(b.fileOffset + b.moved);
    const ssize_t n = b.direction == Direction::Read ? pread(fd, memory, bytes, at) : pwrite(fd, memory, bytes, at);
    return n < 0 ? -errno : n;
  }

  Transfers &transfers;
  std::vector<std::thread> threads;
};

} // namespace

std::unique_ptr<BlockEngine> startThreads(Transfers &t, unsigned threads) { return std::make_unique<ThreadEngine>(t, threads); }

} // namespace zccrt
