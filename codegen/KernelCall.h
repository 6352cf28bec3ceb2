// A node of a library kernel as the runtime's zccrt_call: what the kernel is asked with at compile time (workspace), and what the
// emitted tables say.
#pragma once

#include "ir/Graph.h"
#include "runtime/zccrt.h"
#include <deque>

namespace zcc {

class Target;

/// One call and everything it points to. Offsets are those of a planned function, else 0 (-1:
/// operand left out).
class KernelCall {
public:
  /// Errors: the kernel does not exist on this target, more axes than the runtime has, an operand
  /// at strides that the kernel does not take.
  static llvm::Expected<std::unique_ptr<KernelCall>> make(const Function &f, const Node &n, const Target &target);

  const zccrt_kernel_def *kernel = nullptr;
  zccrt_call call{};
  std::vector<zccrt_tensor> tensors;
  std::vector<zccrt_attr> attrs;
  /// Tensors that lie elsewhere in each iteration of a scan, and by how many bytes a slice.
  std::vector<std::pair<size_t, int64_t>> moving;
  /// Bytes of scratch that it needs.
  int64_t workspace() const;

private:
  std::deque<std::string> strings_;
  std::deque<std::vector<int64_t>> ints_;
  std::deque<std::vector<double>> floats_;
  void addAttr(const std::string &name, const Attr &a);
  llvm::Error addTensor(const Function &f, const Node &n, Value *v);
  void addProduct(const Function &f, const Node &n);
};

/// A dense tensor of a type at an offset.
zccrt_tensor denseTensor(const Type &t, int64_t offset);

} // namespace zcc
