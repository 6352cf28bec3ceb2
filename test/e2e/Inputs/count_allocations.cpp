// Preloaded into a program: counts what malloc and new are asked for, by the object that asks; written at the end to
// $ZCC_COUNTS.RANK as lines of "OBJECT CALLS".
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <map>
#include <new>
#include <string>

extern "C" {
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);
}

namespace {

struct Caller {
  std::atomic<void *> address;
  std::atomic<long> calls;
};
constexpr size_t kCallers = 1 << 16;
Caller callers[kCallers];

void count(void *address) {
  for (size_t i = reinterpret_cast<size_t>(address) * 0x9e3779b97f4a7c15 >> 48;; i = (i + 1) % kCallers) {
    void *none = nullptr;
    if (callers[i].address.compare_exchange_strong(none, address) || none == address) {
      ++callers[i].calls;
      return;
    }
  }
}

__attribute__((destructor)) void write() {
  std::map<std::string, long> objects;
  for (Caller &c : callers) {
    Dl_info info;
    if (long calls = c.calls.load())
      objects[dladdr(c.address.load(), &info) && info.dli_fname ? info.dli_fname : "?"] += calls;
  }
  const char *path = getenv("ZCC_COUNTS"), *rank = getenv("OMPI_COMM_WORLD_RANK");
  if (FILE *f = path && rank ? fopen((std::string(path) + "." + rank).c_str(), "w") : nullptr) {
    for (auto &[name, calls] : objects)
      fprintf(f, "%s %ld\n", name.c_str(), calls);
    fclose(f);
  }
}

void *made(void *p) {
  if (!p)
    throw std::bad_alloc();
  return p;
}

} // namespace

#define COUNT count(__builtin_return_address(0))

extern "C" {
void *malloc(size_t n) {
  COUNT;
  return __libc_malloc(n);
}
void *calloc(size_t n, size_t each) {
  COUNT;
  return __libc_calloc(n, each);
}
void *realloc(void *p, size_t n) {
  COUNT;
  return __libc_realloc(p, n);
}
void *memalign(size_t align, size_t n) {
  COUNT;
  return __libc_memalign(align, n);
}
void *aligned_alloc(size_t align, size_t n) {
  COUNT;
  return __libc_memalign(align, n);
}
int posix_memalign(void **p, size_t align, size_t n) {
  COUNT;
  *p = __libc_memalign(align, n);
  return *p ? 0 : 12; // ENOMEM
}
}

void *operator new(size_t n) {
  COUNT;
  return made(__libc_malloc(n));
}
void *operator new[](size_t n) {
  COUNT;
  return made(__libc_malloc(n));
}
void *operator new(size_t n, std::align_val_t align) {
  COUNT;
  return made(__libc_memalign(size_t(align), n));
}
void operator delete(void *p) noexcept { free(p); }
void operator delete[](void *p) noexcept { free(p); }
void operator delete(void *p, size_t) noexcept { free(p); }
void operator delete(void *p, std::align_val_t) noexcept { free(p); }
