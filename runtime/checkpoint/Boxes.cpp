// Intersects boxes row by row, of as few and as long rows as can be.
#include "runtime/checkpoint/Boxes.h"
#include <algorithm>

namespace zccrt {

int64_t Box::elements() const {
  int64_t n = 1;
  for (int64_t d : shape)
    n *= d;
  return n;
}

/// Makes one axis of neighbours where both boxes span the inner one: two whole tensors have one row.
static void mergeAxes(std::vector<int64_t> dims, Box &a, Box &b) {
  auto spans = [&](const Box &box, size_t axis) { return box.start[axis] == 0 && box.shape[axis] == dims[axis]; };
  for (size_t axis = dims.size(); axis-- > 1;) {
    if (!spans(a, axis) || !spans(b, axis))
      continue;
    for (Box *box : {&a, &b}) {
      box->start[axis - 1] *= dims[axis];
      box->shape[axis - 1] *= dims[axis];
      box->start.erase(box->start.begin() + axis);
      box->shape.erase(box->shape.begin() + axis);
    }
    dims[axis - 1] *= dims[axis];
    dims.erase(dims.begin() + axis);
  }
  if (dims.empty()) // a scalar
    a = b = Box::whole({1});
}

/// The number of the element at `index` of the tensor, in the box.
static int64_t elementAt(const Box &box, const std::vector<int64_t> &index) {
  int64_t n = 0;
  for (size_t i = 0; i < index.size(); ++i)
    n = n * box.shape[i] + index[i] - box.start[i];
  return n;
}

void forEachCommon(const std::vector<int64_t> &dims, const Run &a, const Run &b,
                   const std::function<void(int64_t, int64_t, int64_t)> &both) {
  Box boxA = a.box, boxB = b.box;
  mergeAxes(dims, boxA, boxB);
  const size_t axes = boxA.start.size(), inner = axes - 1;
  std::vector<int64_t> low(axes), high(axes);
  for (size_t i = 0; i < axes; ++i) {
    low[i] = std::max(boxA.start[i], boxB.start[i]);
    high[i] = std::min(boxA.start[i] + boxA.shape[i], boxB.start[i] + boxB.shape[i]);
    if (low[i] >= high[i])
      return;
  }
  // Of the first axis only what the runs reach, a few rows perhaps of a long box.
  for (auto [box, run] : {std::pair(&boxA, &a), std::pair(&boxB, &b)}) {
    const int64_t each = box->elements() / box->shape[0];
    low[0] = std::max(low[0], box->start[0] + run->begin / each);
    high[0] = std::min(high[0], box->start[0] + (run->begin + run->count + each - 1) / each);
  }
  if (low[0] >= high[0])
    return;
  for (std::vector<int64_t> at = low;;) {
    // The row, then what of it lies in both runs.
    int64_t i = elementAt(boxA, at) - a.begin, j = elementAt(boxB, at) - b.begin, n = high[inner] - low[inner];
    int64_t skip = std::max<int64_t>({0, -i, -j});
    n = std::min({n, a.count - i, b.count - j}) - skip;
    if (n > 0)
      both(i + skip, j + skip, n);
    size_t axis = inner;
    while (axis > 0 && ++at[axis - 1] == high[axis - 1]) {
      at[axis - 1] = low[axis - 1];
      --axis;
    }
    if (axis == 0)
      return;
  }
}

} // namespace zccrt
