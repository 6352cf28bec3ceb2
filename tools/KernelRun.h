// One call of a kernel of the runtime over memory of its own, to be timed as a step calls it.
#pragma once

#include "runtime/zccrt.h"
#include "llvm/ADT/ArrayRef.h"
#include <string>
#include <vector>

namespace zcc {

/// Tensors are added in the order of the call, operands first; they are dense and hold small numbers.
class KernelRun {
public:
  using Shape = std::vector<int64_t>;

  KernelRun(const char *kernel, int32_t elem);
  std::vector<double> seconds; ///< of a call, as measured each time

  KernelRun &add(const Shape &dims) { return add(dims, elem_); }
  KernelRun &add(const Shape &dims, int32_t elem);
  /// A matrix that lies with its columns one after the other.
  KernelRun &addTransposed(int64_t rows, int64_t columns);
  KernelRun &absent();
  /// What is added from here on.
  KernelRun &results();
  KernelRun &ints(const char *name, Shape v);
  /// Of a convolution: a square window, padded by half of it.
  KernelRun &window(int64_t extent, int64_t stride) {
    const Shape half{extent / 2, extent / 2};
    return ints("strides", {stride, stride}).ints("pads_lo", half).ints("pads_hi", half);
  }
  /// In which of its ways a library computes it; "": by the kernel's own rule.
  KernelRun &way(std::string w);

  int64_t bytes() const { return used_; } ///< of all tensors
  const char *kernel() const { return def_->name; }
  /// f(call), which has no memory.
  template <class F> auto withCall(int threads, F f) const {
    std::vector<zccrt_attr> attrs;
    zccrt_call c = call(threads, attrs);
    return f(&c);
  }

private:
  friend void measureInTurn(llvm::MutableArrayRef<KernelRun> runs, int threads, double limit, int rounds);
  zccrt_call call(int threads, std::vector<zccrt_attr> &attrs) const;
  int64_t reserve(int64_t bytes);
  void fill(char *arena) const;

  int32_t elem_;
  const zccrt_kernel_def *def_ = nullptr;
  int operands_ = 0;
  int64_t used_ = 64;
  std::string way_;
  std::vector<zccrt_tensor> tensors_;
  std::vector<std::pair<const char *, Shape>> lists_; ///< attributes
};

/// Runs that differ in their ways at most, `limit` seconds each in every round: on data that no cache holds, one call after the
/// other, what a call takes in the middle of them.
void measureInTurn(llvm::MutableArrayRef<KernelRun> runs, int threads, double limit, int rounds = 1);

} // namespace zcc
