// The f32 call is made once, in the prepare call: same attributes, tensors with f32 copies in scratch.
#include "runtime/cpu/Wide.h"
#include "runtime/cpu/Call.h"
#include "runtime/cpu/Dnnl.h"
#include "runtime/cpu/Number.h"

namespace zccrt::cpu {

ZCC_CLONES void narrowRow(const float *from, Bf16 *to, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    to[i] = from[i];
}
ZCC_CLONES void narrowRow(const float *from, F16 *to, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    to[i] = from[i];
}

std::optional<bool> nativeInTests;

bool computesNatively(int32_t elem) {
  if (nativeInTests && isHalf(elem))
    return *nativeInTests;
  auto has = [](dnnl::cpu_isa isa) { return (int(dnnl::get_effective_cpu_isa()) & int(isa)) == int(isa); };
  if (elem == ZCCRT_BF16)
    return has(dnnl::cpu_isa::avx512_core_bf16);
#if DNNL_VERSION_MAJOR >= 3
  if (elem == ZCCRT_F16)
    return has(dnnl::cpu_isa::avx512_core_fp16);
#endif
  return elem != ZCCRT_F16;
}

bool needsWide(const zccrt_call *c, bool native) { return !native && isHalf(result(c, 0).elem); }

namespace {

/// The axes of a view that step, from the longest step to the shortest.
std::vector<int> byStride(const zccrt_tensor &t) {
  std::vector<int> axes;
  for (int a = 0; a < t.ndim; ++a)
    if (t.strides[a] != 0 && t.dims[a] != 1)
      axes.push_back(a);
  std::stable_sort(axes.begin(), axes.end(), [&](int a, int b) { return t.strides[a] > t.strides[b]; });
  return axes;
}

struct WideCall {
  std::vector<zccrt_tensor> t;
  zccrt_call call;
  void *cache = nullptr;
  int64_t copies = 0; ///< bytes of f32 tensors, in front of the kernel's own scratch

