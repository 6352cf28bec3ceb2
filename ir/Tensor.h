// Whole tensors of the compiler: what the interpreter computes with, and what constants hold.
#pragma once

#include "ir/Graph.h"

namespace zcc {

/// Row-major. Floats of every width are held as double (Compute::F64) or rounded to float after each operator (Compute::F32);
/// integers and bools as int64_t.
struct Tensor {
  Type type;
  std::vector<double> f;  ///< if isFloat(type.elem)
  std::vector<int64_t> i; ///< otherwise
  Tensor() = default;
  explicit Tensor(Type t);
  bool isFloat() const { return zcc::isFloat(type.elem); }
  int64_t count() const { return type.count(); }
};

/// Elements of a `constant` node, and of a constant whose values stand in the text; larger ones are data of the module.
constexpr int64_t kMostInline = 8;

enum class Compute { F32, F64 };

/// Rounds a value to what `e` can hold (f32, f16, bf16, integer wrap).
double roundTo(Elem e, double v);
/// Makes all values ones that the element can hold. Compute::F64 keeps the precision of floats.
void roundAll(Tensor &t, Compute c);

/// Whether all elements are the same bits.
bool isSplat(const Tensor &t);

/// Elements at, at + 1, ... of a tensor become those of `to` from `begin` on; both are floats, or neither.
void copyElements(const Tensor &from, int64_t at, Tensor &to, int64_t begin, int64_t count);

Tensor tensorFromBytes(const Type &t, llvm::StringRef bytes);
std::string tensorToBytes(const Tensor &t);
/// Floats of a tensor in another element.
std::string convertedBytes(llvm::StringRef bytes, const Type &from, Elem to);

} // namespace zcc
