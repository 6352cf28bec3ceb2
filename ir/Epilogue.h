// A matrix product whose result nobody reads but a kernel, and that kernel, its epilogue: one node.
//
//   kernel @k3(%a0 : f32[8x64], %a1 : f32[64]) -> (f32[8x64]) { ... }
//   ...
//   %y = fused_matmul @k3 %x, %w, %bias : f32[8x64]
//
// The kernel's argument `product` is matmul(%x, %w), in any dims of as many elements; its others are the operands behind the
// factors. What lies between the two is the target's: the product may never be in memory. Where it is, the note `product_in` says
// in which result's memory; without it that is the workspace.
#pragma once

#include "ir/Op.h"

namespace zcc {

/// What the kernel of a node is given: its operands; in the place of a product nullptr.
llvm::SmallVector<Value *, 4> kernelOperands(const Node &n);
/// Of a matrix product itself, whatever a kernel makes of it.
Type productType(const Node &n);
/// The operands of a matrix product itself.
inline llvm::ArrayRef<Value *> productOperands(const Node &n) {
  return n.op->feedsKernel ? n.operands().take_front(2) : n.operands();
}

} // namespace zcc
