// The naive interpreter: every operator as plain loops, in fp32 or fp64. The oracle for gradients, kernels and passes, and what
// folds constants.
#pragma once

#include "ir/Graph.h"
#include <map>

namespace zcc {

/// A whole tensor, row-major. Floats of every width are held as double (Compute::F64) or rounded to
/// float after each operator (Compute::F32); integers and bools as int64_t.
struct Tensor {
  Type type;
  std::vector<double> f;  ///< if isFloat(type.elem)
  std::vector<int64_t> i; ///< otherwise
  Tensor() = default;
  explicit Tensor(Type t);
  bool isFloat() const { return zcc::isFloat(type.elem); }
  int64_t count() const { return type.count(); }
};

enum class Compute { F32, F64 };

/// Rounds a value to what `e` can hold (f32, f16, bf16, integer wrap).
double roundTo(Elem e, double v);
/// Makes all values ones that the element can hold. Compute::F64 keeps the precision of floats.
void roundAll(Tensor &t, Compute c);

Tensor tensorFromBytes(const Type &t, llvm::StringRef bytes);
std::string tensorToBytes(const Tensor &t);
/// Floats of a tensor in another element.
std::string convertedBytes(llvm::StringRef bytes, const Type &from, Elem to);

/// Fills `dst` with the elements `offset + sum(i * stride)` of `src`.
void copyStrided(const Tensor &src, int64_t offset, llvm::ArrayRef<int64_t> strides, Tensor &dst);

/// Evaluates one node on given operands (nullptr for one left out).
llvm::Expected<std::vector<Tensor>> evalNode(Node &n, llvm::ArrayRef<const Tensor *> in, Compute c = Compute::F32);

/// Values of globals over calls: `assign` writes them.
using Memory = std::map<const Value *, Tensor>;
/// Runs a function. Globals not in `memory` are taken from their Init (files read, zero, splat;
/// random inits drawn). Collectives need ranks == 1, where they are copies.
llvm::Expected<std::vector<Tensor>> runFunction(Function &f, llvm::ArrayRef<Tensor> args, Memory &memory,
                                                Compute c = Compute::F32);

} // namespace zcc
