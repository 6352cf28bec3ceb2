// Matrix products: y[..., m, n] = a[..., m, k] b[..., k, n], or added to what y holds. What follows a product (bias, activation,
// residual, norm) is a generated kernel that reads it once, behind the whole product, also where it is of the same node
// (ir/Epilogue.h); measured, oneDNN's own bias gained nothing over that, nor did panels of rows (tools/bench/panels.cpp), in
// which products have other bits.
//
// f32 goes to dnnl_sgemm or to oneDNN's matmul primitive with plain layouts, whichever measured faster for the kind of shape;
// where the rows of a factor share few sets of a cache, also to dnnl_sgemm by copies of pieces of it; 16-bit floats to the
// primitive; other elements to plain loops. Batches that are one larger matrix are merged; other batches run side by side, one
// thread each, unless they are few and large. The choice depends on shapes, strides, element type and thread count only.
#include "runtime/cpu/Dnnl.h"
#include "runtime/cpu/Kernels.h"
#include "runtime/cpu/Number.h"
#include "runtime/cpu/Packing.h"
#include "runtime/cpu/ProductShape.h"
#include "runtime/cpu/StridedCopy.h"
#include "runtime/cpu/Wide.h"
#include <cstring>
#include <random>

using namespace dnnl;

namespace zccrt::cpu {

namespace {

enum class Way { Sgemm, Padded, Primitive, Loops };

/// y[m, n] = a[m, k] b[k, n].
struct Product {
  int64_t m, n, k;
  bool adds = false; ///< to what y holds
  Matrix a, b, y;
};

struct ProductPlan : Product {
  int64_t batches = 1;
  bool parallelBatches = false;
  Way way;
  bool isSgemm;                       ///< oneDNN's sgemm computes it, by itself or behind a primitive
  std::vector<int64_t> aAt, bAt, yAt; ///< element offsets of each batch's matrices
  int64_t aScratch = -1, bScratch = -1, yScratch = -1, panelScratch = 0, libraryScratch = 0, bytes = 0;
  zccrt_tensor aT, bT, yT; ///< as computed with: packed ones are dense
  const char *layout = ""; ///< of b, where the program has packed it
  Scratch scratch;
  Primitive primitive;
};

/// As the call says (`way`), where there is a choice. Without that, as measured on Zen 4 with oneDNN 2.6
/// (tools/bench/kernels.cpp): sgemm has no good path for a thin result or a thin sum, and packs a transposed b slowly unless the
/// result is wide and has rows enough to repay it (Zen 5: 20 by 2600 of 650 takes 0.60 ms, the primitive 0.24; 256 rows 2.6 and
/// 2.0; 700 rows 5.2 and 5.4); the primitive has none for vectors. On Xeon (AVX-512) sgemm packs a tall transposed a slowly where
/// its rows share few cache sets (2 KiB apart or a multiple) and few columns of b repay it.
Way wayOf(const ProductPlan &p, int32_t elem, const char *way) {
  if (elem == ZCCRT_BF16 || elem == ZCCRT_F16)
    return Way::Primitive;
  if (elem != ZCCRT_F32)
    return Way::Loops;
  if (!strcmp(way, "padded") && p.batches == 1 && aliased(p.a, p.b) != Aliased::None)
    return Way::Padded;
  if (*way)
    return strcmp(way, "primitive") ? Way::Sgemm : Way::Primitive;
  if (p.batches > 1 || p.m == 1 || p.n == 1)
    return Way::Sgemm;
  if (p.n <= 16 || p.k <= 16)
    return Way::Primitive;
  bool transposedB = p.b.transposed && !p.a.transposed;
  if (transposedB && (p.k >= p.n || p.m <= 256 || p.m * p.n * p.k <= (int64_t(1) << 25)))
    return Way::Primitive;
  bool slowPacking =
      p.a.transposed && !p.b.transposed && p.n <= 512 && p.m >= 3 * p.n && p.k >= 512 && (p.m % 512 == 0 || p.m >= (1 << 14));
  return slowPacking ? Way::Primitive : Way::Sgemm;
}

/// Of what is copied at once: 4 MiB of f32. Wide enough that oneDNN packs it where the other factor is wide, too.
constexpr int64_t kPanelColumns = 1024, kPanelTerms = 1024;

int64_t panelLd(const ProductPlan &p) {
  constexpr int64_t kLine = 16;
  return std::min(aliased(p.a, p.b) == Aliased::A ? p.m : p.n, kPanelColumns) + kLine;
}

/// The tensor's own batch axes, aligned with the result's, then its matrix. An axis that repeats one matrix is broadcast.
memory::desc describeAxes(const zccrt_tensor &t, const Matrix &x, int64_t rows, int64_t cols, int batchAxes) {
  memory::dims dims(batchAxes, 1), strides(batchAxes, 1);
  for (int i = 0; i + 2 < t.ndim; ++i)
    if (t.dims[i] != 1 && t.strides[i] != 0) {
      dims[batchAxes - (t.ndim - 2) + i] = t.dims[i];
      strides[batchAxes - (t.ndim - 2) + i] = t.strides[i];
    }
  dims.insert(dims.end(), {rows, cols});
  strides.insert(strides.end(), {x.transposed ? 1 : x.ld, x.transposed ? x.ld : 1});
  return {dims, dnnlType(t.elem), strides};
}

memory::desc describe(int64_t batches, int64_t rows, int64_t cols, const Matrix &x, int64_t step, memory::data_type type) {
  memory::dims strides = x.transposed ? memory::dims{1, x.ld} : memory::dims{x.ld, 1};
  if (batches == 1)
    return {{rows, cols}, type, strides};
  return {{batches, rows, cols}, type, {step, strides[0], strides[1]}};
}

/// Whether batches lie at equal distances in all three tensors.
bool isRegular(const ProductPlan &p) { return stepOf(p.aAt) >= 0 && stepOf(p.bAt) >= 0 && stepOf(p.yAt) >= 0; }

matmul::primitive_desc makePrimitive(const ProductPlan &p) {
  if (std::max({p.batches, p.m, p.k, p.n}) > INT32_MAX) // which oneDNN does not check, and ends in a signal
    throw error(dnnl_unimplemented, "a product has an axis of more than 2^31 - 1 elements");
  if (!isRegular(p)) {
    int axes = p.yT.ndim - 2;
    return makeProduct(describeAxes(p.aT, p.a, p.m, p.k, axes), describeAxes(p.bT, p.b, p.k, p.n, axes),
                       describeAxes(p.yT, p.y, p.m, p.n, axes), p.adds);
  }
  auto type = dnnlType(p.aT.elem);
  memory::desc a = describe(p.batches, p.m, p.k, p.a, stepOf(p.aAt), type);
  memory::desc b = *p.layout ? packedDesc(p.bT, p.layout) : describe(p.batches, p.k, p.n, p.b, stepOf(p.bAt), type);
  memory::desc y = describe(p.batches, p.m, p.n, p.y, stepOf(p.yAt), dnnlType(p.yT.elem));
  return makeProduct(a, b, y, p.adds);
}

/// Whether a batch axis of the result repeats one matrix of both factors.
bool repeatTogether(const zccrt_tensor &a, const zccrt_tensor &b) {
  for (int i = 3; i <= std::min(a.ndim, b.ndim); ++i) {
    auto repeats = [&](const zccrt_tensor &t) { return t.dims[t.ndim - i] == 1 || t.strides[t.ndim - i] == 0; };
    if (repeats(a) && repeats(b) && std::max(a.dims[a.ndim - i], b.dims[b.ndim - i]) > 1)
      return true;
  }
  return false;
}

void planOperands(ProductPlan &p, const zccrt_call *c) {
  p.adds = isSum(c);
  p.layout = packedLayout(c);
  p.aT = factor(c, 0);
  p.bT = factor(c, 1);
  p.yT = result(c, 0);
  p.m = p.yT.dims[p.yT.ndim - 2];
  p.n = p.yT.dims[p.yT.ndim - 1];
  p.k = p.aT.dims[p.aT.ndim - 1];
  p.batches = extent(p.yT, 0, p.yT.ndim - 2);
  auto pack = [&](zccrt_tensor &t, Matrix &x, int64_t &scratch) {
    if (!x.packed)
      return;
    scratch = p.bytes;
    p.bytes += aligned(count(t) * elemBytes(t.elem));
    makeDense(t);
  };
  p.a = matrixOf(p.aT);
  p.b = matrixOf(p.bT);
  p.y = matrixOf(p.yT);
  if (repeatTogether(p.aT, p.bT)) // no library repeats the result
    p.b = {false, std::max<int64_t>(1, p.n), true};
  if (p.y.transposed) // columns of a result: computed in scratch
    p.y = {false, std::max<int64_t>(1, p.n), true};
  pack(p.aT, p.a, p.aScratch);
  pack(p.bT, p.b, p.bScratch);
  pack(p.yT, p.y, p.yScratch);
}

/// Fills `p` in for a call. Merging makes the batch one; ways follow.
void makePlan(ProductPlan &p, const zccrt_call *c, For purpose) {
  useThreads(c);
  planOperands(p, c);
  if (p.batches > 1 && oneMatrix(p.bT) && rowsMerge(p.aT, p.a, p.batches) && rowsMerge(p.yT, p.y, p.batches)) {
    p.a.ld = mergedLd(p.aT, p.a);
    p.y.ld = mergedLd(p.yT, p.y);
    p.m *= p.batches;
    p.batches = 1;
  }
  for (int64_t i = 0; i < p.batches; ++i) {
    p.aAt.push_back(p.batches == 1 ? 0 : batchOffset(p.aT, p.yT, i));
    p.bAt.push_back(p.batches == 1 ? 0 : batchOffset(p.bT, p.yT, i));
    p.yAt.push_back(p.batches == 1 ? 0 : batchOffset(p.yT, p.yT, i));
  }
  p.way = *p.layout ? Way::Primitive : wayOf(p, p.aT.elem, attrString(c, "way", ""));
  p.isSgemm = p.way == Way::Sgemm || p.way == Way::Padded;
  // Side by side, the last round may leave threads idle; a single large product does not.
  int64_t rounds = (p.batches + c->threads - 1) / c->threads;
  bool balanced = p.batches * 8 >= rounds * c->threads * 7;
  p.parallelBatches = p.batches > 1 && (balanced || p.m * p.n * p.k < (int64_t(1) << 21));
  if (p.way == Way::Padded) {
    p.panelScratch = p.bytes;
    p.bytes += aligned(std::min(p.k, kPanelTerms) * panelLd(p) * int64_t(sizeof(float)));
  }
  if (p.way != Way::Primitive || !p.m || !p.n || !p.k || !p.batches)
    return;
  auto pd = makePrimitive(p);
  p.isSgemm = !std::string_view(pd.impl_info_str()).starts_with("brg");
  p.libraryScratch = p.bytes;
  p.bytes += aligned(int64_t(pd.scratchpad_desc().get_size()));
  if (purpose == For::Workspace)
    return;
  p.primitive = productPrimitive(pd);
}

void sgemm(const Product &p, const float *a, const float *b, float *y) {
  expectMultiplied(dnnl_sgemm(p.a.transposed ? 'T' : 'N', p.b.transposed ? 'T' : 'N', p.m, p.n, p.k, 1.0f, a, p.a.ld, b, p.b.ld,
                              p.adds ? 1.0f : 0.0f, y, p.y.ld));
}

/// Plain loops for the elements that libraries have no product for; rows [r0, r1).
template <typename T> void loops(const ProductPlan &p, const T *a, const T *b, T *y, int64_t r0, int64_t r1) {
  int64_t aDown = p.a.transposed ? 1 : p.a.ld, aRight = p.a.transposed ? p.a.ld : 1;
  for (int64_t i = r0; i < r1; ++i) {
    T *row = y + i * p.y.ld;
    if (!p.adds)
      std::fill_n(row, p.n, T(0));
    if (p.b.transposed) {
      for (int64_t j = 0; j < p.n; ++j) {
        Sum<T> sum = 0;
        for (int64_t k = 0; k < p.k; ++k)
          sum += Sum<T>(a[i * aDown + k * aRight]) * b[j * p.b.ld + k];
        row[j] = p.adds ? T(row[j] + sum) : T(sum);
      }
      continue;
    }
    for (int64_t k = 0; k < p.k; ++k) {
      T x = a[i * aDown + k * aRight];
      for (int64_t j = 0; j < p.n; ++j)
        row[j] = T(row[j] + x * b[k * p.b.ld + j]);
    }
  }
}

template <typename T> void runLoops(const ProductPlan &p, const T *a, const T *b, T *y, int threads) {
  if (!p.m)
    return;
  bool isLarge = p.batches * p.m * p.n * p.k > 20000;
  forEach(p.batches * p.m, isLarge ? threads : 1, [&](int64_t job) {
    int64_t i = job / p.m, row = job % p.m;
    loops(p, a + p.aAt[i], b + p.bAt[i], y + p.yAt[i], row, row + 1);
  });
}

void runSgemm(const ProductPlan &p, const float *a, const float *b, float *y, int threads) {
  forEach(p.batches, p.parallelBatches ? threads : 1, [&](int64_t i) { sgemm(p, a + p.aAt[i], b + p.bAt[i], y + p.yAt[i]); });
}

/// Piece by piece of the aliased factor, each copied to where its rows are a cache line further apart.
void runPadded(const ProductPlan &p, const float *a, const float *b, float *y, float *panel, int threads) {
  const bool ofA = aliased(p.a, p.b) == Aliased::A;
  const int64_t columns = ofA ? p.m : p.n, ld = panelLd(p);
  for (int64_t c = 0; c < columns; c += kPanelColumns)
    for (int64_t k = 0; k < p.k; k += kPanelTerms) {
      Product piece = p;
      piece.k = std::min(kPanelTerms, p.k - k);
      piece.adds |= k > 0;
      (ofA ? piece.m : piece.n) = std::min(kPanelColumns, columns - c);
      Matrix &x = ofA ? piece.a : piece.b;
      const int64_t dims[] = {piece.k, ofA ? piece.m : piece.n}, to[] = {ld, 1}, from[] = {x.ld, 1};
      copyStrided(panel, to, (ofA ? a : b) + k * x.ld + c, from, dims, 2, sizeof(float), threads);
      x.ld = ld;
      if (ofA)
        sgemm(piece, panel, b + k * (p.b.transposed ? 1 : p.b.ld), y + c * p.y.ld);
      else
        sgemm(piece, a + k * (p.a.transposed ? p.a.ld : 1), panel, y + c);
    }
}

void runPrimitive(ProductPlan &p, char *a, char *b, char *y, void *scratch) {
  p.primitive.bind(0, a);
  p.primitive.bind(1, b);
  p.primitive.bind(2, y);
  p.primitive.run(scratch);
}

void run(ProductPlan &p, char *arena, const zccrt_call *c) {
  char *scratch = p.bytes ? p.scratch.get(arena, c) : nullptr;
  const int64_t bytes = elemBytes(p.aT.elem);
  auto place = [&](const zccrt_tensor &t, int64_t packed) { return packed < 0 ? arena + t.offset : scratch + packed; };
  auto copyIn = [&](const zccrt_tensor &from, const zccrt_tensor &dense, int64_t packed) {
    if (packed >= 0)
      copyStrided(scratch + packed, dense.strides, arena + from.offset, from.strides, from.dims, from.ndim, bytes, c->threads);
  };
  copyIn(factor(c, 0), p.aT, p.aScratch);
  copyIn(factor(c, 1), p.bT, p.bScratch);
  // Where the call says now: slices and rows of a scan lie elsewhere in each iteration.
  char *a = place(factor(c, 0), p.aScratch), *b = place(factor(c, 1), p.bScratch), *y = place(result(c, 0), p.yScratch);
  if (p.adds && operand(c, 0).offset != result(c, 0).offset)
    memcpy(y, arena + operand(c, 0).offset, size_t(count(p.yT) * elemBytes(p.yT.elem)));
  if (p.primitive)
    runPrimitive(p, a, b, y, scratch ? scratch + p.libraryScratch : nullptr);
  else if (p.way == Way::Padded && p.k)
    runPadded(p, (float *)a, (float *)b, (float *)y, (float *)(scratch + p.panelScratch), c->threads);
  else if (p.way == Way::Sgemm && p.k)
    runSgemm(p, (float *)a, (float *)b, (float *)y, c->threads);
  else
    withNumber(p.yT.elem, [&](auto *type) {
      using T = std::remove_pointer_t<decltype(type)>;
      runLoops<T>(p, (T *)a, (T *)b, (T *)y, c->threads);
    });
  if (p.yScratch >= 0) {
    const zccrt_tensor &to = result(c, 0);
    copyStrided(arena + to.offset, to.strides, y, p.yT.strides, to.dims, to.ndim, bytes, c->threads);
  }
}

// ---- packing

/// Memory with numbers in it.
template <typename T> memory drawn(const memory::desc &d) {
  memory m(d, engine());
  std::minstd_rand random;
  std::uniform_real_distribution<float> numbers(-1, 1);
  std::generate_n(static_cast<T *>(m.get_data_handle()), d.get_size() / sizeof(T), [&] { return T(numbers(random)); });
  return m;
}

memory multiplied(const matmul::primitive_desc &pd, const memory &a, const memory &b) {
  memory y(pd.dst_desc(), engine()), scratch(pd.scratchpad_desc(), engine());
  memset(y.get_data_handle(), 0, pd.dst_desc().get_size());
  matmul(pd).execute(stream(), {{DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DST, y}, {DNNL_ARG_SCRATCHPAD, scratch}});
  return y;
}

/// Whether both add up the terms in the same order, as bits of a product show. That order is the library's, by the shape and by
/// what it reads: without AMX it is the same (600 random shapes in f32 and bf16, oneDNN 2.6), but nothing says so.
bool sumsAlike(const matmul::primitive_desc &plain, const matmul::primitive_desc &packed, int32_t elem) {
  bool alike = false;
  withNumber(elem, [&](auto *type) {
    using T = std::remove_pointer_t<decltype(type)>;
    memory a = drawn<T>(plain.src_desc()), b = drawn<T>(plain.weights_desc()), copy(packed.weights_desc(), engine());
    reorder(b, copy).execute(stream(), b, copy);
    const memory y = multiplied(plain, a, b), other = multiplied(packed, a, copy);
    alike = !memcmp(y.get_data_handle(), other.get_data_handle(), plain.dst_desc().get_size());
  });
  return alike;
}

} // namespace

static int64_t planWorkspace(const zccrt_call *c) {
  return orFail(c, [&] {
    ProductPlan p;
    makePlan(p, c, For::Workspace);
    return p.bytes;
  });
}

static void planAndRun(char *arena, const zccrt_call *c) {
  useThreads(c);
  orFail(c, [&] {
    if (!*c->cache) {
      auto *p = new ProductPlan;
      keepFreedMemory();
      makePlan(*p, c, For::Run);
      p->scratch.prepare(c, p->bytes);
      *c->cache = p;
    }
    if (arena)
      run(*static_cast<ProductPlan *>(*c->cache), arena, c);
  });
}

std::optional<Packing> productPacking(const zccrt_call *c) {
  constexpr int64_t kMostRows = 256;
  if (isSum(c) || needsWide(c, computesNatively(result(c, 0).elem)))
    return std::nullopt;
  return orFail(c, [&]() -> std::optional<Packing> {
    ProductPlan p;
    makePlan(p, c, For::Workspace);
    if (p.way != Way::Primitive || p.batches != 1 || p.b.packed || p.bT.ndim != 2 || p.m > kMostRows || !p.m || !p.n || !p.k)
      return std::nullopt;
    const auto plain = makePrimitive(p);
    const memory::desc any({p.k, p.n}, dnnlType(p.bT.elem), memory::format_tag::any);
    const auto packed = makeProduct(plain.src_desc(), any, plain.dst_desc(), /*adds=*/false);
    std::string layout = layoutName(packed.weights_desc());
    if (layout.empty() || packed.weights_desc() == plain.weights_desc() || !sumsAlike(plain, packed, p.bT.elem))
      return std::nullopt;
    return Packing{layout};
  });
}

int64_t matmulWorkspace(const zccrt_call *c) {
  bool isWide = needsWide(c, computesNatively(result(c, 0).elem));
  return isWide ? wideProductWorkspace(c, planWorkspace) : planWorkspace(c);
}

void matmulRun(char *arena, const zccrt_call *c) {
  useThreads(c);
  if (needsWide(c, computesNatively(result(c, 0).elem)))
    return wideProductRun(arena, c, planAndRun, planWorkspace);
  planAndRun(arena, c);
}

bool avoidsSgemm(const zccrt_call *c) {
  return orFail(c, [&] {
    ProductPlan p;
    makePlan(p, c, For::Workspace);
    return !p.isSgemm;
  });
}

int64_t addMatmulWorkspace(const zccrt_call *c) { return matmulWorkspace(c); }
void addMatmulRun(char *arena, const zccrt_call *c) { matmulRun(arena, c); }

} // namespace zccrt::cpu
