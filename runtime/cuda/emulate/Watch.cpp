// Looks at every access of the threads of kernels. Those are compiled as for the thread sanitizer, whose functions are found
// here: one is called in front of each access. Of each byte is known who wrote and who read it last. Two threads of a grid that
// touch the same byte, and not both read it, race unless they are of one block and a barrier of it, or of their warp, is between.
#include "runtime/cuda/emulate/Watch.h"
#include "runtime/Elem.h"
#include "runtime/Fail.h"
#include "runtime/cuda/emulate/Emulate.h"
#include <link.h>
#include <mutex>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

namespace zccrt::emulate {

struct Watched {
  const char *kernel;
  std::string node;
  std::vector<Touched> touched; ///< empty: not known
};

namespace {

// ---- who touched a byte

/// Whose accesses one record stands for.
enum class By : uint8_t { Thread, Warp, Block, Grid };

struct Access {
  uint64_t era = 0; ///< number of the grid, or of the block for memory that a block shares; 0: nobody's
  uint32_t block = 0, round = 0, warpRound = 0;
  uint16_t thread = 0;
  By by = By::Thread;

  bool isBefore(const Access &a) const {
    if (era != a.era)
      return true;
    if (by == By::Grid || block != a.block)
      return false;
    if (round != a.round)
      return true;
    if (by == By::Block || thread / 32 != a.thread / 32)
      return false;
    return warpRound != a.warpRound || (by == By::Thread && thread == a.thread);
  }
  /// Stands for `a` besides, and for as much of what it stood for as matters: what is not before a later access.
  void add(const Access &a) {
    if (era != a.era || (by != By::Grid && block == a.block && round != a.round))
      *this = a;
    else if (by == By::Grid || block != a.block)
      by = By::Grid;
    else if (by == By::Block || thread / 32 != a.thread / 32)
      by = By::Block;
    else if (warpRound != a.warpRound)
      *this = a;
    else if (thread != a.thread)
      by = By::Warp;
  }
};

struct Byte {
  Access written, read;
};

/// Memory, and what is known of its bytes.
struct Memory {
  const char *begin = nullptr;
  int64_t bytes = 0;
  Byte *known = nullptr;

  Memory(const char *begin, int64_t bytes) : begin(begin), bytes(bytes) {
    void *room =
        mmap(nullptr, size_t(bytes) * sizeof(Byte), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED)
      failErrno("cannot get memory to watch %lld bytes", static_cast<long long>(bytes));
    known = static_cast<Byte *>(room); // zeros: nobody's
  }
  bool holds(const char *p, int64_t n) const { return p >= begin && p + n <= begin + bytes; }
  bool isNear(const char *p, int64_t n, int64_t margin) const { return p + n > begin - margin && p < begin + bytes + margin; }
};

/// The thread-local variables of the program on this thread of the host: what blocks share is among them.
Memory ownVariables() {
  std::pair<const char *, int64_t> found = {};
  dl_iterate_phdr(
      [](dl_phdr_info *info, size_t, void *out) {
        for (int i = 0; i < info->dlpi_phnum; ++i)
          if (info->dlpi_phdr[i].p_type == PT_TLS)
            *static_cast<std::pair<const char *, int64_t> *>(out) = {static_cast<char *>(info->dlpi_tls_data),
                                                                     int64_t(info->dlpi_phdr[i].p_memsz)};
        return 1; // the first one is the program
      },
      &found);
  return Memory(found.first, found.second);
}

// ---- the watcher

enum class Does { Read, Write };

class AccessWatcher : public Watcher {
public:
  ~AccessWatcher() { watcher = nullptr; } // a device may be freed later
  void addMemory(const char *begin, int64_t bytes) override {
    std::lock_guard lock(mutex);
    device.emplace_back(begin, bytes);
  }
  void dropMemory(const char *begin) override {
    std::lock_guard lock(mutex);
    std::erase_if(device,
                  [&](const Memory &m) { return m.begin == begin && munmap(m.known, size_t(m.bytes) * sizeof(Byte)) == 0; });
  }
  std::shared_ptr<const Watched> launch(int stream, const char *kernel) override {
    constexpr int kCompute = 0;
    auto w = std::make_shared<Watched>(stream == kCompute ? next : Watched());
    w->kernel = kernel;
    return w;
  }
  void run(const Watched &w, const std::function<void()> &blocks) override {
    std::lock_guard lock(mutex); // grids of other streams come before or behind
    ++grids;
    now = &w;
    isWatching = true;
    blocks();
    isWatching = false;
  }

