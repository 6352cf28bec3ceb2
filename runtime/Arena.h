// The arena: one buffer that holds every tensor of the program at offsets fixed when it was compiled.
#pragma once

#include <cstdint>

namespace zccrt {

class Arena {
public:
  /// Maps `bytes` of zeros, in huge pages where the system gives them, and touches every page with
  /// the threads that will use them. Throws a Failure if there is not enough memory.
  explicit Arena(int64_t bytes);
  ~Arena();
  Arena(const Arena &) = delete;
  Arena &operator=(const Arena &) = delete;

  char *base() const { return start; }
  int64_t bytes() const { return size; }

private:
  void *mapping;
  int64_t mappedBytes;
  char *start;
  int64_t size;
};

} // namespace zccrt
