// Attention's operands as its kernels see them.
#pragma once

#include "runtime/cpu/Attention.h"
#include "runtime/cuda/Each.h"

namespace zccrt::cuda {

using cpu::kFarLogSum;

/// A [batch, heads, rows, width] operand or result whose last axis is contiguous.
struct Rows {
  char *data = nullptr;
  int64_t batch, head, row;

  Rows() = default;
  Rows(char *arena, const zccrt_tensor &t) : data(arena + t.offset), batch(t.strides[0]), head(t.strides[1]), row(t.strides[2]) {}
  template <typename T> __device__ T *at(int64_t b, int64_t h, int64_t r) const {
    return reinterpret_cast<T *>(data) + b * batch + h * head + r * row;
  }
};

/// q[B,H,S,D], k[B,Hk,T,D], v[B,Hk,T,Dv], mask broadcast to [B,H,S,T].
struct Heads {
  int64_t batch, heads, group, s, t, d, dv;
  double scale;
  bool causal;
  Rows q, k, v;
  const char *mask = nullptr;
  int32_t maskElem = 0;
  int64_t maskStrides[4] = {};

  /// Operand `first` is q; k, v and the mask follow.
  Heads(char *arena, const zccrt_call *c, int first)
      : q(arena, operand(c, first)), k(arena, operand(c, first + 1)), v(arena, operand(c, first + 2)) {
    const zccrt_tensor &qs = operand(c, first), &ks = operand(c, first + 1), &vs = operand(c, first + 2);
    batch = qs.dims[0];
    heads = qs.dims[1];
    group = heads / ks.dims[1];
    s = qs.dims[2];
    t = ks.dims[2];
    d = qs.dims[3];
    dv = vs.dims[3];
    scale = attrFloat(c, "scale", 1.0);
    causal = attrInt(c, "causal", 0);
    if (!hasOperand(c, first + 3))
      return;
    const zccrt_tensor &m = operand(c, first + 3);
    mask = arena + m.offset;
    maskElem = m.elem;
    for (int a = 0; a < m.ndim; ++a)
      maskStrides[a + 4 - m.ndim] = m.dims[a] == 1 ? 0 : m.strides[a];
  }
  ZCC_ANYWHERE int64_t queries() const { return batch * heads * s; }
  /// Keys that a query may attend: [0, this).
  __device__ int64_t keysOf(int64_t row) const {
    int64_t n = row + 1 + t - s;
    return !causal || n > t ? t : n < 0 ? 0 : n;
  }
  template <typename T, typename S> __device__ S masked(S score, int64_t b, int64_t h, int64_t row, int64_t key) const {
    if (!mask)
      return score;
    int64_t o = b * maskStrides[0] + h * maskStrides[1] + row * maskStrides[2] + key * maskStrides[3];
    if (maskElem == ZCCRT_BOOL || maskElem == ZCCRT_U8)
      return mask[o] ? score : S(-__builtin_inff());
    return score + S(reinterpret_cast<const T *>(mask)[o]);
  }
};

/// Attention in tiles (FlashAttention.cu), of 16-bit floats and of f32, which tensor cores multiply where the device may round it
/// to TF32: whether they take these heads, and the launches. `deltas` is scratch: of each query sum(dy y); with a mask, behind
/// those, of each what is taken from its scores, and of each what then is taken from the power's exponent.
bool takesTiles(const Heads &n, int32_t elem);
void attendByTiles(const Heads &n, int32_t elem, Rows y, float *lse);
void attendGradByTiles(const Heads &n, int32_t elem, Rows dy, Rows y, Rows dq, Rows dk, Rows dv, const float *lse, float *deltas);

} // namespace zccrt::cuda