  void access(const char *p, int64_t bytes, Does what);

  Watched next; ///< what is queued from now on
  const Watched *now = nullptr;
  static thread_local bool isWatching;

private:
  std::mutex mutex;
  std::vector<Memory> device;
  uint64_t grids = 0;

  void onDevice(Memory &m, const char *p, int64_t bytes, Does what);
  void shared(Memory &m, const char *p, int64_t bytes, Does what);
  void expectTouched(const char *p, int64_t bytes, Does what) const;
  void note(Byte &b, const Access &a, Does what, const char *where);
};

thread_local bool AccessWatcher::isWatching = false;
AccessWatcher theWatcher;

const char *verb(Does what) { return what == Does::Read ? "reads" : "writes"; }

/// "thread 3 of block 0"
std::string text(int thread, int64_t block) { return "thread " + std::to_string(thread) + " of block " + std::to_string(block); }

[[noreturn]] void refuse(const std::string &what) {
  Position here = position();
  const Watched &w = *theWatcher.now;
  zccrt_fail(w.node.c_str(), "kernel '%s': %s %s", w.kernel, text(here.thread, here.block).c_str(), what.c_str());
}

void AccessWatcher::note(Byte &b, const Access &a, Does what, const char *where) {
  bool isAfterWrites = b.written.isBefore(a), isAfterReads = what == Does::Read || b.read.isBefore(a);
  if (!isAfterWrites || !isAfterReads) {
    const Access &other = isAfterWrites ? b.read : b.written;
    std::string who = other.by == By::Thread ? text(other.thread, other.block) : "several threads";
    refuse(std::string(verb(what)) + ' ' + where + " that " + who + (isAfterWrites ? " read" : " wrote") +
           (other.by != By::Thread   ? ", with no barrier between"
            : other.block == a.block ? ", with no barrier between"
                                     : ""));
  }
  if (what == Does::Write)
    b.written = a;
  else
    b.read.add(a);
}

static Access accessHere(uint64_t era) {
  Position p = position();
  return {era, uint32_t(p.block), p.round, p.warpRound, uint16_t(p.thread), By::Thread};
}

void AccessWatcher::expectTouched(const char *p, int64_t bytes, Does what) const {
  bool isOperand = false;
  for (const Touched &t : now->touched)
    if (p >= t.begin && p + bytes <= t.begin + t.bytes) {
      if (what == Does::Read || t.isResult)
        return;
      isOperand = true;
    }
  if (!now->touched.empty())
    refuse(std::string(verb(what)) + " memory that is " + (isOperand ? "an operand's" : "neither an operand's nor a result's"));
}

void AccessWatcher::onDevice(Memory &m, const char *p, int64_t bytes, Does what) {
  if (!m.holds(p, bytes))
    refuse(std::string(verb(what)) + " beside the device's memory");
  expectTouched(p, bytes, what);
  Access a = accessHere(grids << 32);
  for (int64_t i = 0; i < bytes; ++i)
    note(m.known[p - m.begin + i], a, what, "device memory");
}

void AccessWatcher::shared(Memory &m, const char *p, int64_t bytes, Does what) {
  for (const void *builtin : {(const void *)&threadIdx, (const void *)&blockIdx, (const void *)&blockDim, (const void *)&gridDim})
    if (p >= builtin && p < static_cast<const char *>(builtin) + sizeof(dim3))
      return;
  Access a = accessHere(grids << 32 | (uint32_t(position().block) + 1));
  for (int64_t i = 0; i < bytes; ++i) {
    Byte &b = m.known[p - m.begin + i];
    if (what == Does::Read && b.written.era != a.era)
      refuse("reads shared memory that nobody of the block has written");
    note(b, a, what, "shared memory");
  }
}

void AccessWatcher::access(const char *p, int64_t bytes, Does what) {
  static const int64_t kPage = sysconf(_SC_PAGESIZE);
  static thread_local Memory own = ownVariables();
  if (own.isNear(p, bytes, 0)) // first: a thread's variables may lie right beside the device's memory
    return shared(own, p, bytes, what);
  for (Memory &m : device)
    if (m.isNear(p, bytes, kPage))
      return onDevice(m, p, bytes, what);
}

} // namespace

void touch(const char *node, std::initializer_list<Touched> what) { theWatcher.next = {"", node, what}; }

/// From its first to its last element.
static Touched rangeOf(char *arena, const zccrt_tensor &t, bool isResult) {
  int64_t first = 0, last = 0, size = 0;
  for (int a = 0; a < t.ndim; ++a)
    (t.strides[a] < 0 ? first : last) += (t.dims[a] - 1) * t.strides[a];
  size = elemBytes(t.elem);
  return {arena + t.offset + first * size, (last - first + 1) * size, isResult};
}

void touch(char *arena, const zccrt_call *c) {
  theWatcher.next = {"", c->node ? c->node : "", {}};
  for (int i = 0; i < c->nin + c->nout; ++i)
    if (c->t[i].offset >= 0)
      theWatcher.next.touched.push_back(rangeOf(arena, c->t[i], i >= c->nin));
  if (c->scratch >= 0)
    theWatcher.next.touched.push_back({arena + c->scratch, c->scratch_bytes, true});
}

static void tell(const void *p, int64_t bytes, Does what) {
  if (AccessWatcher::isWatching)
    theWatcher.access(static_cast<const char *>(p), bytes, what);
}

} // namespace zccrt::emulate

