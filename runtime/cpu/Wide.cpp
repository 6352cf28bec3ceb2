// The f32 call is made once, in the prepare call: same attributes, tensors with f32 copies in
// scratch.
#include "runtime/cpu/Wide.h"
#include "runtime/cpu/Call.h"
#include "runtime/cpu/Dnnl.h"
#include "runtime/cpu/Number.h"

namespace zccrt::cpu {

bool computesNatively(int32_t elem) {
  auto has = [](dnnl::cpu_isa isa) {
    return (int(dnnl::get_effective_cpu_isa()) & int(isa)) == int(isa);
  };
  if (elem == ZCCRT_BF16)
    return has(dnnl::cpu_isa::avx512_core_bf16);
#if DNNL_VERSION_MAJOR >= 3
  if (elem == ZCCRT_F16)
    return has(dnnl::cpu_isa::avx512_core_fp16);
#endif
  return elem != ZCCRT_F16;
}

static bool isHalf(int32_t elem) { return elem == ZCCRT_BF16 || elem == ZCCRT_F16; }

bool needsWide(const zccrt_call *c, bool native) { return !native && isHalf(result(c, 0).elem); }

namespace {

struct WideCall {
  std::vector<zccrt_tensor> t;
  zccrt_call call;
  void *cache = nullptr;
  int64_t copies = 0; ///< bytes of f32 tensors, in front of the kernel's own scratch

  /// Offsets of copies count from `base`.
  WideCall(const zccrt_call *c, int64_t base) : t(c->t, c->t + c->nin + c->nout), call(*c) {
    for (zccrt_tensor &x : t) {
      if (!isHalf(x.elem) || x.offset < 0)
        continue;
      x.elem = ZCCRT_F32;
      int64_t n = 1;
      for (int a = x.ndim - 1; a >= 0; --a) {
        bool repeated = x.strides[a] == 0; // is copied once
        x.strides[a] = repeated ? 0 : n;
        n *= repeated ? 1 : x.dims[a];
      }
      x.offset = base + copies;
      copies += aligned(n * 4);
    }
    call.t = t.data();
    call.cache = &cache;
    call.scratch = base + copies;
    call.scratch_bytes = std::max<int64_t>(0, c->scratch_bytes - copies);
  }
};

/// Calls f(element of a, element of b) for the elements of two views of the same dims, where `a`
/// does not repeat.
template <typename F>
void forPairs(const zccrt_tensor &a, const zccrt_tensor &b, int threads, F f) {
  int64_t width = a.ndim && a.strides[a.ndim - 1] ? a.dims[a.ndim - 1] : 1, rows = 1;
  for (int i = 0; i + 1 < a.ndim; ++i)
    rows *= a.strides[i] ? a.dims[i] : 1;
  int64_t stepA = a.ndim ? a.strides[a.ndim - 1] : 0, stepB = a.ndim ? b.strides[a.ndim - 1] : 0;
#pragma omp parallel for schedule(static) num_threads(threads) if (rows * width > 8192)
  for (int64_t row = 0; row < rows; ++row) {
    int64_t rest = row, atA = 0, atB = 0;
    for (int i = a.ndim - 2; i >= 0; --i) {
      if (!a.strides[i])
        continue;
      atA += rest % a.dims[i] * a.strides[i];
      atB += rest % a.dims[i] * b.strides[i];
      rest /= a.dims[i];
    }
    for (int64_t i = 0; i < width; ++i)
      f(atA + i * stepA, atB + i * stepB);
  }
}

template <typename F> void withHalf(int32_t elem, F f) {
  if (elem == ZCCRT_BF16)
    f((Bf16 *)nullptr);
  else
    f((_Float16 *)nullptr);
}

void widen(char *arena, const zccrt_tensor &wide, const zccrt_tensor &half, int threads) {
  withHalf(half.elem, [&](auto *type) {
    using T = std::remove_pointer_t<decltype(type)>;
    float *to = at<float>(arena, wide);
    const T *from = at<T>(arena, half);
    forPairs(wide, half, threads, [=](int64_t a, int64_t b) { to[a] = float(from[b]); });
  });
}

void narrow(char *arena, const zccrt_tensor &wide, const zccrt_tensor &half, int threads) {
  withHalf(half.elem, [&](auto *type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const float *from = at<float>(arena, wide);
    T *to = at<T>(arena, half);
    forPairs(wide, half, threads, [=](int64_t a, int64_t b) { to[b] = T(from[a]); });
  });
}

} // namespace

int64_t wideWorkspace(const zccrt_call *c, zccrt_workspace workspace) {
  WideCall w(c, 0);
  return w.copies + workspace(&w.call);
}

void wideRun(char *arena, const zccrt_call *c, zccrt_kernel run, zccrt_workspace workspace) {
  if (!*c->cache) {
    auto *made = new WideCall(c, c->scratch);
    if (made->copies > c->scratch_bytes)
      zccrt_fail(c->node,
                 "compiled where 16-bit floats are computed natively; compile on this CPU");
    *c->cache = made;
    run(nullptr, &made->call);
  }
  if (!arena)
    return;
  WideCall &w = *static_cast<WideCall *>(*c->cache);
  bool accumulate = attrInt(c, "accumulate", 0);
  for (int i = 0; i < c->nin + c->nout; ++i)
    if (c->t[i].offset >= 0 && isHalf(c->t[i].elem) && (i < c->nin || accumulate))
      widen(arena, w.t[i], c->t[i], c->threads);
  run(arena, &w.call);
  for (int i = c->nin; i < c->nin + c->nout; ++i)
    if (isHalf(c->t[i].elem))
      narrow(arena, w.t[i], c->t[i], c->threads);
}

} // namespace zccrt::cpu
