// What the records' type rules and naive loops share: checks with one wording, and row iteration.
#pragma once

#include "ir/Builder.h"
#include "ir/Interpreter.h"
#include "ir/Op.h"

namespace zcc::rules {

using Types = llvm::SmallVector<Type, 2>;
using Operands = llvm::ArrayRef<const Type *>;
using TypesOr = llvm::Expected<Types>;
using Values = llvm::SmallVector<Value *, 4>;

/// Of what computes nothing.
inline double noFlops(const Node &) { return 0; }

/// Each result gets the values of its operand.
inline void copyOperands(llvm::ArrayRef<const Tensor *> in, llvm::ArrayRef<Tensor *> out) {
  for (size_t i = 0; i < in.size(); ++i) {
    out[i]->f = in[i]->f;
    out[i]->i = in[i]->i;
  }
}

/// "f32[2x3] and f32[4]", for messages.
inline std::string both(const Type &a, const Type &b) { return a.str() + " and " + b.str(); }

/// The operands must be floating point and of one element; those left out count as equal.
inline llvm::Error sameFloats(Operands t) {
  const Type *first = nullptr;
  for (const Type *x : t) {
    if (!x)
      continue;
    if (!isFloat(x->elem))
      return error("expected a floating-point tensor, got " + x->str());
    if (first && first->elem != x->elem)
      return error("element types differ: " + both(*first, *x));
    first = x;
  }
  return llvm::Error::success();
}

/// Attribute `axis` must name an axis of `t`.
inline llvm::Expected<int64_t> axisOf(const Type &t, const Attrs &a, int64_t otherwise = 0) {
  int64_t axis = a.i("axis", otherwise);
  if (axis < 0 || axis >= int64_t(t.ndim()))
    return error("axis " + llvm::Twine(axis) + " is not one of " + t.str());
  return axis;
}

/// A tensor seen as [outer, extent, inner] around one axis; element (o, e, i) is at (o*extent +
/// e)*inner + i.
struct AroundAxis {
  int64_t outer = 1, extent = 1, inner = 1;
  AroundAxis(llvm::ArrayRef<int64_t> dims, int64_t axis) : extent(dims[axis]) {
    outer = elementCount(dims.take_front(axis));
    inner = elementCount(dims.drop_front(axis + 1));
  }
};

/// Copies element `from` of `src` to element `to` of `dst`; both hold the same kind of element.
inline void copyElement(Tensor &dst, int64_t to, const Tensor &src, int64_t from) {
  if (dst.isFloat())
    dst.f[to] = src.f[from];
  else
    dst.i[to] = src.i[from];
}

/// Axes from..to-1.
inline Dims axisRange(int64_t from, int64_t to) {
  Dims axes;
  for (int64_t i = from; i < to; ++i)
    axes.push_back(i);
  return axes;
}

/// Whether `n` is a transpose of the last two axes.
inline bool swapsLastTwo(const Node *n) {
  if (!n || n->op != &ops::transpose)
    return false;
  std::vector<int64_t> perm = n->attrs.ints("perm");
  size_t k = perm.size();
  for (size_t i = 0; i + 2 < k; ++i)
    if (perm[i] != int64_t(i))
      return false;
  return k >= 2 && perm[k - 2] == int64_t(k - 1);
}

/// `v` with its last two axes swapped; where it is already another value's swap, that value.
inline Value *swapped(Builder &b, Value *v) { return swapsLastTwo(v->def) ? v->def->operand(0) : b.swapLast(v); }

/// The attributes with `dims` set to those of `t`.
inline Attrs withDims(Attrs a, const Type &t) {
  a.set("dims", llvm::ArrayRef<int64_t>(t.dims).vec());
  return a;
}

/// The position along `axis`, as a tensor of `dims`.
inline Value *counter(Builder &b, llvm::ArrayRef<int64_t> dims, int64_t axis, Elem e = Elem::I64) {
  return b.make(ops::iota, {}, {{"dims", dims.vec()}, {"axis", axis}, {"elem", elemName(e).str()}});
}

/// v * x with a constant factor.
inline Value *scaled(Builder &b, Value *v, double x) { return b.make(ops::mul, {v, b.scalar(x, v->type.elem)}); }

/// The sum of two values either of which may be absent.
inline Value *plus(Builder &b, Value *x, Value *y) { return !x ? y : !y ? x : b.make(ops::add, {x, y}); }

} // namespace zcc::rules
