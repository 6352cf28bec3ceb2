// What stands for cuBLASLt under emulation: the CPU's products on the emulated memory, after the library's rules have been
// checked.
#include "runtime/Device.h"
#include "runtime/DeviceMemory.h"
#include "runtime/cpu/Number.h"
#include "runtime/cpu/Parallel.h"
#include "runtime/cuda/Cuda.h"
#include "runtime/cuda/Product.h"
#include "runtime/cuda/Tensor.h"
#include <dnnl.h>
#include <omp.h>
#include <vector>

namespace zccrt::cuda {

namespace {

/// The library's matrices are stored column by column: a row-major one is its transpose, with this many rows.
int64_t storedWidth(const Factor &f, int64_t rows, int64_t columns) { return f.isTransposed ? rows : columns; }

void check(const Product &p) {
  auto refuse = [&](const char *what) { zccrt_fail(p.node, "a product that cuBLASLt would refuse: %s", what); };
  if (p.m < 1 || p.n < 1 || p.k < 1 || p.batches < 1)
    refuse("an extent below 1");
  if (p.batches > kMostBatches)
    refuse("a batch of more than 65535");
  if (p.a.ld < storedWidth(p.a, p.m, p.k) || p.b.ld < storedWidth(p.b, p.k, p.n) || p.ldY < p.n)
    refuse("a leading dimension below the rows' length");
  if (p.elem != p.elemY && !(p.elemY == ZCCRT_F32 && (p.elem == ZCCRT_BF16 || p.elem == ZCCRT_F16)))
    refuse("no such combination of elements");
  int64_t bytes = p.elem == ZCCRT_F64 ? 8 : p.elem == ZCCRT_F32 ? 4 : 2;
  if ((uintptr_t(p.a.data) | uintptr_t(p.b.data)) % bytes || uintptr_t(p.y) % (p.elemY == ZCCRT_F32 ? 4 : bytes))
    refuse("an address that is no multiple of the element");
  if (p.bias && (p.bias == p.y || p.isAdded || p.elem == ZCCRT_F64 || p.elem != p.elemY || !hasAlignedBias(p)))
    refuse("such a bias");
  if (p.batches > 1 && p.stepY < p.n)
    refuse("results of a batch overlap");
}

template <typename T> void inLoops(const Product &p, const T *a, const T *b, T *y) {
  int64_t aDown = p.a.isTransposed ? 1 : p.a.ld, aRight = p.a.isTransposed ? p.a.ld : 1;
  int64_t bDown = p.b.isTransposed ? 1 : p.b.ld, bRight = p.b.isTransposed ? p.b.ld : 1;
#pragma omp parallel for if (p.m * p.n * p.k > 20000)
  for (int64_t i = 0; i < p.m; ++i)
    for (int64_t j = 0; j < p.n; ++j) {
      T sum = 0;
      for (int64_t k = 0; k < p.k; ++k)
        sum += a[i * aDown + k * aRight] * b[k * bDown + j * bRight];
      y[i * p.ldY + j] = p.isAdded ? y[i * p.ldY + j] + sum : sum;
    }
}

void sgemm(const Product &p, const float *a, int64_t lda, const float *b, int64_t ldb, float *y, int64_t ldy, bool isAdded) {
  if (dnnl_sgemm(p.a.isTransposed ? 'T' : 'N', p.b.isTransposed ? 'T' : 'N', p.m, p.n, p.k, 1.0f, a, lda, b, ldb,
                 isAdded ? 1.0f : 0.0f, y, ldy) != dnnl_success)
    zccrt_fail(p.node, "sgemm failed");
}

/// A matrix in f32, its rows dense.
template <typename T> std::vector<float> widened(const Factor &f, const T *data, int64_t rows, int64_t columns) {
  if (f.isTransposed)
    std::swap(rows, columns);
  std::vector<float> out(rows * columns);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j)
      out[i * columns + j] = data[i * f.ld + j];
  return out;
}

/// The product and its bias in f32, as they are stored.
void narrowly(const Product &p, const float *a, int64_t lda, const float *b, int64_t ldb, float *y) {
  sgemm(p, a, lda, b, ldb, y, p.ldY, p.isAdded);
  for (int64_t i = 0; p.bias && i < p.m; ++i)
    for (int64_t j = 0; j < p.n; ++j)
      y[i * p.ldY + j] += ((const float *)p.bias)[j];
}

/// 16-bit floats, and what is rounded to TF32, are multiplied and summed in f32, and rounded once.
template <typename T> void widely(const Product &p, const T *a, const T *b, char *y) {
  auto x = widened(p.a, a, p.m, p.k), w = widened(p.b, b, p.k, p.n);
  if constexpr (std::is_same_v<T, float>)
    for (auto *factor : {&x, &w})
      for (float &e : *factor)
        e = roundedToTf32(e);
  int64_t lda = storedWidth(p.a, p.m, p.k), ldb = storedWidth(p.b, p.k, p.n);
  if (p.elemY == ZCCRT_F32)
    return narrowly(p, x.data(), lda, w.data(), ldb, (float *)y);
  std::vector<float> sum(p.m * p.n);
  sgemm(p, x.data(), lda, w.data(), ldb, sum.data(), p.n, false);
  for (int64_t i = 0; i < p.m; ++i)
    for (int64_t j = 0; j < p.n; ++j) {
      T &to = ((T *)y)[i * p.ldY + j];
      const float product = sum[i * p.n + j];
      to = T(p.bias ? product + float(((const T *)p.bias)[j]) : p.isAdded ? product + float(to) : product);
    }
}

void run(const Product &p) {
  cpu::withFloat(p.elem, [&](auto *type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const bool isTf32 = device()->multipliesInTf32;
    int64_t bytesY = p.elemY == ZCCRT_F32 ? 4 : int64_t(sizeof(T));
    auto one = [&](int64_t i) {
      const T *a = (const T *)p.a.data + i * p.a.step, *b = (const T *)p.b.data + i * p.b.step;
      char *y = p.y + i * p.stepY * bytesY;
      if constexpr (std::is_same_v<T, float>)
        isTf32 ? widely(p, a, b, y) : narrowly(p, a, p.a.ld, b, p.b.ld, (float *)y);
      else if constexpr (std::is_same_v<T, double>)
        inLoops(p, a, b, (double *)y);
      else
        widely(p, a, b, y);
    };
    cpu::forEach(p.batches, p.batches >= 4 ? omp_get_max_threads() : 1, one);
  });
}

} // namespace

void startProducts() {
  static char *const workspace = device()->take(kProductWorkspace); // as the library does
  (void)workspace;
}

bool takesBias(const Product &p) { return p.elem != ZCCRT_F64 && p.elem == p.elemY && hasAlignedBias(p); }

void multiplyBatch(const Product &p) {
  check(p);
  emulate::queue(kComputeStream, [=] { run(p); });
}

} // namespace zccrt::cuda
