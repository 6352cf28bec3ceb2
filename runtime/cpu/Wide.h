// Calls on 16-bit floats where nothing computes in them: operands are copied to f32 in scratch, the kernel runs on those, results
// are rounded back.
#pragma once

#include "runtime/cpu/Number.h"
#include "runtime/zccrt.h"
#include <algorithm>
#include <optional>

namespace zccrt::cpu {

/// Whether this machine and its oneDNN multiply matrices of such elements directly. Where bf16 is
/// only emulated, f32 is five times as fast.
bool computesNatively(int32_t elem);

/// What tests answer in its place: oneDNN emulates 16-bit instructions that the processor lacks.
extern std::optional<bool> nativeInTests;

/// Whether the call is one for the functions below: 16-bit floats, and `native` does not hold.
bool needsWide(const zccrt_call *c, bool native);

/// Rounds f32 to 16-bit floats.
void narrowRow(const float *from, Bf16 *to, int64_t n);
void narrowRow(const float *from, F16 *to, int64_t n);

/// A kernel's functions for the f32 call that stands for `c`.
void wideRun(char *arena, const zccrt_call *c, zccrt_kernel run, zccrt_workspace workspace);
int64_t wideWorkspace(const zccrt_call *c, zccrt_workspace workspace);

/// Rows of a block that a product [m, k] [k, n] of such matrices is computed in, or 0: all at once. The f32 copies of a block
/// of `a` and `y` are still in the cache when they are read; 128 rows are what a product wants at least.
inline int64_t wideBlockRows(int64_t m, int64_t k, int64_t n) {
  constexpr int64_t kElements = 2 << 20;
  int64_t most = std::max<int64_t>(128, kElements / std::max<int64_t>(1, k + n));
  int64_t blocks = (m + most - 1) / most;
  return blocks > 1 ? (m + blocks - 1) / blocks : 0;
}

/// The same for matmul, whose large operand and result are converted by blocks of rows.
int64_t wideProductWorkspace(const zccrt_call *c, zccrt_workspace workspace);
void wideProductRun(char *arena, const zccrt_call *c, zccrt_kernel run, zccrt_workspace workspace);

} // namespace zccrt::cpu
