// What the rules of simplify share. A rule looks at one node and what produces its operands; if it matches, it builds the better
// form before the node, replaces the results and returns true. What became unused is deleted by the driver.
#pragma once

#include "ir/Builder.h"
#include "passes/simplify/ConstantValue.h"
#include "llvm/ADT/DenseSet.h"

namespace zcc {

class Rewriter {
public:
  Rewriter(Module &m, Function &f) : module(m), function(f), constants(m) {}

  Module &module;
  Function &function;
  ConstantValues constants;
  llvm::DenseSet<Node *> dirty; ///< nodes to look at again
  llvm::DenseSet<Node *> known; ///< nodes that have been in `dirty`

  /// A builder whose nodes come before `n` and are located where `n` and what it was matched with
  /// are.
  Builder before(Node &n, std::initializer_list<const Node *> with = {}) const;
  /// Uses and function results of `old` become `v`, which takes over the name if it is new.
  void replace(Value *old, Value *v);
  /// `replace` with `v` broadcast or reshaped to the type of `old`; the elements must be equal.
  void replaceShaped(Node &n, Value *v);
  void markUsers(Value *v);
  /// Deletes `n` if it is pure and unused, and then what only it used.
  void eraseDead(Node *n);
  /// Deletes what a rule that did not match after all has built before `n`.
  void eraseNewBefore(Node &n);

  std::optional<double> splat(Value *v) const { return constants.splat(v); }
  bool isSplat(Value *v, double x) const { return v && splat(v) == x; }
  /// Equal up to the rounding of a constant to f32.
  bool isNear(Value *v, double x) const;
  bool isConstant(Value *v) const { return isConstantLeaf(v); }
  /// Uses by nodes and as function results.
  unsigned uses(const Value *v) const;
  bool isDead(const Node &n) const; ///< pure and unused
  bool hasOneUse(const Value *v) const { return uses(v) == 1; }
};

struct Rule {
  const OpDef *op; ///< nullptr: every operator
  bool (*apply)(Node &, Rewriter &);
};

/// The node that makes `v` if its operator is `op`, else nullptr.
inline Node *defBy(const Value *v, const OpDef &op) { return v && v->def && v->def->is(op) ? v->def : nullptr; }
/// If `v` is the mean of a value over axes, which are kept as 1: that value, and the axes.
struct Mean {
  Value *of;
  Dims axes;
};
std::optional<Mean> meanOf(const Rewriter &r, Value *v);
/// A product as its factors and the product of its constants; only products with no other use are
/// taken apart.
struct Product {
  double scale = 1;
  llvm::SmallVector<Value *, 4> factors;
};
Product productOf(const Rewriter &r, Value *v);

// The families, in the order in which they are tried on a node.
llvm::ArrayRef<Rule> arithmeticRules();
llvm::ArrayRef<Rule> shapeRules();
llvm::ArrayRef<Rule> indexRules();
llvm::ArrayRef<Rule> activationRules();
llvm::ArrayRef<Rule> softmaxRules();
llvm::ArrayRef<Rule> normRules();
llvm::ArrayRef<Rule> attentionRules();

} // namespace zcc
