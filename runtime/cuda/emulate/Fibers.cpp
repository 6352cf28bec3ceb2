// Blocks and their threads. The first thread of a block runs on a fiber; as long as threads end without having met a barrier, the
// next one runs on the same fiber, so that kernels without barriers are plain loops. A thread that has to wait keeps its fiber,
// and the threads behind it get others.
#include "runtime/Fail.h"
#include "runtime/cuda/emulate/Emulate.h"
#include <memory>
#include <sys/mman.h>
#include <vector>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif
#if defined(__SANITIZE_THREAD__)
#define ZCC_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define ZCC_THREAD_SANITIZER 1
#endif
#endif
#ifdef ZCC_THREAD_SANITIZER
#include <sanitizer/tsan_interface.h>
#endif

namespace zccrt::emulate {

namespace {

// ---- switching stacks

/// The thread sanitizer follows stacks: what is done on one of them comes before the next goes on.
#ifdef ZCC_THREAD_SANITIZER
struct Observed {
  void *fiber = __tsan_get_current_fiber();
  void begin() { fiber = __tsan_create_fiber(0); }
  void enter() const { __tsan_switch_to_fiber(fiber, 0); }
};
#else
struct Observed {
  void begin() {}
  void enter() const {}
};
#endif

#if defined(__x86_64__)
struct Context : Observed {
  void *stack = nullptr;
};

// Keeps what a callee must keep, and where the stack is.
asm(R"(
.text
.type zccrt_emulate_switch, @function
zccrt_emulate_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq (%rsi), %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size zccrt_emulate_switch, .-zccrt_emulate_switch
)");
extern "C" void zccrt_emulate_switch(void **from, void **to);

void switchStacks(Context &from, Context &to) { zccrt_emulate_switch(&from.stack, &to.stack); }

void make(Context &c, char *stack, size_t bytes, void (*entry)()) {
  void **top = reinterpret_cast<void **>(stack + bytes) - 2; // the stack is aligned as behind a call
  *top = reinterpret_cast<void *>(entry);
  c.stack = top - 6;
}
#else
struct Context : Observed {
  ucontext_t context;
};

void switchStacks(Context &from, Context &to) { swapcontext(&from.context, &to.context); }

void make(Context &c, char *stack, size_t bytes, void (*entry)()) {
  getcontext(&c.context);
  c.context.uc_stack = {stack, 0, bytes};
  c.context.uc_link = nullptr;
  makecontext(&c.context, entry, 0);
}
#endif

void switchTo(Context &from, Context &to) {
  to.enter();
  switchStacks(from, to);
}

// ---- a block

/// A launch.
struct Grid {
  const char *kernel = "";
  dim3 blocks, threads; ///< of the grid, of a block
  std::function<void()> thread;
};

constexpr size_t kStackBytes = 128 << 10;
constexpr int kLanes = 32;

/// Where threads meet: the one that comes last lets the others go on.
struct Meeting {
  int arrived = 0;
  unsigned round = 0;
};

struct Fiber {
  Context context;
  char *stack = nullptr;
  int thread = 0;
  bool isRunning = false; ///< has a thread that has not ended
  const Meeting *at = nullptr;
  unsigned round = 0;  ///< of the meeting it waits at
  unsigned parity = 0; ///< of the thread's exchanges

  bool isReady() const { return isRunning && (!at || at->round != round); }
};

struct Warp {
  Meeting meeting;
  unsigned round = 0; ///< meetings of all of its lanes
  uint64_t values[2][kLanes];
};

/// What runs blocks on one thread of the host.
class Runner {
public:
  void run(const Grid &g, int64_t number);

  void syncBlock() { meet(all, threads); }
  void syncLanes(unsigned mask) {
    Warp &w = warps[current->thread / kLanes];
    unsigned lanes = lanesOf(current->thread);
    if (meet(w.meeting, std::popcount(mask & lanes)) && (mask & lanes) == lanes)
      ++w.round;
  }
  uint64_t exchange(unsigned mask, uint64_t value, int from) {
    Warp &w = warps[current->thread / kLanes];
    uint64_t *slots = w.values[current->parity++ & 1]; // nobody is two exchanges ahead
    slots[current->thread % kLanes] = value;
    syncLanes(mask);
    return slots[from];
  }
  /// Of the thread that runs; the last group is open.
  std::vector<std::vector<LateCopy>> &late() {
    if (copies.empty())
      copies.resize(threads, std::vector<std::vector<LateCopy>>(1));
    return copies[current->thread];
  }
  int lane() const { return current->thread % kLanes; }
  Position position() const { return {block, current->thread, all.round, warps[current->thread / kLanes].round}; }

private:
  const Grid *grid = nullptr;
  int64_t block = 0;
  int threads = 0, next = 0, ended = 0;
  Meeting all;
  std::vector<Warp> warps;
  std::vector<std::vector<std::vector<LateCopy>>> copies; ///< by thread, in groups; empty: the block has none
  std::vector<std::unique_ptr<Fiber>> fibers;
  Context scheduler;
  Fiber *current = nullptr;

