// What the ZeRO passes share: the limits that steer them, DeepSpeed's knobs or derived from the parameters.
#pragma once

#include "ir/Op.h"
#include "passes/Pass.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace zcc {

/// In elements. Each is the option's value where one is given.
struct ZeroLimits {
  int64_t persistence;  ///< stage 3: parameters up to this size stay whole on every rank
  int64_t maxLive;      ///< stage 3: gathered parameters alive at once
  int64_t maxReuse;     ///< stage 3: two uses further apart than this are gathered for separately
  int64_t reduceBucket; ///< gradients reduced by one collective
  int64_t gatherBucket; ///< parameters gathered by one collective
};

/// The limits for the parameters of `m`; they do not depend on which passes have run.
ZeroLimits zeroLimits(const Module &m, const Options &o);

/// Whether collectives run beside compute where an option says so, or says nothing: where they have an engine of their own. What
/// is started ahead on cores that compute takes memory, and leaves caches before it is read.
bool runsBeside(Options::Beside told, const Target *target);

/// Whether a pass of ours may split this global over the ranks: it has axes and more than one rank is there.
bool isSplittable(const GlobalValue &g);

/// A parameter that is gathered or transferred at the head of a function is so for each cluster of its uses instead, by maxReuse
/// and maxLive. Returns whether there is one.
llvm::Expected<bool> clusterUses(Function &f, const ZeroLimits &limits, PassContext &ctx);
/// Whether a collective gathers a parameter, or a shard of it that was transferred, for compute; the others gather what is
/// assigned to one.
bool gathersParam(const Node &n);

/// Positions of the nodes of a function.
using Positions = llvm::DenseMap<const Node *, int>;
Positions positions(const Function &f);

/// Starts what a node does before `before`, and lets the node stand until waitFor(), which erases it.
Node *beginAt(Function &f, const Node &n, Node *before);
void waitFor(Function &f, Node &n, Node &start, llvm::function_ref<Node *(Value &)> waitAt);
/// The node becomes a start before `before`; each result is waited for before the node that `waitAt` says (nullptr: at the end).
/// Returns the start.
Node *startAt(Function &f, Node &n, Node *before, llvm::function_ref<Node *(Value &)> waitAt);
/// The first node that uses a value, views included, of the uses that count; nullptr: none.
Node *firstUser(
    const Value &v, const llvm::DenseMap<const Node *, int> &at,
    llvm::function_ref<bool(const Value::Use &)> counts = [](const Value::Use &) { return true; });

/// Whether it writes the global that it is a use of.
inline bool isWrite(const Value::Use &u) { return assigns(*u.node) && u.index == 0; }

/// Where a global, or what a view of it shows, is last written in front of a node; -1: nowhere.
int lastWrite(Value &v, const Node &before, const Positions &at);

/// The views that lead from `from` to `v`, made again of `to` before a node, but for those that are `known` by what they copy.
Value *viewsAgain(Value *v, Value *from, Value *to, Node *before, llvm::DenseMap<Value *, Value *> &known);

/// The nodes that read `v`, also through views; not the views, not releases.
llvm::SmallVector<Node *, 4> readersOf(const Value &v);
/// The last of them; nullptr: none.
Node *lastReader(const Value &v, const Positions &at);

} // namespace zcc
