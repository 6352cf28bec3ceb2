// The update of one parameter: what is computed of its states, its gradient and itself, element by element.
#pragma once

#include "passes/zero/Zero.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/SmallPtrSet.h"

namespace zcc {

class Builder;

/// Of a param: where it lives, where its states do, and where those are updated, the device or host memory.
struct Places {
  Space own = Space::Device, states = Space::Device, update = Space::Device;
};
using PlacesOfParams = llvm::DenseMap<const GlobalValue *, Places>;

/// By the notes on params; what none is on goes where the flags say, but for parameters that are small, or persist. A note that
/// names no space is refused.
llvm::Expected<PlacesOfParams> placesOf(const Module &m, const Options &o);

struct Update {
  Function *f = nullptr;
  Type type;                       ///< of the states: dimensions and shards of all values here
  std::vector<Node *> nodes;       ///< elementwise, in the function's order
  std::vector<Node *> assigns;     ///< of their results, or of what is gathered of them, to the param and its states
  std::vector<Value::Use> whole;   ///< where a collective, or the forward behind a late update, reads one of their results
  std::vector<Node *> norms;       ///< what sums up the squares of results or leaves
  llvm::SetVector<Value *> leaves; ///< what they read that has an element for each of theirs: globals, gradients
  bool isElementwise = true;       ///< nothing else reads what is between: runs of elements can be updated one by one
};

/// The update of a param and its states in a function; no assigns if there is none. `states`, among which the param may be, are
/// of one type but for elements and addends. `at`: positions of the nodes, of which later ones may have gone.
Update findUpdate(Function &f, const Positions &at, GlobalValue *param, llvm::ArrayRef<GlobalValue *> states);

/// Parameters that the forward reads first, together no larger than the largest one: their gradients are the last that the
/// backward makes, and nothing comes before their first use that could hide what is read for their update.
llvm::DenseSet<const GlobalValue *> readFirst(const Module &m);

/// Gradients whose update reads a number that is computed behind them, such as what clips them all; not one that follows from
/// the update itself, as a ratio of norms does.
std::vector<Value *> waitingGradients(const Update &u, const Positions &at);

/// The reductions of a gradient to numbers, such as its share of a norm, and what they need, move right behind it. Returns the
/// last of them, or what makes the gradient.
Node *summarizeFirst(Value &gradient, const Positions &at);

/// The update's nodes once more, of what `now` has instead of what they read; it gets their results. Assigns nothing.
void repeatNodes(Builder &b, const Update &u, llvm::DenseMap<Value *, Value *> &now);

/// Updates runs of at most `length` elements, one after the other (ZeRO-Infinity's sub-groups, arXiv 2104.07857, section 5.2.2).
///
///   %m1 = add %w.m, %g              %m0 = run %w.m {begin = 0, count = 1024}
///   assign %w.m, %m1          ->    %g0 = run %g {begin = 0, count = 1024}
///                                   %m1 = add %m0, %g0
///                                   assign %w.m, %m1 {begin = 0}
///                                   ...
/// What needs a norm of all elements, as LAMB's ratio does, goes in two passes. The first one writes what needs none, the
/// moments, and adds up the norms; the second reads those moments for the direction, and no gradient:
///
///   %m1 = add %w.m, %g              %m0 = run %w.m {begin = 0, count = 1024}
///   assign %w.m, %m1                %m1 = add %m0, %g0
///   %n = sum_squares %m1      ->    assign %w.m, %m1 {begin = 0}
///   %d = div %m1, %n                %n0 = sum_squares %m1
///   %w1 = sub %w, %d                ...
///   assign %w, %w1                  %n = sum_squares %m2, %n0
///                                   %m3 = run %w.m {begin = 0, count = 1024}
///                                   %d = div %m3, %n
///                                   ...
///
/// That is a read of the parameter and the moments more than without a norm. To keep directions between the passes would read one
/// tensor less and write one more. `again` gets the second pass' runs and assignments. False: it has to stay whole.
bool splitUpdate(const Update &u, int64_t length, const Positions &at, llvm::SmallPtrSetImpl<const Node *> &again);

} // namespace zcc
