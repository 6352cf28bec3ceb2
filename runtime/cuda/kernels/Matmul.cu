// Matrix products: y[..., m, n] = a[..., m, k] b[..., k, n], or added to what y holds. Floats go to the library, batches in one
// call where one step leads from each matrix to the next; operands that have no leading dimension are copied first. Integers are
// multiplied by a kernel here.
#include "runtime/cpu/ProductShape.h"
#include "runtime/cuda/Each.h"
#include "runtime/cuda/Kernels.h"
#include "runtime/cuda/Product.h"

namespace zccrt::cuda {

using cpu::Matrix;

namespace {

struct Plan {
  int64_t m, n, k, batches;
  Matrix a, b, y;
  zccrt_tensor aT, bT, yT;                                        ///< as multiplied: packed ones are dense
  int64_t aScratch = -1, bScratch = -1, yScratch = -1, bytes = 0; ///< where packed ones lie in scratch

  explicit Plan(const zccrt_call *c);
  void pack(zccrt_tensor &t, Matrix &x, int64_t &scratch) {
    if (!x.packed)
      return;
    scratch = bytes;
    bytes += aligned(count(t) * cpu::elemBytes(t.elem));
    cpu::makeDense(t);
  }
  /// Offsets of the matrices of a batch.
  std::vector<int64_t> offsets(const zccrt_tensor &t) const {
    std::vector<int64_t> at;
    for (int64_t i = 0; i < batches; ++i)
      at.push_back(batches == 1 ? 0 : cpu::batchOffset(t, yT, i));
    return at;
  }
};

Plan::Plan(const zccrt_call *c) : aT(cpu::factor(c, 0)), bT(cpu::factor(c, 1)), yT(result(c, 0)) {
  m = yT.dims[yT.ndim - 2];
  n = yT.dims[yT.ndim - 1];
  k = aT.dims[aT.ndim - 1];
  batches = extent(yT, 0, yT.ndim - 2);
  a = cpu::matrixOf(aT);
  b = cpu::matrixOf(bT);
  y = cpu::matrixOf(yT);
  if (y.transposed) // columns of a result: computed in scratch
    y = {false, std::max<int64_t>(1, n), true};
  pack(aT, a, aScratch);
  pack(bT, b, bScratch);
  pack(yT, y, yScratch);
  if (batches > 1 && cpu::oneMatrix(bT) && cpu::rowsMerge(aT, a, batches) && cpu::rowsMerge(yT, y, batches)) {
    a.ld = cpu::mergedLd(aT, a);
    y.ld = cpu::mergedLd(yT, y);
    m *= batches;
    batches = 1;
  }
}

} // namespace

/// What libraries have no product for: a thread for each element.
template <typename T> static void multiplyHere(const Product &p) {
  int64_t aDown = p.a.isTransposed ? 1 : p.a.ld, aRight = p.a.isTransposed ? p.a.ld : 1;
  int64_t bDown = p.b.isTransposed ? 1 : p.b.ld, bRight = p.b.isTransposed ? p.b.ld : 1;
  each(p.batches * p.m * p.n, [=] __device__(int64_t e) {
    int64_t batch = e / (p.m * p.n), i = e / p.n % p.m, j = e % p.n;
    const T *a = (const T *)p.a.data + batch * p.a.step + i * aDown, *b = (const T *)p.b.data + batch * p.b.step + j * bRight;
    T *y = (T *)p.y + batch * p.stepY + i * p.ldY + j;
    T sum = p.isAdded ? *y : T(0);
    for (int64_t k = 0; k < p.k; ++k)
      sum = T(sum + a[k * aRight] * b[k * bDown]);
    *y = sum;
  });
}

static bool isForLibrary(const Product &p) {
  return cpu::withFloat(p.elem, [](auto *) {}) && p.k;
}

static void multiplyAny(const Product &p) {
  if (isForLibrary(p))
    return multiply(p);
  cpu::withNumber(p.elem, [&](auto *type) {
    using T = std::remove_pointer_t<decltype(type)>;
    multiplyHere<T>(p);
  });
}

/// Whether a sum's operand is one row for all of the result's: a bias.
static bool isRow(const zccrt_tensor &t) {
  for (int i = 0; i + 1 < t.ndim; ++i)
    if (t.dims[i] != 1 && t.strides[i] != 0)
      return false;
  return t.dims[t.ndim - 1] == 1 || t.strides[t.ndim - 1] == 1;
}

int64_t matmulWorkspace(const zccrt_call *c) { return Plan(c).bytes; }

void matmulRun(char *arena, const zccrt_call *c) {
  if (!arena)
    return startProducts();
  Plan p(c);
  const int64_t bytes = cpu::elemBytes(p.aT.elem);
  auto place = [&](const zccrt_tensor &t, int64_t packed) { return packed < 0 ? arena + t.offset : arena + c->scratch + packed; };
  auto copyIn = [&](const zccrt_tensor &from, const zccrt_tensor &dense, int64_t packed) {
    if (packed >= 0)
      copyStrided(place(from, packed), dense.strides, arena + from.offset, from.strides, from.dims, from.ndim, bytes);
  };
  const zccrt_tensor &a = cpu::factor(c, 0), &b = cpu::factor(c, 1), &y = result(c, 0);
  copyIn(a, p.aT, p.aScratch);
  copyIn(b, p.bT, p.bScratch);
  char *to = place(y, p.yScratch);
  auto aAt = p.offsets(p.aT), bAt = p.offsets(p.bT), yAt = p.offsets(p.yT);
  int64_t aStep = cpu::stepOf(aAt), bStep = cpu::stepOf(bAt), yStep = cpu::stepOf(yAt);
  bool isRegular = aStep >= 0 && bStep >= 0 && yStep >= 0;
  auto product = [&](int64_t i, const char *bias) {
    return Product{p.m,
                   p.n,
                   p.k,
                   isRegular ? p.batches : 1,
                   {place(a, p.aScratch) + aAt[i] * bytes, p.a.ld, isRegular ? aStep : 0, p.a.transposed},
                   {place(b, p.bScratch) + bAt[i] * bytes, p.b.ld, isRegular ? bStep : 0, p.b.transposed},
                   to + yAt[i] * cpu::elemBytes(p.yT.elem),
                   p.y.ld,
                   isRegular ? yStep : 0,
                   p.aT.elem,
                   p.yT.elem,
                   cpu::isSum(c) && !bias,
                   bias,
                   c->node};
  };
  const int64_t products = p.m && p.n ? isRegular ? std::min<int64_t>(1, p.batches) : p.batches : 0;
  const char *bias = nullptr;
  if (cpu::isSum(c) && operand(c, 0).offset != y.offset) { // else the result holds it
    const zccrt_tensor &x = operand(c, 0);
    if (products && isRow(x))
      if (const Product like = product(0, arena + x.offset); isForLibrary(like) && takesBias(like))
        bias = like.bias;
    if (!bias)
      copyStrided(to, p.yT.strides, arena + x.offset, x.strides, y.dims, y.ndim, cpu::elemBytes(y.elem));
  }
  for (int64_t i = 0; i < products; ++i)
    multiplyAny(product(i, bias));
  if (p.yScratch >= 0)
    copyStrided(arena + y.offset, y.strides, to, p.yT.strides, y.dims, y.ndim, bytes);
}

int64_t addMatmulWorkspace(const zccrt_call *c) { return matmulWorkspace(c); }
void addMatmulRun(char *arena, const zccrt_call *c) { matmulRun(arena, c); }

} // namespace zccrt::cuda