  static void entry();
  void work();
  void resume(Fiber &f);
  bool meet(Meeting &m, int expected);
  Fiber &fiber(size_t i);
  unsigned lanesOf(int thread) const {
    int left = threads - thread / kLanes * kLanes;
    return left >= kLanes ? ~0u : (1u << left) - 1;
  }
  void setThread(int thread) {
    const dim3 &shape = grid->threads;
    threadIdx = {unsigned(thread) % shape.x, unsigned(thread) / shape.x % shape.y, unsigned(thread) / shape.x / shape.y};
  }
};

thread_local Runner runner;

void Runner::entry() { runner.work(); }

/// A fiber: threads, one after the other.
void Runner::work() {
  while (true) {
    Fiber &f = *current;
    while (next < threads) {
      f.thread = next++;
      f.parity = 0;
      f.at = nullptr;
      f.isRunning = true;
      setThread(f.thread);
      grid->thread();
      f.isRunning = false;
      ++ended;
      if (all.arrived)
        endJob(std::string("kernel '") + grid->kernel + "': a thread ends while others of its block wait at a barrier");
    }
    switchTo(f.context, scheduler);
  }
}

Fiber &Runner::fiber(size_t i) {
  if (i < fibers.size())
    return *fibers[i];
  auto f = std::make_unique<Fiber>();
  f->stack = static_cast<char *>(
      mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0));
  if (f->stack == MAP_FAILED)
    endJob("no memory for the stacks of emulated threads");
  make(f->context, f->stack, kStackBytes, entry);
  f->context.begin();
  fibers.push_back(std::move(f));
  return *fibers.back();
}

void Runner::resume(Fiber &f) {
  current = &f;
  f.at = nullptr;
  if (f.isRunning)
    setThread(f.thread);
  switchTo(scheduler, f.context);
}

/// Whether the calling thread is the one that comes last.
bool Runner::meet(Meeting &m, int expected) {
  if (++m.arrived == expected) {
    m.arrived = 0;
    ++m.round;
    return true;
  }
  Fiber &f = *current;
  f.at = &m;
  f.round = m.round;
  switchTo(f.context, scheduler);
  return false;
}

void Runner::run(const Grid &g, int64_t number) {
  grid = &g;
  block = number;
  threads = int(g.threads.x * g.threads.y * g.threads.z);
  next = ended = 0;
  all = {};
  warps.assign((threads + kLanes - 1) / kLanes, {});
  copies.clear();
  while (ended < threads) {
    bool isStuck = true;
    size_t free = 0;
    for (; free < fibers.size() && ended < threads; ++free) {
      if (fibers[free]->isReady()) {
        resume(*fibers[free]);
        isStuck = false;
      } else if (!fibers[free]->isRunning && next < threads) {
        resume(*fibers[free]);
        isStuck = false;
      }
    }
    while (next < threads) {
      resume(fiber(fibers.size()));
      isStuck = false;
    }
    if (isStuck && ended < threads)
      endJob(std::string("kernel '") + grid->kernel + "': threads of a block wait at different barriers");
  }
}

} // namespace

Watcher *watcher = nullptr;

static void runBlock(const Grid &g, int64_t b) {
  blockDim = g.threads;
  gridDim = g.blocks;
  blockIdx = {unsigned(b % g.blocks.x), unsigned(b / g.blocks.x % g.blocks.y), unsigned(b / g.blocks.x / g.blocks.y)};
  runner.run(g, b);
}

static void runGrid(const Grid &g, const Watched *watched) {
  const int64_t blocks = int64_t(g.blocks.x) * g.blocks.y * g.blocks.z;
  if (watched)
    return watcher->run(*watched, [&] {
      for (int64_t b = 0; b < blocks; ++b)
        runBlock(g, b);
    });
#pragma omp parallel for schedule(dynamic, 4) if (blocks > 8)
  for (int64_t b = 0; b < blocks; ++b)
    runBlock(g, b);
}

/// What every GPU takes (CUDA C++ Programming Guide, "Compute Capabilities").
static bool isLegal(dim3 blocks, dim3 threads) {
  constexpr unsigned kBlocks = 0x7fffffff, kOthers = 65535, kThreads = 1024, kDeep = 64;
  return blocks.x && blocks.y && blocks.z && blocks.x <= kBlocks && blocks.y <= kOthers && blocks.z <= kOthers && threads.x &&
         threads.y && threads.z && threads.x <= kThreads && threads.y <= kThreads && threads.z <= kDeep &&
         uint64_t(threads.x) * threads.y * threads.z <= kThreads;
}

void launch(int stream, const char *kernel, dim3 blocks, dim3 threads, std::function<void()> thread) {
  if (!isLegal(blocks, threads))
    endJob(format("kernel '%s': CUDA would refuse %u x %u x %u blocks of %u x %u x %u threads", kernel, blocks.x, blocks.y,
                  blocks.z, threads.x, threads.y, threads.z));
  auto watched = watcher ? watcher->launch(stream, kernel) : nullptr;
  queue(stream, [g = Grid{kernel, blocks, threads, std::move(thread)}, watched] { runGrid(g, watched.get()); });
}

Position position() { return runner.position(); }
void syncBlock() { runner.syncBlock(); }
void syncLanes(unsigned mask) { runner.syncLanes(mask); }
uint64_t exchange(unsigned mask, uint64_t value, int from) { return runner.exchange(mask, value, from); }
int lane() { return runner.lane(); }

void addLateCopy(LateCopy c) { runner.late().back().push_back(c); }
void endLateGroup() { runner.late().emplace_back(); }
std::vector<LateCopy> lateCopies(int left) {
  auto &groups = runner.late();
  std::vector<LateCopy> out;
  for (; int(groups.size()) - 1 > left; groups.erase(groups.begin()))
    out.insert(out.end(), groups[0].begin(), groups[0].end());
  return out;
}

} // namespace zccrt::emulate
