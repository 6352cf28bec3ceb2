// What the programs of zcc --check-kernels say of the kernels that they queue.
#pragma once

#include "runtime/zccrt.h"
#include <initializer_list>

namespace zccrt::emulate {

/// Memory of the device that a kernel may read, and write if it is a result's or scratch.
struct Touched {
  const char *begin;
  int64_t bytes;
  bool isResult;
};

/// The kernels that are queued from now on are this node's, and touch nothing else.
void touch(const char *node, std::initializer_list<Touched> what);
/// They are the call's.
void touch(char *arena, const zccrt_call *c);

} // namespace zccrt::emulate
