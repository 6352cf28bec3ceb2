// From a group of nodes to a kernel and its call.
#pragma once

#include "passes/fuse/FuseGroups.h"
#include "llvm/ADT/StringMap.h"

namespace zcc {

/// Makes the kernel function of one group and the node that calls it.
class KernelBuilder {
  Module &m;
  Function &f;
  llvm::StringMap<std::string> &known; ///< body text -> kernel name

public:
  KernelBuilder(Module &mod, Function &fn, llvm::StringMap<std::string> &k) : m(mod), f(fn), known(k) {}

  /// Inserts the call before `before`, replaces the group's values and returns the call.
  Node *build(const FuseGroup &g, Node *before);

private:
  Function *body = nullptr;
  llvm::DenseMap<Value *, Value *> inside;
  std::vector<Value *> operands;

  Value *leaf(Value *v, const Node &user);
  void cloneInto(Node &n);
  std::string key() const;
};

} // namespace zcc