// ---- what compilers call

using namespace zccrt::emulate;

extern "C" {
void __tsan_init() { watcher = &theWatcher; }
void __tsan_func_entry(void *) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void **, void *) {}
void __tsan_vptr_read(void **) {}
#define ZCC_ACCESS(BYTES)                                                                                                        \
  void __tsan_read##BYTES(void *p) { tell(p, BYTES, Does::Read); }                                                               \
  void __tsan_write##BYTES(void *p) { tell(p, BYTES, Does::Write); }                                                             \
  void __tsan_unaligned_read##BYTES(void *p) { tell(p, BYTES, Does::Read); }                                                     \
  void __tsan_unaligned_write##BYTES(void *p) { tell(p, BYTES, Does::Write); }
ZCC_ACCESS(1)
ZCC_ACCESS(2)
ZCC_ACCESS(4)
ZCC_ACCESS(8)
ZCC_ACCESS(16)
#undef ZCC_ACCESS
void __tsan_read_range(void *p, unsigned long bytes) { tell(p, int64_t(bytes), Does::Read); }
void __tsan_write_range(void *p, unsigned long bytes) { tell(p, int64_t(bytes), Does::Write); }

void *__tsan_memcpy(void *to, const void *from, unsigned long bytes) {
  tell(from, int64_t(bytes), Does::Read);
  tell(to, int64_t(bytes), Does::Write);
  return std::memcpy(to, from, bytes);
}
void *__tsan_memmove(void *to, const void *from, unsigned long bytes) {
  tell(from, int64_t(bytes), Does::Read);
  tell(to, int64_t(bytes), Does::Write);
  return std::memmove(to, from, bytes);
}
void *__tsan_memset(void *to, int byte, unsigned long bytes) {
  tell(to, int64_t(bytes), Does::Write);
  return std::memset(to, byte, bytes);
}

/// By -fsanitize=bounds: an index of an array of known length.
void __ubsan_handle_out_of_bounds(void *, void *index) {
  if (AccessWatcher::isWatching)
    refuse("goes to index " + std::to_string(int64_t(index)) + " of an array that is shorter");
}
}
