// The weights' gradient of a convolution of one group as products of the result's gradient with columns of the input: what each
// tap of each channel reads, a row of pixels. The calls are conv_grad_weight's.
#pragma once

#include "runtime/cpu/ConvShape.h"
#include "runtime/cpu/Dnnl.h"

namespace zccrt::cpu {

/// Of f32, of less workspace (in bytes) than a primitive's.
int64_t columnsWorkspace(const ConvShape &s, int threads);
void columnsGradWeight(char *arena, const zccrt_call *c, char *scratch);

/// Of 16-bit floats that the machine multiplies: one product for all pixels of all images.
class ColumnProduct {
public:
  ColumnProduct(const ConvShape &s, int32_t elem);
  /// Makes the primitive.
  void prepare();
  int64_t scratchBytes() const;
  void run(char *arena, const zccrt_call *c, char *scratch);

private:
  ConvShape shape_;
  std::vector<int32_t> reads_; ///< by tap and pixel: the element of a channel, -1: none
  dnnl::matmul::primitive_desc desc_;
  Primitive product_;
  int64_t gradBytes_, columnBytes_; ///< of what is laid out: [filters, pixels], [channels * taps, pixels]
};

} // namespace zccrt::cpu
