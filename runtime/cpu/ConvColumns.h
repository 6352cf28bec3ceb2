// Convolutions of one group as products with columns of the input: what each tap of each channel reads, a row of pixels.
#pragma once

#include "runtime/cpu/ConvShape.h"
#include "runtime/cpu/Dnnl.h"

namespace zccrt::cpu {

/// Whether a table of what is read is small, and its entries are 32 bits: what FewPixels and ColumnProduct need.
bool fitsTable(const ConvShape &s);

/// The weights' gradient in f32, of less workspace (in bytes) than a primitive's. The call is conv_grad_weight's.
class BlockedGrad {
public:
  explicit BlockedGrad(const ConvShape &s);
  static int64_t scratchBytes(const ConvShape &s, int threads);
  void run(char *arena, const zccrt_call *c, char *scratch) const;

private:
  ConvShape shape_;
  std::vector<int32_t> reads_; ///< as readBy() has it, where lines of the result are short; else empty
};

/// The convolution and its input's gradient in f32, where all images together have few pixels: the weights, of which there is
/// more than of all else, are read as they lie. The calls are conv's and conv_grad_input's.
class FewPixels {
public:
  explicit FewPixels(const ConvShape &s);
  static int64_t scratchBytes(ConvKind kind, const ConvShape &s, int threads);
  void run(ConvKind kind, char *arena, const zccrt_call *c, char *scratch) const;

private:
  ConvShape shape_;
  std::vector<int32_t> reads_; ///< as readBy() has it
};

/// The weights' gradient of 16-bit floats that the machine multiplies: one product for all pixels of all images, whose channels
/// may be in blocks.
class ColumnProduct {
public:
  ColumnProduct(const ConvShape &s, int32_t elem, int threads);
  /// Makes the primitive.
  void prepare();
  int64_t scratchBytes() const;
  void run(char *arena, const zccrt_call *c, char *scratch);

private:
  ConvShape shape_;
  std::vector<int32_t> reads_; ///< as readBy() has it
  dnnl::matmul::primitive_desc desc_;
  Primitive product_;
  int64_t gradBytes_, columnBytes_; ///< of what is laid out: [filters, pixels], [channels * taps, pixels]
  int64_t channelBytes_, threads_;  ///< of one channel that is taken out of its block, which each thread does
};

} // namespace zccrt::cpu
