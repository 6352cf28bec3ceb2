// How each way of rows (ir/Op.h) takes an axis of iterations in front.
#include "passes/simplify/StackedNode.h"

using namespace zcc;
using llvm::ArrayRef;
using AxisList = std::vector<int64_t>;

static AxisList inFront(int64_t trips, ArrayRef<int64_t> dims) {
  AxisList d{trips};
  d.insert(d.end(), dims.begin(), dims.end());
  return d;
}

/// A table of all iterations that each looks slices up in.
static bool looksUpInOne(const Node &n, ArrayRef<bool> isStacked) { return !isStacked[0] && n.attrs.i("axis") == 0; }

bool zcc::canStack(const Node &n, ArrayRef<bool> isStacked) {
  if (!n.op->isPure() || n.op->random || n.results.size() != 1 || llvm::is_contained(n.operands(), nullptr))
    return false;
  switch (n.op->rows) {
  case Rows::Aligned:
  case Rows::InOrder:
  case Rows::Permuted:
  case Rows::Sliced:
  case Rows::Reduced:
    return true;
  case Rows::Product: // one product, of the rows of all iterations
    return n.numOperands() == 2 && isStacked[0] && !isStacked[1] && n.operand(0)->type.ndim() >= 2 &&
           n.operand(1)->type.ndim() == 2;
  case Rows::Lookup:
    return looksUpInOne(n, isStacked);
  case Rows::Others:
  case Rows::Leading:
    return n.attrs.has("axis") && n.attrs.i("axis") >= 0 && llvm::all_of(isStacked, [](bool s) { return s; });
  default:
    return false;
  }
}

/// The operand with axes of 1 behind that of iterations, so that the others stand as numpy aligns them.
static Value *aligned(Builder &b, const Outside &o, size_t rank) {
  if (!o.isStacked)
    return o.value;
  AxisList d(o.value->type.dims.begin(), o.value->type.dims.end());
  d.insert(d.begin() + 1, rank - (d.size() - 1), 1);
  return b.reshape(o.value, d);
}

static Value *product(Builder &b, ArrayRef<Outside> in, const Type &result, int64_t trips) {
  ArrayRef<int64_t> dims = in[0].value->type.dims;
  Value *rows = b.reshape(in[0].value, {elementCount(dims.drop_back()), dims.back()});
  return b.reshape(b.make(ops::matmul, {rows, in[1].value}), inFront(trips, result.dims));
}

static AxisList shifted(AxisList axes) {
  for (int64_t &a : axes)
    ++a;
  return axes;
}

Value *zcc::stacked(Builder &b, const Node &n, ArrayRef<Outside> in, int64_t trips) {
  const Type &result = n.result()->type;
  Attrs attrs = n.attrs;
  llvm::SmallVector<Value *, 4> operands;
  for (const Outside &o : in)
    operands.push_back(o.value);
  switch (n.op->rows) {
  case Rows::Aligned:
    for (size_t i = 0; i < in.size(); ++i)
      operands[i] = aligned(b, in[i], result.ndim());
    if (attrs.has("dims"))
      attrs.set("dims", inFront(trips, result.dims));
    break;
  case Rows::InOrder:
    attrs.set("dims", inFront(trips, result.dims));
    break;
  case Rows::Permuted:
    attrs.set("perm", inFront(0, shifted(attrs.ints("perm"))));
    break;
  case Rows::Sliced:
    attrs.set("starts", inFront(0, attrs.ints("starts")));
    attrs.set("ends", inFront(trips, attrs.ints("ends")));
    attrs.set("steps", inFront(1, attrs.ints("steps")));
    break;
  case Rows::Reduced:
    attrs.set("axes", shifted(attrs.ints("axes")));
    break;
  case Rows::Product:
    return product(b, in, result, trips);
  case Rows::Others:
  case Rows::Leading:
    attrs.set("axis", attrs.i("axis") + 1);
    break;
  default:
    break;
  }
  return b.make(*n.op, operands, attrs);
}