  /// Offsets of copies count from `base`. A copy has no gaps, keeps the order of the axes in memory, and does not repeat.
  WideCall(const zccrt_call *c, int64_t base) : t(c->t, c->t + c->nin + c->nout), call(*c) {
    for (zccrt_tensor &x : t) {
      if (!isHalf(x.elem) || x.offset < 0)
        continue;
      std::vector<int> axes = byStride(x);
      x.elem = ZCCRT_F32;
      int64_t n = 1;
      for (auto a = axes.rbegin(); a != axes.rend(); ++a) {
        x.strides[*a] = n;
        n *= x.dims[*a];
      }
      for (int a = 0; a < x.ndim; ++a)
        if (x.dims[a] == 1)
          x.strides[a] = std::max<int64_t>(1, x.strides[a] ? n : 0);
      x.offset = base + copies;
      copies += aligned(n * 4);
    }
    call.t = t.data();
    call.cache = &cache;
    call.scratch = base + copies;
    call.scratch_bytes = std::max<int64_t>(0, c->scratch_bytes - copies);
  }
};

// ---- conversion

ZCC_CLONES void widenRow(const Bf16 *from, float *to, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    to[i] = from[i];
}
ZCC_CLONES void widenRow(const F16 *from, float *to, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    to[i] = from[i];
}

/// Calls f(element of the f32 copy, element of the 16-bit view, count) for pieces of rows.
template <typename F> void forPieces(const zccrt_tensor &half, int threads, F f) {
  constexpr int64_t kPiece = 4096;
  std::vector<std::pair<int64_t, int64_t>> axes; // extent and step in the view, merged, from the innermost
  std::vector<int> order = byStride(half);
  for (auto a = order.rbegin(); a != order.rend(); ++a) {
    if (!axes.empty() && half.strides[*a] == axes.back().first * axes.back().second)
      axes.back().first *= half.dims[*a];
    else
      axes.push_back({half.dims[*a], half.strides[*a]});
  }
  if (axes.empty() || axes[0].second != 1)
    axes.insert(axes.begin(), {1, 1});
  int64_t width = axes[0].first, rows = 1, pieces = (width + kPiece - 1) / kPiece;
  for (size_t i = 1; i < axes.size(); ++i)
    rows *= axes[i].first;
  forEach(rows * pieces, rows * width > 8192 ? threads : 1, [&](int64_t job) {
    int64_t row = job / pieces, begin = job % pieces * kPiece, at = begin;
    for (size_t i = 1, rest = row; i < axes.size(); rest /= axes[i++].first)
      at += int64_t(rest) % axes[i].first * axes[i].second;
    f(row * width + begin, at, std::min(kPiece, width - begin));
  });
}

template <typename F> void withHalf(int32_t elem, F f) {
  if (elem == ZCCRT_BF16)
    f((Bf16 *)nullptr);
  else
    f((F16 *)nullptr);
}

void widen(char *arena, const zccrt_tensor &wide, const zccrt_tensor &half, int threads) {
  withHalf(half.elem, [&](auto *type) {
    using T = std::remove_pointer_t<decltype(type)>;
    float *to = at<float>(arena, wide);
    const T *from = at<T>(arena, half);
    forPieces(half, threads, [=](int64_t a, int64_t b, int64_t n) { widenRow(from + b, to + a, n); });
  });
}

void narrow(char *arena, const zccrt_tensor &wide, const zccrt_tensor &half, int threads) {
  withHalf(half.elem, [&](auto *type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const float *from = at<float>(arena, wide);
    T *to = at<T>(arena, half);
    forPieces(half, threads, [=](int64_t a, int64_t b, int64_t n) { narrowRow(from + a, to + b, n); });
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
    if (made->copies > c->scratch_bytes || findAttr(c, "packed"))
      zccrt_fail(c->node, "compiled where 16-bit floats are computed natively; compile on this CPU");
    *c->cache = made;
    run(nullptr, &made->call);
  }
  if (!arena)
    return;
  WideCall &w = *static_cast<WideCall *>(*c->cache);
  for (int i = 0; i < c->nin + c->nout; ++i)
    if (!isHalf(c->t[i].elem)) // slices and rows of a scan lie elsewhere in each iteration
      w.t[i].offset = c->t[i].offset;
  for (int i = 0; i < c->nin; ++i)
    if (hasOperand(c, i) && isHalf(c->t[i].elem))
      widen(arena, w.t[i], c->t[i], c->threads);
  run(arena, &w.call);
  for (int i = c->nin; i < c->nin + c->nout; ++i)
    if (isHalf(c->t[i].elem))
      narrow(arena, w.t[i], c->t[i], c->threads);
}

// ---- products by blocks of rows

namespace {

/// A product of matrices whose f32 copies of a and y would take much: they are made for a block of rows at a time.
struct RowBlocks {
  static int64_t rowsOf(const zccrt_call *c) {
    const zccrt_tensor &a = operand(c, c->nin - 2), &y = result(c, 0);
    bool matrices = a.ndim == 2 && operand(c, c->nin - 1).ndim == 2;
    return matrices ? wideBlockRows(y.dims[0], a.dims[1], y.dims[1]) : 0;
  }

  std::vector<zccrt_tensor> t;
  zccrt_call part;
  int64_t rows, last; ///< of a block, and of the last one
  WideCall block, end;

  RowBlocks(const zccrt_call *c, int64_t base)
      : t(c->t, c->t + c->nin + c->nout), part(*c), rows(rowsOf(c)), last((result(c, 0).dims[0] - 1) % rows + 1),
        block(take(rows), base), end(take(last), base) {
    for (size_t i = 0; i < t.size(); ++i)
      end.t[i].offset = block.t[i].offset;
    end.call.scratch = block.call.scratch;
    end.call.scratch_bytes = block.call.scratch_bytes;
  }

  /// Its tensors that have the rows: a sum that the product is added to, the first factor, the result.
  static std::vector<int> byRows(const zccrt_call *c) {
    return c->nin == 3 ? std::vector<int>{0, 1, c->nin} : std::vector<int>{0, c->nin};
  }

private:
  const zccrt_call *take(int64_t n) {
    for (int i : byRows(&part))
      t[size_t(i)].dims[0] = n;
    part.t = t.data();
    return &part;
  }
};

} // namespace

int64_t wideProductWorkspace(const zccrt_call *c, zccrt_workspace workspace) {
  if (!RowBlocks::rowsOf(c))
    return wideWorkspace(c, workspace);
  RowBlocks b(c, 0);
  return b.block.copies + std::max(workspace(&b.block.call), workspace(&b.end.call));
}

void wideProductRun(char *arena, const zccrt_call *c, zccrt_kernel run, zccrt_workspace workspace) {
  if (!RowBlocks::rowsOf(c))
    return wideRun(arena, c, run, workspace);
  if (!*c->cache) {
    auto *made = new RowBlocks(c, c->scratch);
    if (made->block.copies > c->scratch_bytes || findAttr(c, "packed"))
      zccrt_fail(c->node, "compiled where 16-bit floats are computed natively; compile on this CPU");
    *c->cache = made;
    run(nullptr, &made->block.call);
    run(nullptr, &made->end.call);
  }
  if (!arena)
    return;
  RowBlocks &b = *static_cast<RowBlocks *>(*c->cache);
  widen(arena, b.block.t[size_t(c->nin - 1)], operand(c, c->nin - 1), c->threads);
  const int64_t m = result(c, 0).dims[0];
  for (int64_t at = 0; at < m; at += b.rows) {
    WideCall &w = m - at < b.rows ? b.end : b.block;
    auto rowsOf = [&](int i) {
      zccrt_tensor x = c->t[i];
      x.dims[0] = std::min(b.rows, m - at);
      x.offset += at * x.strides[0] * elemBytes(x.elem);
      return x;
    };
    for (int i = 0; i + 1 < c->nin; ++i)
      widen(arena, w.t[size_t(i)], rowsOf(i), c->threads);
    run(arena, &w.call);
    narrow(arena, w.t[size_t(c->nin)], rowsOf(c->nin), c->threads);
  }
}

} // namespace zccrt::cpu
