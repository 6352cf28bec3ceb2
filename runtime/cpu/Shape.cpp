// concat and pad: copies of boxes.
#include "runtime/cpu/Call.h"
#include "runtime/cpu/Kernels.h"
#include "runtime/cpu/Number.h"
#include "runtime/cpu/Padding.h"
#include "runtime/cpu/StridedCopy.h"
#include <cstring>
#include <vector>

namespace zccrt::cpu {

void concatRun(char *arena, const zccrt_call *c) {
  if (!arena)
    return;
  const zccrt_tensor &y = result(c, 0);
  int64_t bytes = elemBytes(y.elem);
  int axis = int(attrInt(c, "axis", 0));
  char *to = arena + y.offset;
  for (int i = 0; i < c->nin; ++i) {
    const zccrt_tensor &x = operand(c, i);
    copyStrided(to, y.strides, arena + x.offset, x.strides, x.dims, x.ndim, bytes, c->threads);
    to += x.dims[axis] * y.strides[axis] * bytes;
  }
}

namespace {

/// Element offsets in x for each position of each axis of the result, -1: the padding value.
struct Maps {
  std::vector<int64_t> axis[ZCCRT_MAX_DIMS];
  explicit Maps(const zccrt_call *c) {
    const zccrt_tensor &x = operand(c, 0), &y = result(c, 0);
    PadMode mode = padMode(c);
    for (int a = 0; a < x.ndim; ++a)
      for (int64_t i = 0; i < y.dims[a]; ++i)
        axis[a].push_back(padSource(mode, i - attrAxis(c, "lo", a, 0), x.dims[a]));
  }
};

/// What of a row comes from side by side: of the positions of a map, `count` from `first` on.
struct Inside {
  int64_t first = 0, count = 0;
  explicit Inside(const std::vector<int64_t> &map) {
    const int64_t n = int64_t(map.size());
    while (first < n && map[size_t(first)] < 0)
      ++first;
    while (first + count < n && map[size_t(first + count)] == map[size_t(first)] + count)
      ++count;
  }
};

template <typename T>
void padRow(T *y, const T *x, const std::vector<int64_t> &map, const Inside &inside, int64_t stride, T value) {
  auto one = [&](int64_t i) { y[i] = map[size_t(i)] < 0 ? value : x[map[size_t(i)] * stride]; };
  const int64_t n = int64_t(map.size()), behind = inside.first + inside.count;
  if (stride != 1 || !inside.count) {
    for (int64_t i = 0; i < n; ++i)
      one(i);
    return;
  }
  std::fill_n(y, inside.first, value);
  memcpy(y + inside.first, x + map[size_t(inside.first)], size_t(inside.count) * sizeof(T));
  for (int64_t i = behind; i < n; ++i)
    one(i);
}

} // namespace

void padRun(char *arena, const zccrt_call *c) {
  if (!*c->cache)
    *c->cache = new Maps(c);
  if (!arena)
    return;
  const Maps &maps = *static_cast<Maps *>(*c->cache);
  const zccrt_tensor &x = operand(c, 0), &y = result(c, 0);
  int64_t width = y.ndim ? y.dims[y.ndim - 1] : 1, rows = width ? count(y) / width : 0;
  double value = attrFloat(c, "value", 0.0);
  const Inside along(maps.axis[std::max(y.ndim - 1, 0)]);
  withNumber(y.elem, [&](auto *type) {
    using T = std::remove_pointer_t<decltype(type)>;
    T *to = at<T>(arena, y);
    const T *from = at<T>(arena, x);
    forEach(rows, threadsFor(c, count(y) * elemBytes(y.elem)), [&](int64_t row) {
      int64_t rest = row, offset = 0;
      bool inside = true;
      for (int a = y.ndim - 2; a >= 0; --a) {
        int64_t i = maps.axis[a][rest % y.dims[a]];
        rest /= y.dims[a];
        inside &= i >= 0;
        offset += i * x.strides[a];
      }
      if (inside)
        padRow(to + row * width, from + offset, maps.axis[y.ndim - 1], along, x.strides[x.ndim - 1], T(value));
      else
        std::fill_n(to + row * width, width, T(value));
    });
  });
}

} // namespace zccrt::cpu
