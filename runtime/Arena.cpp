// Maps the arena, in huge pages where it is large, and touches every page.
#include "runtime/Arena.h"
#include "runtime/Elem.h"
#include "runtime/Fail.h"
#include <algorithm>
#include <sys/mman.h>

namespace zccrt {

constexpr int64_t kHugePage = 2 << 20;

double Arena::floatAt(int64_t offset, int elem, int64_t i) const {
  char value[8];
  copyFrom(value, offset + i * elemBytes(elem), elemBytes(elem));
  return zccrt::floatAt(value, elem, 0);
}

MappedArena::MappedArena(int64_t bytes) : HostArena(nullptr) {
  // A small arena takes no huge page: the plan's bytes are what is used.
  bool huge = bytes >= 8 * kHugePage;
  mappedBytes = (std::max<int64_t>(bytes, 1) + kPage - 1) / kPage * kPage + (huge ? kHugePage : 0);
  mapping = mmap(nullptr, mappedBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED)
    failErrno("cannot get %lld bytes of memory", static_cast<long long>(bytes));
  start = static_cast<char *>(mapping);
  if (huge) {
    start = reinterpret_cast<char *>((reinterpret_cast<uintptr_t>(mapping) + kHugePage - 1) / kHugePage * kHugePage);
    madvise(start, bytes, MADV_HUGEPAGE);
  }
  int64_t chunks = (bytes + kHugePage - 1) / kHugePage;
#pragma omp parallel for schedule(static)
  for (int64_t c = 0; c < chunks; ++c)
    for (int64_t at = c * kHugePage; at < std::min(bytes, (c + 1) * kHugePage); at += kPage)
      *static_cast<volatile char *>(start + at) = 0;
}

MappedArena::~MappedArena() { munmap(mapping, mappedBytes); }

} // namespace zccrt
