// Typed creation of nodes: result types are inferred, a Loc is required, names derive from the location.
#pragma once

#include "ir/Op.h"

namespace zcc {

/// Inserts before `before` (at the function's end if null). A type error in what a pass or gradient rule builds is
/// a bug of ours, so make() reports it and stops; what comes from users goes through tryMake().
class Builder {
public:
  Function &fn;
  Node *before = nullptr;
  Loc loc;
  Phase phase; ///< of the node it is made for, else of the function's last one

  Builder(Function &f, Node *b, Loc l)
      : fn(f), before(b), loc(std::move(l)), phase(b          ? b->phase
                                                   : f.last() ? f.last()->phase
                                                              : Phase::Forward) {}

  /// An `addend` or `shard` is one of as many as the module has ranks unless the attribute says otherwise.
  llvm::Expected<Node *> tryMake(const OpDef &op, llvm::ArrayRef<Value *> operands, Attrs attrs = {}, llvm::StringRef name = "");
  Node *node(const OpDef &op, llvm::ArrayRef<Value *> operands, Attrs attrs = {}, llvm::StringRef name = "");
  Value *make(const OpDef &op, llvm::ArrayRef<Value *> operands, Attrs attrs = {}, llvm::StringRef name = "") {
    return node(op, operands, std::move(attrs), name)->result();
  }

  // The constants and shapes that rules need; each returns its input where nothing would change.
  Value *scalar(double v, Elem e);                             ///< constant node, f32[] (splat)
  Value *splat(double v, Type t);                              ///< constant node of a type
  Value *ints(llvm::ArrayRef<int64_t> v);                      ///< constant node i64[n]
  Value *constant(const Tensor &t, llvm::StringRef name = ""); ///< a constant node, or data of the module if it is large
  Value *reshape(Value *v, llvm::ArrayRef<int64_t> dims);
  Value *transpose(Value *v, llvm::ArrayRef<int64_t> perm);
  Value *swapLast(Value *v);                             ///< the last two axes
  Value *expand(Value *v, llvm::ArrayRef<int64_t> dims); ///< numpy broadcast to dims
  Value *cast(Value *v, Elem e);
  Value *slice(Value *v, int axis, int64_t start, int64_t end, int64_t step = 1);
  Value *reduceSum(Value *v, llvm::ArrayRef<int64_t> axes); ///< keeps the axes, as 1
  /// Sums over broadcast axes so that the result has `dims`.
  Value *sumTo(Value *v, llvm::ArrayRef<int64_t> dims);
  /// Instantiates a scalar expression over named values as elementwise nodes (ir/Scalar.h).
  Value *expr(llvm::StringRef text, llvm::ArrayRef<std::pair<llvm::StringRef, Value *>> names);
};

} // namespace zcc
