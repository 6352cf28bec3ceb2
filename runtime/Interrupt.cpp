// Handles signals: the first asks for an orderly end after the step, a second ends at once.
#include "runtime/Interrupt.h"
#include "runtime/Fail.h"
#include "runtime/OutFile.h"
#include <csignal>
#include <cstring>
#include <ctime>
#include <initializer_list>
#include <unistd.h>

namespace zccrt {

static volatile sig_atomic_t finishes = 0, isAwaited = 0, seen = 0, saves = 0;
static timespec seenAt;

/// timeout(1) sends a signal to the process and again to its group: within this time they are one.
constexpr double kSameSeconds = 0.1;

static double secondsSinceFirst() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec - seenAt.tv_sec + (t.tv_nsec - seenAt.tv_nsec) * 1e-9;
}

static void sayStepIsFinished() {
  constexpr char text[] = "finishing the step; once more ends the run at once\n";
  if (where.ranks == 1 && isatty(STDERR_FILENO)) [[maybe_unused]]
    ssize_t n = write(STDERR_FILENO, text, sizeof text - 1);
}

static void onSignal(int number) {
  if ((finishes || isAwaited) && !seen) {
    clock_gettime(CLOCK_MONOTONIC, &seenAt);
    seen = number;
    endDrawing();
    return sayStepIsFinished();
  }
  if (seen && secondsSinceFirst() < kSameSeconds)
    return;
  endDrawing();
  removeUnfinishedFiles();
  signal(number, SIG_DFL);
  raise(number);
}

/// Lets a function handle a signal on a stack of its own: while oneDNN's sgemm runs, the stack's register points into its own
/// memory on the heap, below which the system would write a thread's state, over whatever lies there. A process' signals are
/// the main thread's, which calls this.
static void handle(int number, void (*function)(int)) {
  static char memory[1 << 16]; // vectors and tiles take some 12 KiB
  stack_t stack = {};
  stack.ss_sp = memory;
  stack.ss_size = sizeof memory;
  sigaltstack(&stack, nullptr);
  struct sigaction action = {};
  action.sa_handler = function;
  action.sa_flags = SA_RESTART | SA_ONSTACK;
  sigaction(number, &action, nullptr);
}

void onSignals(OnSignal what) {
  finishes = what == OnSignal::FinishStep;
  for (int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR2}) {
    struct sigaction old;
    // nohup's SIGHUP stays ignored.
    bool isIgnored = sigaction(number, nullptr, &old) == 0 && old.sa_handler == SIG_IGN;
    if (number != SIGHUP || !isIgnored)
      handle(number, onSignal);
  }
}

void awaitSignal() { isAwaited = 1; }

void takeSaveSignals() {
  handle(SIGUSR1, [](int) { saves = saves + 1; });
}

int saveSignalsSeen() { return saves; }

int signalSeen() { return seen; }

const char *signalName(int number) {
  switch (number) {
  case SIGINT:
    return "SIGINT";
  case SIGTERM:
    return "SIGTERM";
  case SIGHUP:
    return "SIGHUP";
  default:
    return "SIGUSR2";
  }
}

int exitStatusOf(int number) { return 128 + (number == SIGUSR2 ? SIGTERM : number); }

} // namespace zccrt
