// Workspaces of kernels, how they want weights and which way they go, asked for once per shape.
#pragma once

#include "passes/Target.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringMap.h"
#include <shared_mutex>

namespace zcc {

class KernelCall;

/// Answers how many bytes of workspace a target's library kernels need. A library may build a whole primitive to tell: each shape
/// is asked for once. Several threads may ask at the same time.
class Workspaces {
public:
  explicit Workspaces(const Target &t) : target_(t) {}
  /// Of a node with a library kernel.
  int64_t bytes(const Node &n);
  /// How a node's library kernel wants its weight packed; nullopt, too, where so few reads do not pay (Target::packingOf).
  std::optional<Target::Packing> packing(const Node &n, double reads);
  /// Of a convolution (Target::channelBlock).
  int64_t channelBlock(const Node &n);
  /// Of a product (runtime/cpu/ProductShape.h); false where that is not known.
  bool avoidsSgemm(const Node &n);
  /// What `ask` says of a node's call; "": it has none.
  std::string way(const Node &n, llvm::function_ref<std::string(const KernelCall &)> ask);
  /// How many questions kernels have answered.
  size_t asked() const { return known_.size(); }

private:
  const Target &target_;
  std::shared_mutex mutex_;        ///< searches ask the same again and again
  llvm::StringMap<int64_t> known_; ///< by kernel, tensors and attributes
  llvm::StringMap<std::optional<Target::Packing>> packings_;
  llvm::StringMap<int64_t> blocks_;
  llvm::StringMap<bool> avoids_;
  llvm::StringMap<std::string> ways_;
};

} // namespace zcc
