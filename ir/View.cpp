#include "ir/View.h"
#include "ir/Op.h"

using namespace zcc;
using llvm::ArrayRef;

std::optional<Dims> zcc::reshapeStrides(ArrayRef<int64_t> dims, ArrayRef<int64_t> strides,
                                        ArrayRef<int64_t> newDims) {
  if (elementCount(dims) != elementCount(newDims))
    return std::nullopt;
  Dims out(newDims.size(), 0);
  // Old axes without those of 1, whose stride means nothing.
  Dims d, s;
  for (size_t i = 0; i < dims.size(); ++i)
    if (dims[i] != 1) {
      d.push_back(dims[i]);
      s.push_back(strides[i]);
    }
  if (elementCount(dims) == 0)
    return denseStrides(newDims);
  // From the right: as many old axes as hold one run of new ones; within a run old axes must step through memory as one.
  size_t n = newDims.size(), o = d.size();
  while (o > 0) {
    size_t first = o - 1;
    int64_t have = d[first], want = 1;
    size_t m = n;
    while (want != have) {
      if (want < have) {
        if (m == 0)
          return std::nullopt;
        want *= newDims[--m];
      } else {
        if (first == 0)
          return std::nullopt;
        --first;
        if (s[first] != s[first + 1] * d[first + 1])
          return std::nullopt;
        have *= d[first];
      }
    }
    int64_t step = s[o - 1];
    for (size_t i = n; i-- > m;) {
      out[i] = newDims[i] == 1 ? 0 : step;
      step *= newDims[i];
    }
    n = m;
    o = first;
  }
  // What is left over on the left are axes of 1. They take the dense stride, so that a dense view stays one.
  int64_t step = 1;
  for (size_t i = newDims.size(); i-- > 0;) {
    if (newDims[i] == 1)
      out[i] = step;
    step = out[i] * newDims[i];
  }
  return out;
}

bool View::isDense() const {
  Dims dense = denseStrides(dims);
  for (size_t i = 0; i < dims.size(); ++i)
    if (dims[i] != 1 && strides[i] != dense[i])
      return false;
  return offset == 0;
}

std::optional<View> zcc::viewOf(Value *v) {
  if (!v->def || !v->def->op->view)
    return View{v, 0, v->type.dims, denseStrides(v->type.dims)};
  Node &n = *v->def;
  auto in = viewOf(n.operand(0));
  if (!in)
    return std::nullopt;
  View out{in->base, in->offset, v->type.dims, {}};
  if (n.op == &ops::reshape) {
    auto s = reshapeStrides(in->dims, in->strides, out.dims);
    if (!s)
      return std::nullopt;
    out.strides = *s;
  } else if (n.op == &ops::transpose) {
    for (int64_t p : n.attrs.ints("perm"))
      out.strides.push_back(in->strides[p]);
  } else if (n.op == &ops::slice) {
    auto starts = n.attrs.ints("starts"), steps = n.attrs.ints("steps");
    for (size_t i = 0; i < out.dims.size(); ++i) {
      out.offset += starts[i] * in->strides[i];
      out.strides.push_back(in->strides[i] * (steps.empty() ? 1 : steps[i]));
    }
  } else { // broadcast
    size_t shift = out.dims.size() - in->dims.size();
    for (size_t i = 0; i < out.dims.size(); ++i)
      out.strides.push_back(i < shift || in->dims[i - shift] != out.dims[i] ? 0
                                                                            : in->strides[i - shift]);
  }
  return out;
}
