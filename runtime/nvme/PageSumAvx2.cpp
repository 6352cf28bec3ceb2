// Nothing but the hash is included here: what other files define, too, would be for AVX2 in one of them.
#ifdef __x86_64__
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#else
#pragma GCC target("avx2")
#endif
#include "runtime/nvme/PageSum.h"
#include <immintrin.h>
#define XXH_VECTOR XXH_AVX2
#define XXH_INLINE_ALL
#include <xxhash.h>

uint32_t zccrt::pageSumAvx2(const char *page) { return static_cast<uint32_t>(XXH3_64bits(page, kNvmePage)); }
#ifdef __clang__
#pragma clang attribute pop
#endif
#endif
