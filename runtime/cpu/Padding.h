// Where the elements of a padded axis come from.
#pragma once

#include "runtime/cpu/Call.h"
#include "runtime/cpu/KernelMath.h"

namespace zccrt::cpu {

enum class PadMode { Constant, Reflect, Edge, Wrap };

inline PadMode padMode(const zccrt_call *c) {
  const char *m = attrString(c, "mode", "constant");
  if (!strcmp(m, "constant"))
    return PadMode::Constant;
  if (!strcmp(m, "reflect"))
    return PadMode::Reflect;
  if (!strcmp(m, "edge"))
    return PadMode::Edge;
  if (!strcmp(m, "wrap"))
    return PadMode::Wrap;
  zccrt_fail(c->node, "unknown padding mode '%s'", m);
}

/// Which element of an axis of n lies at position i, counted from the axis's start; -1: none.
ZCC_ANYWHERE inline int64_t padSource(PadMode mode, int64_t i, int64_t n) {
  if (i >= 0 && i < n)
    return i;
  switch (mode) {
  case PadMode::Constant:
    return -1;
  case PadMode::Edge:
    return i < 0 ? 0 : n - 1;
  case PadMode::Wrap:
    return (i % n + n) % n;
  case PadMode::Reflect:
    break;
  }
  if (n == 1)
    return 0;
  int64_t period = 2 * (n - 1), r = (i % period + period) % period;
  return r < n ? r : period - r;
}

} // namespace zccrt::cpu
