#include "ir/Epilogue.h"

using namespace zcc;

llvm::SmallVector<Value *, 4> zcc::kernelOperands(const Node &n) {
  llvm::SmallVector<Value *, 4> all(n.operands());
  if (!performed(n)->feedsKernel)
    return all;
  all.erase(all.begin(), all.begin() + 2);
  size_t at = size_t(std::max<int64_t>(n.attrs.i("product"), 0));
  all.insert(all.begin() + std::min(at, all.size()), nullptr);
  return all;
}

Type zcc::productType(const Node &n) {
  if (!performed(n)->feedsKernel)
    return n.result()->type;
  return llvm::cantFail(inferTypes(ops::matmul, {&n.operand(0)->type, &n.operand(1)->type}, {}))[0];
}
