// Fused kernels as C++: loops over the kernel's domain, bodies from the operators' scalar expressions.
#pragma once

#include "ir/Graph.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringMap.h"

namespace zcc {

/// Collects the kernels of a program. One C++ function per kernel and strides of its operands.
class KernelEmitter {
public:
  /// `threads`: what the parallel loops are given.
  KernelEmitter(const Module &m, int threads) : module(m), threads(threads) {}

  /// The C++ call for a fused node: "k17(A + 64, A + 0, A + 128)". `pointer` gives the expression of the address (char *) of
  /// element 0 of an operand or result. Emits the function when it is met first.
  llvm::Expected<std::string> call(const Node &fused, llvm::function_ref<std::string(const Value *)> pointer);
  /// Bytes of the arena that a call needs besides operands and results: partial sums. Plan-memory gives them
  /// an offset in the node's attribute "scratch".
  static int64_t scratchBytes(const Node &fused);
  /// One translation unit with all functions; to be compiled at -O3 with -ffp-contract=off.
  std::string source() const;
  /// The same as several translation units, of about equal length and more of them the more there is, so that they compile
  /// side by side.
  std::vector<std::string> sources() const;
  /// Their declarations.
  std::string declarations() const;

private:
  const Module &module;
  int threads;
  llvm::StringMap<std::string> symbols; ///< kernel and strides -> function
  std::vector<std::string> functions;
  std::string heads;

  std::string sourceHead() const;
};

} // namespace zcc
