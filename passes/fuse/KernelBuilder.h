// From a group of nodes to a kernel and its call.
#pragma once

#include "passes/fuse/FuseGroups.h"
#include "llvm/ADT/StringMap.h"

namespace zcc {

/// A kernel that has been made, and the pairs (result, operand) of its calls whose memory may be one if the operand is dense.
struct KnownKernel {
  std::string name;
  std::vector<std::pair<unsigned, unsigned>> inPlace;
};
using KnownKernels = llvm::StringMap<KnownKernel>; ///< by the text of the body

/// Makes the kernel function of one group and the node that calls it.
class KernelBuilder {
  Module &m;
  Function &f;
  KnownKernels &known;

public:
  KernelBuilder(Module &mod, Function &fn, KnownKernels &k) : m(mod), f(fn), known(k) {}

  /// Inserts the call before `before`, replaces the group's values and returns the call; nullptr: nothing outside reads any.
  Node *build(const FuseGroup &g, Node *before);

private:
  /// A node of the body to be: a member, or a constant or counter that one reads.
  struct Part {
    const Node *of;
    Type type;
    llvm::SmallVector<int, 4> operands; ///< places
  };
  // The body is made only where no kernel has its text. A place is the number of an operand, or ~ that of a part.
  std::vector<Part> parts;
  std::vector<Value *> operands;
  llvm::DenseMap<const Value *, int> places;

  int add(const Node &of, Type type);
  int leaf(Value *v, const Node &user);
  void addMember(const Node &n, bool isStored);
  std::string key(llvm::ArrayRef<Value *> outputs) const;
  std::unique_ptr<Function> body(llvm::ArrayRef<Value *> outputs) const;
  void define(KnownKernel &k, llvm::ArrayRef<Value *> outputs);
  Node *call(const KnownKernel &k, llvm::ArrayRef<Value *> outputs, Loc loc, Phase phase, Node *before);
};

} // namespace zcc
