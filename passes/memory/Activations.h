// What the forward of a function makes and may keep for the backward.
#pragma once

#include "ir/Graph.h"
#include "llvm/ADT/DenseSet.h"

namespace zcc {

/// Behind views; nullptr stays.
Value *behindViews(Value *v);
/// Whether a node makes values of its own: no view, constant or write.
bool holdsActivation(const Node &n);
/// What the results of a node hold on a rank, bytes.
int64_t resultBytes(const Node &n);
/// A cast of 16 bits to 32: free in the loops that read it.
bool widens(const Node &n);

/// Behind views and widening casts, which nothing is kept for.
const Value *originOf(Value *v);
/// Whether the backward reads it, or what is behind those.
bool isReadBack(const Value &v);

/// Bytes of an activation below which moving it elsewhere is not worth a transfer's latency.
constexpr int64_t kLeastMoved = 64 << 10;

/// Bytes that may be under way between spaces at least: below it small transfers would wait for the disk's latency, one by one,
/// and what is computed for a smaller update would not hide a copy's.
constexpr int64_t kLeastWindow = 16 << 20;

/// Nodes of the function that depend on constants and on globals but for some, and on no random draw.
llvm::DenseSet<const Node *> fixedNodes(const Function &f, const llvm::DenseSet<const Value *> &but = {});

/// Which nodes of a function can be computed again in the backward.
class Recomputable {
public:
  explicit Recomputable(const Function &f);
  /// Why a node cannot, or nullptr.
  const char *whyNot(const Node &n) const;
  /// Of fixedNodes(): read as they are.
  bool isFixed(const Node *n) const { return fixed_.contains(n); }

private:
  llvm::DenseSet<const Node *> fixed_;
  llvm::DenseSet<const Value *> written_; ///< globals: running statistics, gradients
  llvm::DenseSet<const Node *> late_;     ///< of the forward, behind the first node of the backward: tiles
};

} // namespace zcc
