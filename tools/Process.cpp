// Runs a tool's body on a stack of its own and handles signals and the end of memory.
#include "tools/Process.h"
#include "runtime/StandardFiles.h"
#include "llvm/Support/ErrorHandling.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Signals.h"
#include <csignal>
#include <malloc.h>
#include <new>
#include <pthread.h>
#include <string>
#include <unistd.h>

using namespace zcc;

/// Far more than the deepest nesting that the readers take (kMostNested of frontend/onnx/LocalFunctions.h) needs in a build
/// with sanitizers. Pages that are not touched cost nothing.
static constexpr size_t kStackBytes = size_t(64) << 20;

static const char *toolName = "zcc";

/// Allocates nothing.
[[noreturn]] static void endOutOfMemory() {
  for (const char *part : {toolName, ": error: out of memory: this machine, or a limit on the process (ulimit -v, a "
                                     "control group), has no more to give\n"}) [[maybe_unused]]
    ssize_t n = write(STDERR_FILENO, part, std::char_traits<char>::length(part));
  llvm::sys::RunInterruptHandlers(); // removes unfinished files
  _exit(1);
}

namespace {
struct Call {
  int argc;
  char **argv;
  int (*body)(int, char **);
  int status;
};
} // namespace

static void *runCall(void *p) {
  Call &c = *static_cast<Call *>(p);
  c.status = c.body(c.argc, c.argv);
  return nullptr;
}

namespace {
/// The signals that a thread waits for, which all others have blocked.
struct Ending {
  sigset_t signals;
  void (*cleanUp)();
};
} // namespace

/// Waits, so that what it does then may allocate and lock, which a signal handler may not.
static void *awaitSignal(void *p) {
  const Ending &ending = *static_cast<Ending *>(p);
  int number;
  if (sigwait(&ending.signals, &number))
    return nullptr;
  ending.cleanUp();
  llvm::sys::RunInterruptHandlers(); // removes unfinished files
  signal(number, SIG_DFL);
  raise(number);
  pthread_sigmask(SIG_UNBLOCK, &ending.signals, nullptr);
  return nullptr;
}

/// A thread of its own, or the end for lack of memory.
static pthread_t startThread(size_t stack, void *(*body)(void *), void *argument) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_t thread;
  if (pthread_attr_setstacksize(&attributes, stack) || pthread_create(&thread, &attributes, body, argument))
    endOutOfMemory();
  pthread_attr_destroy(&attributes);
  return thread;
}

/// The heap grows in large steps, with few system calls. Threads have heaps of their own: plans that are tried side by side would
/// wait for one another at a common one.
static void chooseHeap() {
#ifdef __GLIBC__
  mallopt(M_TOP_PAD, 16 << 20);
#endif
}

int zcc::runTool(int argc, char **argv, int (*body)(int, char **), void (*cleanUp)()) {
  if (argc > 0)
    toolName = llvm::sys::path::filename(argv[0]).data();  // the end of a C string
  zccrt::holdStandardFiles(zccrt::UnheardErrors::AreLost); // else compilers that it starts would fail
  chooseHeap();
  std::set_new_handler(endOutOfMemory);
  llvm::install_bad_alloc_error_handler([](void *, const char *, bool) { endOutOfMemory(); });
  static Ending ending{{}, cleanUp};
  sigemptyset(&ending.signals);
  for (int s : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction now;
    if (!sigaction(s, nullptr, &now) && now.sa_handler != SIG_IGN) // as under nohup
      sigaddset(&ending.signals, s);
  }
  pthread_sigmask(SIG_BLOCK, &ending.signals, nullptr);
  Call call{argc, argv, body, 1};
  startThread(/*stack=*/size_t(1) << 20, awaitSignal, &ending);
  pthread_join(startThread(kStackBytes, runCall, &call), nullptr);
  return call.status;
}
