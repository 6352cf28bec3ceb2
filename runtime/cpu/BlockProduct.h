// Products of small blocks of 16-bit floats, summed in f32, by oneDNN's matmul primitive: inside of a kernel that has the
// threads.
#pragma once

#include "runtime/cpu/Dnnl.h"
#include <compare>
#include <deque>

namespace zccrt::cpu {

/// One row-major factor or its transpose, as it is stored.
struct BlockFactor {
  bool transposed;
  int64_t ld;
  auto operator<=>(const BlockFactor &) const = default;
};

/// y[m,n] = a[m,k] b[k,n], or added to y; a and b of `elem`, y of f32.
struct BlockForm {
  int32_t elem;
  int64_t m, n, k;
  BlockFactor a, b;
  int64_t ldy;
  bool adds;
  auto operator<=>(const BlockForm &) const = default;
};

/// The primitive of a form. Made once a process, for all kernels: the blocks of all layers of a model are alike.
class BlockProduct {
public:
  static BlockProduct &of(const BlockForm &form);
  /// To be run by threads [0, threads). Before any of them runs it.
  void prepare(int threads);
  /// Of scratch that a run needs.
  int64_t bytes() const { return bytes_; }
  /// On this thread alone, which is number `thread`.
  void run(int thread, const void *a, const void *b, float *y, char *scratch);

  explicit BlockProduct(const BlockForm &form);

private:
  dnnl::matmul::primitive_desc desc_;
  int64_t bytes_;
  std::deque<Primitive> ofThread_; ///< arguments are bound to a primitive's memory objects
};

} // namespace zccrt::cpu
