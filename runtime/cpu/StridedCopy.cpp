// The box is brought into its simplest form (axes of extent 1 dropped, neighbouring axes merged), then copied row by row; where
// rows run across the source's contiguous axis, in square tiles.
#include "runtime/cpu/StridedCopy.h"
#include "runtime/cpu/Call.h"
#include "runtime/cpu/Turn.h"
#include <utility>

namespace zccrt::cpu {

namespace {
struct Axis {
  int64_t n, to, from;
};

/// Axes, outermost first; the last is the row.
struct Box {
  Axis axes[ZCCRT_MAX_DIMS];
  int count = 0;

  Box(const int64_t *toStrides, const int64_t *fromStrides, const int64_t *dims, int ndim) {
    for (int i = 0; i < ndim; ++i) {
      if (dims[i] == 1)
        continue;
      Axis a{dims[i], toStrides[i], fromStrides[i]};
      if (count && axes[count - 1].to == a.n * a.to && axes[count - 1].from == a.n * a.from)
        axes[count - 1] = {axes[count - 1].n * a.n, a.to, a.from};
      else
        axes[count++] = a;
    }
    if (!count)
      axes[count++] = {1, 1, 1};
    // The row runs along the destination.
    for (int i = 0; i + 1 < count; ++i)
      if (axes[i].to == 1 && axes[count - 1].to != 1)
        std::swap(axes[i], axes[count - 1]);
    // The axis along which the source runs becomes the row's neighbour: together they make tiles.
    for (int i = 0; i + 2 < count; ++i)
      if (axes[i].from == 1)
        std::swap(axes[i], axes[count - 2]);
  }
};

/// A tile of rows x n elements.
template <typename T>
void copyTile(T *to, const T *from, const Axis &rows, const Axis &row, int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
  if constexpr (sizeof(T) == 2 || sizeof(T) == 4)
    if (row.to == 1 && row.from != 1 && rows.from == 1)
      return z_turn(to + r0 * rows.to + c0, rows.to, from + r0 + c0 * row.from, row.from, r1 - r0, c1 - c0);
  for (int64_t r = r0; r < r1; ++r) {
    T *d = to + r * rows.to;
    const T *s = from + r * rows.from;
    if (row.to == 1 && row.from == 1)
      memcpy(d + c0, s + c0, size_t(c1 - c0) * sizeof(T));
    else
      for (int64_t i = c0; i < c1; ++i)
        d[i * row.to] = s[i * row.from];
  }
}

template <typename T> void copyBox(T *to, const T *from, const Box &box, int threads) {
  constexpr int64_t kTile = 64;
  Axis row = box.axes[box.count - 1];
  Axis rows = box.count > 1 ? box.axes[box.count - 2] : Axis{1, 0, 0};
  bool tiles = row.from != 1;
  int64_t width = tiles ? kTile : row.n;
  int64_t height = tiles ? kTile : std::max<int64_t>(1, 4096 / std::max<int64_t>(1, row.n));
  int64_t across = (row.n + width - 1) / width, down = (rows.n + height - 1) / height;
  int64_t outer = 1;
  for (int i = 0; i + 2 < box.count; ++i)
    outer *= box.axes[i].n;
  // One long row is cut into pieces too.
  if (across * down * outer < threads && row.n > 4096) {
    width = (row.n + threads - 1) / threads;
    across = (row.n + width - 1) / width;
  }
  forEach(outer * down * across, threads, [&](int64_t job) {
    int64_t at = job / (down * across), toOffset = 0, fromOffset = 0;
    for (int i = box.count - 3; i >= 0; --i) {
      toOffset += at % box.axes[i].n * box.axes[i].to;
      fromOffset += at % box.axes[i].n * box.axes[i].from;
      at /= box.axes[i].n;
    }
    int64_t r0 = job / across % down * height, c0 = job % across * width;
    copyTile(to + toOffset, from + fromOffset, rows, row, r0, std::min(r0 + height, rows.n), c0, std::min(c0 + width, row.n));
  });
}
} // namespace

void copyStrided(void *to, const int64_t *toStrides, const void *from, const int64_t *fromStrides, const int64_t *dims, int ndim,
                 int64_t bytes, int threads) {
  int64_t n = 1;
  for (int i = 0; i < ndim; ++i)
    n *= dims[i];
  if (!n)
    return;
  if (n * bytes < 65536)
    threads = 1;
  Box box(toStrides, fromStrides, dims, ndim);
  switch (bytes) {
  case 8:
    return copyBox((uint64_t *)to, (const uint64_t *)from, box, threads);
  case 4:
    return copyBox((uint32_t *)to, (const uint32_t *)from, box, threads);
  case 2:
    return copyBox((uint16_t *)to, (const uint16_t *)from, box, threads);
  default:
    return copyBox((uint8_t *)to, (const uint8_t *)from, box, threads);
  }
}

} // namespace zccrt::cpu
