// concat and pad: copies of boxes.
#include "runtime/Device.h"
#include "runtime/cpu/Padding.h"
#include "runtime/cuda/Each.h"
#include "runtime/cuda/Kernels.h"

namespace zccrt::cuda {

void copyBytes(char *to, const char *from, int64_t bytes) { device()->copy(Device::Compute, to, from, bytes); }
void fillBytes(char *to, int byte, int64_t bytes) { device()->fill(Device::Compute, to, byte, bytes); }

template <typename T> static void copyElements(T *to, const Axes &target, const T *from, const Axes &source, int64_t n) {
  each(n, [=] __device__(int64_t i) { to[target.offset(i)] = from[source.offset(i)]; });
}

void copyStrided(char *to, const int64_t *toStrides, const char *from, const int64_t *fromStrides, const int64_t *dims, int ndim,
                 int64_t elemBytes) {
  int64_t n = 1;
  for (int i = 0; i < ndim; ++i)
    n *= dims[i];
  const Axes target(dims, toStrides, ndim), source(dims, fromStrides, ndim);
  switch (elemBytes) {
  case 8:
    return copyElements((uint64_t *)to, target, (const uint64_t *)from, source, n);
  case 4:
    return copyElements((uint32_t *)to, target, (const uint32_t *)from, source, n);
  case 2:
    return copyElements((uint16_t *)to, target, (const uint16_t *)from, source, n);
  default:
    return copyElements((uint8_t *)to, target, (const uint8_t *)from, source, n);
  }
}

void concatRun(char *arena, const zccrt_call *c) {
  if (!arena)
    return;
  const zccrt_tensor &y = result(c, 0);
  int64_t bytes = cpu::elemBytes(y.elem);
  int axis = int(attrInt(c, "axis", 0));
  char *to = arena + y.offset;
  for (int i = 0; i < c->nin; ++i) {
    const zccrt_tensor &x = operand(c, i);
    copyStrided(to, y.strides, arena + x.offset, x.strides, x.dims, x.ndim, bytes);
    to += x.dims[axis] * y.strides[axis] * bytes;
  }
}

// ---- pad

namespace {

struct Padding {
  cpu::PadMode mode;
  Axes x, y;
  int64_t lo[ZCCRT_MAX_DIMS];
};

} // namespace

template <typename T> static void padElements(T *y, const T *x, const Padding p, T value, int64_t n) {
  each(n, [=] __device__(int64_t i) {
    int64_t rest = i, offset = 0;
    bool isInside = true;
    for (int a = p.y.ndim - 1; a >= 0; --a) {
      int64_t at = cpu::padSource(p.mode, rest % p.y.dims[a] - p.lo[a], p.x.dims[a]);
      rest /= p.y.dims[a];
      isInside &= at >= 0;
      offset += at * p.x.strides[a];
    }
    y[i] = isInside ? x[offset] : value;
  });
}

void padRun(char *arena, const zccrt_call *c) {
  Padding p{cpu::padMode(c), Axes(operand(c, 0)), Axes(result(c, 0)), {}};
  if (!arena)
    return;
  for (int a = 0; a < p.x.ndim; ++a)
    p.lo[a] = attrAxis(c, "lo", a, 0);
  double value = attrFloat(c, "value", 0.0);
  cpu::withNumber(result(c, 0).elem, [&](auto *type) {
    using T = std::remove_pointer_t<decltype(type)>;
    padElements<T>(at<T>(arena, result(c, 0)), at<T>(arena, operand(c, 0)), p, T(value), count(result(c, 0)));
  });
}

} // namespace zccrt::cuda
