// What every kernel needs to read its zccrt_call: tensors, attributes, scratch, threads.
#pragma once

#include "runtime/Clones.h"
#include "runtime/cpu/Parallel.h"
#include "runtime/zccrt.h"
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <omp.h>

namespace zccrt::cpu {

inline const zccrt_tensor &operand(const zccrt_call *c, int i) { return c->t[i]; }
inline const zccrt_tensor &result(const zccrt_call *c, int i) { return c->t[c->nin + i]; }
/// Whether operand i is there; optional ones are left out by a negative offset or by ending the
/// list.
inline bool hasOperand(const zccrt_call *c, int i) { return i < c->nin && c->t[i].offset >= 0; }

template <typename T> T *at(char *arena, const zccrt_tensor &t) { return reinterpret_cast<T *>(arena + t.offset); }
template <typename T> T *scratchAt(char *arena, const zccrt_call *c, int64_t bytes = 0) {
  return reinterpret_cast<T *>(arena + c->scratch + bytes);
}

/// Product of dims[from..to).
inline int64_t extent(const zccrt_tensor &t, int from, int to) {
  int64_t n = 1;
  for (int i = from; i < to; ++i)
    n *= t.dims[i];
  return n;
}
inline int64_t count(const zccrt_tensor &t) { return extent(t, 0, t.ndim); }

inline int64_t elemBytes(int32_t elem) {
  switch (elem) {
  case ZCCRT_F64:
  case ZCCRT_I64:
  case ZCCRT_U64:
    return 8;
  case ZCCRT_F32:
  case ZCCRT_I32:
  case ZCCRT_U32:
    return 4;
  case ZCCRT_F16:
  case ZCCRT_BF16:
  case ZCCRT_I16:
  case ZCCRT_U16:
    return 2;
  default:
    return 1;
  }
}

inline bool inDouble(const zccrt_call *c) { return operand(c, 0).elem == ZCCRT_F64; }
inline bool isHalf(int32_t elem) { return elem == ZCCRT_BF16 || elem == ZCCRT_F16; }

inline const zccrt_attr *findAttr(const zccrt_call *c, const char *name) {
  for (int i = 0; i < c->nattrs; ++i)
    if (!strcmp(c->attrs[i].name, name))
      return &c->attrs[i];
  return nullptr;
}
inline int64_t attrInt(const zccrt_call *c, const char *name, int64_t absent) {
  const zccrt_attr *a = findAttr(c, name);
  return a && a->ints && a->n ? a->ints[0] : absent;
}
/// An int is taken as a float, too.
inline double attrFloat(const zccrt_call *c, const char *name, double absent) {
  const zccrt_attr *a = findAttr(c, name);
  if (a && a->floats && a->n)
    return a->floats[0];
  return a && a->ints && a->n ? double(a->ints[0]) : absent;
}
inline const char *attrString(const zccrt_call *c, const char *name, const char *absent) {
  const zccrt_attr *a = findAttr(c, name);
  return a && a->str ? a->str : absent;
}
/// The i-th value of a list; a list of one value holds for every i.
inline int64_t attrAxis(const zccrt_call *c, const char *name, int i, int64_t absent) {
  const zccrt_attr *a = findAttr(c, name);
  if (!a || !a->ints || !a->n)
    return absent;
  return a->ints[a->n == 1 ? 0 : i];
}

/// Makes libraries that run on OpenMP's default team use this call's threads.
inline void useThreads(const zccrt_call *c) {
  if (omp_get_max_threads() != c->threads)
    omp_set_num_threads(c->threads);
}

/// The share of thread `thread` of `threads` in n pieces: [begin, end).
struct Share {
  int64_t begin, end;
  Share(int64_t n, int64_t thread, int64_t threads) : begin(n * thread / threads), end(n * (thread + 1) / threads) {}
};

/// Threads that pay for a loop that touches so many bytes: starting a team takes about 2 us.
inline int threadsFor(const zccrt_call *c, int64_t bytes) { return bytes < 32768 ? 1 : c->threads; }

/// Calls f with a null pointer to the C++ type of an element's size, for operators that only move
/// data.
template <typename F> void withBytes(int32_t elem, F f) {
  switch (elemBytes(elem)) {
  case 8:
    f((uint64_t *)nullptr);
    break;
  case 4:
    f((uint32_t *)nullptr);
    break;
  case 2:
    f((uint16_t *)nullptr);
    break;
  default:
    f((uint8_t *)nullptr);
    break;
  }
}

} // namespace zccrt::cpu
