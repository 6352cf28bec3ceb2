// Values of what depends on constants only, computed by the interpreter on demand.
#pragma once

#include "ir/Op.h"
#include "ir/Tensor.h"
#include <optional>
#include <unordered_map>

namespace zcc {

class ConstantValues {
public:
  /// Larger tensors are not computed here: 64 MiB of f32.
  static constexpr int64_t kMaxElements = int64_t(1) << 24;

  explicit ConstantValues(const Module &m) : module_(m) {}

  /// The value of `v`, or nullptr if it depends on more than constants or is too large; valid until
  /// forgotten.
  const Tensor *value(Value *v) { return value(v, kMostDepth); }
  /// The number that every element of `v` equals, seen without computing: constant nodes and
  /// globals of one value, and views and copies of them.
  std::optional<double> splat(Value *v) const;
  /// Must be called before `v` is deleted.
  void forget(const Value *v) { known_.erase(v); }

private:
  /// What lies behind more operators is not computed here; fold-constants goes forward, an operator at a time.
  static constexpr int kMostDepth = 100;

  const Module &module_;
  std::unordered_map<const Value *, Tensor> known_;

  const Tensor *value(Value *v, int depth);
};

/// Whether a node has the same results whenever its operands are the same, so that it can be
/// computed here.
bool isFoldable(const Node &n);
/// Whether `v` is a `const` global, or the result of a node without operands that is foldable.
bool isConstantLeaf(const Value *v);

} // namespace zcc
