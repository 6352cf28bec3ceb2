// Follows strides through view operators.
#include "ir/View.h"
#include "ir/Op.h"

using namespace zcc;
using llvm::ArrayRef;

std::optional<Dims> zcc::reshapeStrides(ArrayRef<int64_t> dims, ArrayRef<int64_t> strides, ArrayRef<int64_t> newDims) {
  Dims out = denseStrides(newDims); // what axes of 1 keep
  if (elementCount(dims) == 0)
    return out;
  struct Run {
    int64_t extent, stride;
  };
  llvm::SmallVector<Run, 5> runs; // axes that one stride steps through, from the last
  for (int i = int(dims.size()) - 1; i >= 0; --i) {
    if (dims[i] == 1)
      continue;
    if (!runs.empty() && strides[i] == runs.back().extent * runs.back().stride)
      runs.back().extent *= dims[i];
    else
      runs.push_back({dims[i], strides[i]});
  }
  size_t run = 0;
  int64_t used = 1; // elements of the run that axes further in step through
  for (int i = int(newDims.size()) - 1; i >= 0; --i) {
    if (newDims[i] == 1)
      continue;
    if (run == runs.size())
      return std::nullopt;
    out[i] = runs[run].stride * used;
    used *= newDims[i];
    if (used > runs[run].extent)
      return std::nullopt; // the axis would reach over two runs
    if (used == runs[run].extent) {
      ++run;
      used = 1;
    }
  }
  return run == runs.size() ? std::optional(out) : std::nullopt;
}

std::optional<View> zcc::viewThrough(const Node &n, const View &in) {
  std::optional<View> out = n.op->view(n, in);
  if (!out)
    return out;
  out->dims = n.result()->type.localDims();
  // Nothing steps along an axis of 1: let it not hide that a view is dense.
  int64_t dense = 1;
  for (size_t i = out->dims.size(); i-- > 0; dense *= out->dims[i])
    if (out->dims[i] == 1)
      out->strides[i] = dense;
  return out;
}

bool zcc::isRowOf(const Value &row, const Value &of) {
  const Type &r = row.type, &t = of.type;
  return r.ndim() && t.ndim() && r.ndim() <= t.ndim() && r.elem == t.elem && r.count() == t.dims.back() &&
         r.dims.back() == t.dims.back();
}

Value *zcc::behindReshapes(Value *v) {
  while (v->def && v->def->op->reshapes)
    v = v->def->operand(0);
  return v;
}

bool View::isDense() const { return isRun() && offset == 0; }

bool View::isRun() const {
  int64_t dense = 1;
  for (size_t i = dims.size(); i-- > 0; dense *= dims[i])
    if (dims[i] != 1 && strides[i] != dense)
      return false;
  return true;
}

std::optional<View> zcc::viewOf(Value *v) {
  llvm::SmallVector<const Node *, 8> path; // from v to what owns memory
  while (v->def && v->def->op->view) {
    path.push_back(v->def);
    v = v->def->operand(0);
  }
  std::optional<View> view(View{v, 0, v->type.localDims(), {}});
  view->strides = denseStrides(view->dims);
  for (const Node *n : llvm::reverse(path)) {
    view = viewThrough(*n, *view);
    if (!view)
      break;
  }
  return view;
}
