#include "runtime/nvme/PageSum.h"
#define XXH_INLINE_ALL
#include <xxhash.h>

using namespace zccrt;

uint32_t zccrt::pageSumAnywhere(const char *page) { return static_cast<uint32_t>(XXH3_64bits(page, kNvmePage)); }

#ifdef __x86_64__
PageSum zccrt::pageSum() { return __builtin_cpu_supports("avx2") ? pageSumAvx2 : pageSumAnywhere; }
#else
PageSum zccrt::pageSum() { return pageSumAnywhere; }
#endif
