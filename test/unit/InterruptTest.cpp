// Signals that come while the stack's register points to other memory, as that of oneDNN's sgemm does.
#include "runtime/Interrupt.h"
#include <csignal>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <vector>

namespace interrupt_test {

using namespace zccrt;

#ifdef __x86_64__
/// Sends a signal to this process with the stack's register at `top`.
static void sendFrom(char *top, int number) {
  long call = SYS_kill;
  asm volatile("mov %%rsp, %%rbx\n\tmov %[top], %%rsp\n\tsyscall\n\tmov %%rbx, %%rsp"
               : "+a"(call)
               : "D"(long(getpid())), "S"(long(number)), [top] "r"(top)
               : "rbx", "rcx", "r11", "memory");
}

TEST(Interrupt, HandlersLeaveMemoryBelowTheStackAlone) {
  struct sigaction before;
  sigaction(SIGUSR1, nullptr, &before);
  takeSaveSignals();
  std::vector<char> memory(1 << 16, 'x');
  const int seen = saveSignalsSeen();
  sendFrom(memory.data() + memory.size() / 2, SIGUSR1);
  EXPECT_EQ(saveSignalsSeen(), seen + 1);
  EXPECT_EQ(memory, std::vector<char>(memory.size(), 'x'));
  sigaction(SIGUSR1, &before, nullptr);
}
#endif

TEST(Interrupt, EveryHandlerHasItsOwnStack) {
  constexpr int kNumbers[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR2};
  struct sigaction before[4], now;
  for (int i = 0; i < 4; ++i)
    sigaction(kNumbers[i], nullptr, &before[i]);
  onSignals(OnSignal::FinishStep);
  for (int i = 0; i < 4; ++i) {
    sigaction(kNumbers[i], &before[i], &now);
    if (before[i].sa_handler != SIG_IGN) {
      EXPECT_TRUE(now.sa_flags & SA_ONSTACK) << kNumbers[i];
    }
  }
  stack_t stack;
  sigaltstack(nullptr, &stack);
  EXPECT_FALSE(stack.ss_flags & SS_DISABLE);
}

} // namespace interrupt_test
