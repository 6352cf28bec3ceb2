// random_normal: draws by position (ir/Philox.h), the CPU's bits; operands seed, step and micro.
#include "ir/Philox.h"
#include "runtime/cuda/Each.h"
#include "runtime/cuda/Kernels.h"

namespace zccrt::cuda {

namespace {

/// Where seed and time lie on the device.
struct Draw {
  const int64_t *seed, *step, *micro;
  uint32_t id;

  Draw(char *arena, const zccrt_call *c)
      : seed(at<int64_t>(arena, operand(c, 0))), step(at<int64_t>(arena, operand(c, 1))),
        micro(at<int64_t>(arena, operand(c, 2))), id(uint32_t(attrInt(c, "id", 0))) {}
  __device__ zcc::PhiloxBlock block(int64_t b) const {
    return zcc::philox(zcc::philoxSeed(*seed, *step), uint64_t(b), id, zcc::philoxTime(*step, *micro));
  }
};

/// Box and Muller, in place.
__device__ void normalPair(float &u, float &v) {
  float angle = 6.2831853f * v, radius = __builtin_sqrtf(-2.0f * vlog(1.0f - u));
  u = radius * vcosNear(angle);
  v = radius * vsinNear(angle);
}
__device__ void normalPair(double &u, double &v) {
  double angle = 6.283185307179586 * v, radius = __builtin_sqrt(-2 * vlog(1 - u));
  u = radius * vcos(angle);
  v = radius * vsin(angle);
}

} // namespace

template <typename T> static void drawBlocks(const Draw d, T *y, int64_t n) {
  each((n + 3) / 4, [=] __device__(int64_t b) {
    zcc::PhiloxBlock r = d.block(b);
    T x[4];
    for (int i = 0; i < 4; ++i)
      x[i] = zcc::philoxUnit(r.word[i]);
    normalPair(x[0], x[1]);
    normalPair(x[2], x[3]);
    for (int i = 0; i < 4 && 4 * b + i < n; ++i)
      y[4 * b + i] = x[i];
  });
}

void randomNormalRun(char *arena, const zccrt_call *c) {
  const zccrt_tensor &y = result(c, 0);
  if (y.elem != ZCCRT_F32 && y.elem != ZCCRT_F64)
    zccrt_fail(c->node, "random numbers are drawn as f32 or f64");
  if (!arena)
    return;
  if (y.elem == ZCCRT_F32)
    drawBlocks(Draw(arena, c), at<float>(arena, y), count(y));
  else
    drawBlocks(Draw(arena, c), at<double>(arena, y), count(y));
}

} // namespace zccrt::cuda
