// What a kernel finds wrong: it notes the first of it in memory that the host reads when the kernels are through, and leaves the
// element out.
#pragma once

#include <cstdint>

namespace zccrt::cuda {

struct Fault {
  int isSet;
  long long index, axis; ///< an index, and the length of the axis that it is outside of
  const char *node;      ///< an address of the host
};

/// The process's, where kernels and the host can write.
Fault *faultMemory();

} // namespace zccrt::cuda
