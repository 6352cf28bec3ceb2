// Counts what the program allocates by new; in a file of its own, so that no call is inlined.
#include <atomic>
#include <cstdlib>
#include <new>

std::atomic<long> allocations;

#ifndef ZCC_SANITIZED // sanitizers have operators of their own; nothing is counted under them
void *operator new(size_t bytes) {
  ++allocations;
  if (void *p = malloc(bytes ? bytes : 1))
    return p;
  throw std::bad_alloc();
}
void operator delete(void *p) noexcept { free(p); }
void operator delete(void *p, size_t) noexcept { free(p); }
#endif
