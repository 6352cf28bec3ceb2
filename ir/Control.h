// Control flow: `scan` and `cond` name bodies, functions that read only their arguments and constants.
//
//   body @rnn(%h : f32[4], %x : f32[4], %w : f32[4]) -> (f32[4], f32[4]) {
//     %m = mul %h, %w : f32[4]
//     %n = add %m, %x : f32[4]
//     return %n, %n
//   }
//   ...
//   %last, %all = scan %h0, %xs, %w {body = "rnn", carried = 1, scanned = 1} : f32[4], f32[9x4]
//
// A loop without slices is a scan with `trips`.
#pragma once

#include "ir/Graph.h"
#include "llvm/ADT/DenseMap.h"

namespace zcc {

/// Appends copies of these nodes to `to`. What `map` does not have stays as it is; it gains their results.
void copyNodes(llvm::ArrayRef<Node *> nodes, Function &to, llvm::DenseMap<const Value *, Value *> &map);

/// Erases pure nodes that nobody reads, of those behind `last` (of all if null), whatever order they stand in. Returns whether
/// there were any.
bool eraseDeadNodes(Function &f, const Node *last = nullptr);

/// Whether attributes of the record (of kind "body") name bodies.
bool callsBodies(const OpDef &op);
/// The bodies that a node names, in the order of its record; nullptr for one that is not there.
llvm::SmallVector<Function *, 2> bodiesOf(const Node &n);
/// Result types of a node that names bodies, from theirs; an error if the operands do not fit.
llvm::Expected<llvm::SmallVector<Type, 2>> typesByBodies(const OpDef &op, llvm::ArrayRef<const Type *> operands,
                                                         const Attrs &attrs, const Module &m);

/// What the operands and results of a `scan` are. Operands, and the body's arguments: carried values, scanned tensors
/// [trips, ...] (slices in the body), what is the same in all iterations. Results, and the body's: carried values,
/// stacked tensors [trips, ...] (rows in the body).
struct ScanForm {
  unsigned carried = 0, scanned = 0;
  int64_t trips = 0;
  bool reverse = false; ///< the last slice first; rows go where slices come from
  explicit ScanForm(const Node &scan);
  bool isSlice(unsigned arg) const { return arg >= carried && arg < carried + scanned; }
  bool isInvariant(unsigned arg) const { return arg >= carried + scanned; }
};

/// How many values the bodies of a node carry on: none of one that runs a body once.
unsigned carriedBy(const Node &n);

/// All functions; every body is behind those that it names itself and before what names it. Otherwise in the module's order.
std::vector<Function *> calleesFirst(const Module &m);
/// The nodes that name each body, in the module's order.
std::vector<Node *> callersOf(const Function &body);
/// Gives each node that names a body one of its own.
void unshareBodies(Module &m);
/// Whether a body names itself, directly or through others.
bool isRecursive(const Function &body);

} // namespace zcc
