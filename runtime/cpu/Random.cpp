// random_normal: draws by position (ir/Philox.h); operands seed, step and micro. Uniform numbers are generated loops' (Draws.h).
#include "ir/Philox.h"
#include "runtime/cpu/Call.h"
#include "runtime/cpu/Draws.h"
#include "runtime/cpu/Kernels.h"

namespace zccrt::cpu {

namespace {

struct Draw {
  uint64_t seed;
  uint32_t id, time;

  Draw(char *arena, const zccrt_call *c)
      : seed(zcc::philoxSeed(*at<int64_t>(arena, operand(c, 0)), *at<int64_t>(arena, operand(c, 1)))),
        id(uint32_t(attrInt(c, "id", 0))),
        time(zcc::philoxTime(*at<int64_t>(arena, operand(c, 1)), *at<int64_t>(arena, operand(c, 2)))) {}
};

/// `n` numbers from element `first` on, a multiple of 4, by Box and Muller in float: pairs (u, v) become two of them.
ZCC_CLONES void normalRun(const Draw &d, float *to, int64_t first, int64_t n) {
  alignas(64) float y[kZDrawBuffer];
  z_uniform_blocks(y, first, n, int64_t(d.seed), int64_t(uint64_t(d.id) << 32 | d.time));
  for (int64_t i = 0; i < (n + 1) / 2; ++i) {
    float u = y[2 * i], angle = 6.2831853f * y[2 * i + 1];
    float radius = __builtin_sqrtf(-2.0f * vlog(1.0f - u));
    y[2 * i] = radius * vcosNear(angle);
    y[2 * i + 1] = radius * vsinNear(angle);
  }
  std::copy_n(y, n, to);
}

void drawFloats(float *y, int64_t n, const Draw &d, const zccrt_call *c) {
  forEach((n + kZDraws - 1) / kZDraws, threadsFor(c, n * 16), [&](int64_t i) {
    const int64_t first = i * kZDraws;
    normalRun(d, y + first, first, std::min(kZDraws, n - first));
  });
}

} // namespace

void randomNormalRun(char *arena, const zccrt_call *c) {
  if (!arena)
    return;
  const zccrt_tensor &y = result(c, 0);
  Draw d(arena, c);
  if (y.elem == ZCCRT_F32)
    return drawFloats(at<float>(arena, y), count(y), d, c);
  if (y.elem != ZCCRT_F64)
    zccrt_fail(c->node, "random numbers are drawn as f32 or f64");
  double *to = at<double>(arena, y);
  forEach(count(y), threadsFor(c, count(y) * 64),
          [&](int64_t e) { to[e] = zcc::philoxNormal(d.seed, uint64_t(e), d.id, d.time); });
}

} // namespace zccrt::cpu
