// random_normal: draws by position (ir/Philox.h); operands seed, step and micro. Uniform numbers are generated loops' (Draws.h).
#include "ir/Philox.h"
#include "runtime/cpu/Call.h"
#include "runtime/cpu/Kernels.h"
#include "runtime/cpu/VecMath.h"

namespace zccrt::cpu {

namespace {

struct Draw {
  uint64_t seed;
  uint32_t id, time;

  Draw(char *arena, const zccrt_call *c)
      : seed(uint64_t(*at<int64_t>(arena, operand(c, 0)))), id(uint32_t(attrInt(c, "id", 0))),
        time(zcc::philoxTime(*at<int64_t>(arena, operand(c, 1)), *at<int64_t>(arena, operand(c, 2)))) {}
};

/// Four numbers of each block [b0, b1).
ZCC_CLONES void uniformBlocks(const Draw &d, float *y, int64_t b0, int64_t b1) {
  for (int64_t b = b0; b < b1; ++b) {
    zcc::PhiloxBlock r = zcc::philox(d.seed, uint64_t(b), d.id, d.time);
    y[4 * b] = zcc::philoxUnit(r.word[0]);
    y[4 * b + 1] = zcc::philoxUnit(r.word[1]);
    y[4 * b + 2] = zcc::philoxUnit(r.word[2]);
    y[4 * b + 3] = zcc::philoxUnit(r.word[3]);
  }
}

/// Box and Muller in float: pairs (u, v) in place become two normal numbers.
ZCC_CLONES void normalPairs(float *y, int64_t pairs) {
  for (int64_t i = 0; i < pairs; ++i) {
    float u = y[2 * i], angle = 6.2831853f * y[2 * i + 1];
    float radius = __builtin_sqrtf(-2.0f * vlog(1.0f - u));
    y[2 * i] = radius * vcosNear(angle);
    y[2 * i + 1] = radius * vsinNear(angle);
  }
}

void drawFloats(float *y, int64_t n, const Draw &d, const zccrt_call *c) {
  constexpr int64_t kBlocks = 256; // 4 KiB at a time
  int64_t blocks = n / 4;
  forEach((blocks + kBlocks - 1) / kBlocks, threadsFor(c, n * 16), [&](int64_t i) {
    int64_t b = i * kBlocks, end = std::min(b + kBlocks, blocks);
    uniformBlocks(d, y, b, end);
    normalPairs(y + 4 * b, 2 * (end - b));
  });
  if (n % 4 == 0)
    return;
  float last[4];
  zcc::PhiloxBlock r = zcc::philox(d.seed, uint64_t(blocks), d.id, d.time);
  for (int i = 0; i < 4; ++i)
    last[i] = zcc::philoxUnit(r.word[i]);
  normalPairs(last, 2);
  std::copy_n(last, n % 4, y + 4 * blocks);
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
