// The reverse sweep over the nodes of a function: gradients of what they read from those of what they make, by each operator's
// rule. Differentiate.cpp runs it over @micro, DifferentiateControl.cpp over bodies.
#pragma once

#include "ir/Builder.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"

namespace zcc {

using Gradients = llvm::SmallVector<Value *, 4>;

/// Of the node that makes it; an argument or a global has none.
inline Loc locOf(const Value *v) { return v->def ? v->def->loc : nullptr; }

/// Nodes are appended to the function as the sweep meets them.
class Sweep {
public:
  /// `where`: the location of sums of values that have none, a body's arguments.
  explicit Sweep(Function &f, Loc where = nullptr) : fn(f), where(std::move(where)) {}

  llvm::DenseSet<Value *> active; ///< depend on what gradients are wanted of, and can carry one
  /// What a view looks into: gradients go through it at once, so that they are complete when the last user is met,
  /// wherever the view stands.
  llvm::DenseMap<Value *, GlobalValue *> viewed;

  /// Adds to `active` what depends on it.
  void spread();
  /// Adds a contribution to the gradient of a value.
  void seed(Value *v, Value *gradient) { add(v, gradient, /*fresh=*/false); }
  /// Goes back over these nodes, the last one first; `done` is called behind each.
  llvm::Error run(llvm::ArrayRef<Node *> forward, llvm::function_ref<void(Node &)> done);
  /// The complete gradient of `v`, or nullptr. Slices that share a value out give one concatenation.
  Value *whole(Value *v);

private:
  Function &fn;
  Loc where;
  llvm::DenseMap<Value *, Value *> gradients;
  /// Gradients of slices of a value, not yet added.
  llvm::DenseMap<Value *, llvm::SmallVector<Node *, 3>> pads;

  bool isReached(const Node &n) const;
  llvm::Error backThrough(Node &n, llvm::ArrayRef<Value *> dy);
  llvm::Expected<Gradients> rule(Node &n, Builder &b, llvm::ArrayRef<Value *> dy);
  llvm::Error addTo(Value *v, Value *gradient, bool fresh);
  void add(Value *v, Value *gradient, bool fresh);
};

/// Nodes of a function, in its order.
llvm::SmallVector<Node *, 0> nodesOf(const Function &f);

/// The gradients of the operands of a node that names bodies: generates bodies, puts a call of them where `b` stands, and
/// may append results to the node itself, for what the backward reads again.
llvm::Expected<Gradients> gradientsThroughBodies(Node &n, Builder &b, llvm::ArrayRef<Value *> dy,
                                                 const llvm::DenseSet<Value *> &active);

/// The trained param whose gradient a node assigns, as differentiate does; nullptr of other nodes.
GlobalValue *paramOfGradient(const Node &n);

} // namespace zcc
