// Products by cuBLASLt, which is loaded when the first one is queued. Its matrices are stored column by column: what is y = a b
// row by row is y^T = b^T a^T there. The algorithm is chosen once for a kind of product.
#include "runtime/Device.h"
#include "runtime/DeviceMemory.h"
#include "runtime/Fail.h"
#include "runtime/cuda/Product.h"
#include "runtime/cuda/real/Launch.h"
#include "runtime/cuda/real/Library.h"
#include <cublasLt.h>
#include <map>
#include <tuple>

namespace zccrt::cuda {

namespace {

/// The functions that are used.
struct Library {
#define ZCC_CUBLASLT(F)                                                                                                          \
  F(cublasLtCreate)                                                                                                              \
  F(cublasLtMatmulDescCreate)                                                                                                    \
  F(cublasLtMatmulDescSetAttribute)                                                                                              \
  F(cublasLtMatrixLayoutCreate)                                                                                                  \
  F(cublasLtMatrixLayoutSetAttribute)                                                                                            \
  F(cublasLtMatmulPreferenceCreate)                                                                                              \
  F(cublasLtMatmulPreferenceSetAttribute)                                                                                        \
  F(cublasLtMatmulAlgoGetHeuristic)                                                                                              \
  F(cublasLtMatmul)
#define ZCC_MEMBER(NAME) decltype(::NAME) *NAME = nullptr;
  ZCC_CUBLASLT(ZCC_MEMBER)
#undef ZCC_MEMBER
  cublasLtHandle_t handle = nullptr;
  void *workspace = nullptr;

  Library();
};

Library::Library() {
  // The one that was built with, which knows the same GPUs; then the other.
  void *file = CUBLAS_VER_MAJOR >= 13 ? openLibrary({"libcublasLt.so.13", "libcublasLt.so.12"})
                                      : openLibrary({"libcublasLt.so.12", "libcublasLt.so.13"});
  if (!file)
    fail("libcublasLt is not found: install cuBLAS (pip has nvidia-cublas), or name its folder in LD_LIBRARY_PATH");
#define ZCC_LOAD(NAME) load(NAME, file, #NAME);
  ZCC_CUBLASLT(ZCC_LOAD)
#undef ZCC_LOAD
  if (cublasLtCreate(&handle) != CUBLAS_STATUS_SUCCESS)
    fail("cuBLASLt does not start");
  workspace = device()->take(kProductWorkspace);
}

Library &library() {
  static Library l;
  return l;
}

cudaDataType_t typeOf(int32_t elem) {
  return elem == ZCCRT_F32 ? CUDA_R_32F : elem == ZCCRT_F64 ? CUDA_R_64F : elem == ZCCRT_BF16 ? CUDA_R_16BF : CUDA_R_16F;
}

/// The largest power of two up to 16 that an address is a multiple of: algorithms ask for no more, and whatever the plan of
/// memory, the same one is chosen.
uint32_t alignmentOf(const char *p) {
  uint32_t a = 16;
  while (uintptr_t(p) % a)
    a /= 2;
  return a;
}

/// A product of a kind, ready to run.
struct Prepared {
  cublasLtMatmulDesc_t desc;
  cublasLtMatrixLayout_t first, second, result; ///< b, a and y
  cublasLtMatmulAlgo_t algo;
  bool isThere = false; ///< an algorithm

  explicit Prepared(const Product &p);
  void setBias(const Product &p) const;
};

void expect(cublasStatus_t s, const Product &p, const char *what) {
  if (s != CUBLAS_STATUS_SUCCESS)
    zccrt_fail(p.node, "cuBLASLt: %s fails with status %d", what, int(s));
}

/// The layout of what is rows x columns row by row: columns x rows.
cublasLtMatrixLayout_t layout(const Product &p, int32_t elem, int64_t rows, int64_t columns, int64_t ld, int64_t step) {
  Library &l = library();
  cublasLtMatrixLayout_t out;
  expect(l.cublasLtMatrixLayoutCreate(&out, typeOf(elem), uint64_t(columns), uint64_t(rows), ld), p, "a layout");
  int32_t batches = int32_t(p.batches);
  expect(l.cublasLtMatrixLayoutSetAttribute(out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batches, sizeof batches), p, "a batch");
  expect(l.cublasLtMatrixLayoutSetAttribute(out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &step, sizeof step), p, "a batch");
  return out;
}

cublasLtMatrixLayout_t layoutOf(const Product &p, const Factor &f, int64_t rows, int64_t columns) {
  return f.isTransposed ? layout(p, p.elem, columns, rows, f.ld, f.step) : layout(p, p.elem, rows, columns, f.ld, f.step);
}

Prepared::Prepared(const Product &p) {
  Library &l = library();
  bool isDouble = p.elem == ZCCRT_F64, isTf32 = p.elem == ZCCRT_F32 && device()->multipliesInTf32;
  cublasComputeType_t by = isDouble ? CUBLAS_COMPUTE_64F : isTf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  expect(l.cublasLtMatmulDescCreate(&desc, by, isDouble ? CUDA_R_64F : CUDA_R_32F), p, "a product");
  for (auto [attribute, isTransposed] :
       {std::pair(CUBLASLT_MATMUL_DESC_TRANSA, p.b.isTransposed), std::pair(CUBLASLT_MATMUL_DESC_TRANSB, p.a.isTransposed)}) {
    cublasOperation_t op = isTransposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    expect(l.cublasLtMatmulDescSetAttribute(desc, attribute, &op, sizeof op), p, "a transposition");
  }
  if (p.bias) {
    const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    expect(l.cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue), p, "an epilogue");
    setBias(p);
  }
  first = layoutOf(p, p.b, p.k, p.n);
  second = layoutOf(p, p.a, p.m, p.k);
  result = layout(p, p.elemY, p.m, p.n, p.ldY, p.stepY);
  cublasLtMatmulPreference_t preference;
  expect(l.cublasLtMatmulPreferenceCreate(&preference), p, "a preference");
  auto prefer = [&](cublasLtMatmulPreferenceAttributes_t what, auto value) {
    expect(l.cublasLtMatmulPreferenceSetAttribute(preference, what, &value, sizeof value), p, "a preference");
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t(kProductWorkspace));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignmentOf(p.b.data));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignmentOf(p.a.data));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignmentOf(p.y));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignmentOf(p.y));
  // Parts of a sum are added up in one order, and rounded to the result's type at the end.
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32_t(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  cublasLtMatmulHeuristicResult_t found{};
  int count = 0;
  const cublasStatus_t status =
      l.cublasLtMatmulAlgoGetHeuristic(l.handle, desc, first, second, result, result, preference, 1, &found, &count);
  if (status != CUBLAS_STATUS_NOT_SUPPORTED) // which says, as no results do, that there is none
    expect(status, p, "the choice of an algorithm");
  isThere = status == CUBLAS_STATUS_SUCCESS && count > 0 && found.state == CUBLAS_STATUS_SUCCESS;
  algo = found.algo;
}

/// It is the result's type.
void Prepared::setBias(const Product &p) const {
  expect(library().cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &p.bias, sizeof p.bias), p, "a bias");
}

/// By which products of a kind are known.
auto keyOf(const Product &p) {
  return std::tuple(p.m, p.n, p.k, p.batches, p.a.ld, p.a.step, p.a.isTransposed, p.b.ld, p.b.step, p.b.isTransposed, p.ldY,
                    p.stepY, p.elem, p.elemY, p.bias != nullptr, alignmentOf(p.a.data), alignmentOf(p.b.data), alignmentOf(p.y));
}

} // namespace

void startProducts() { library(); }

static const Prepared &preparedFor(const Product &p) {
  static std::map<decltype(keyOf(p)), Prepared> known;
  return known.try_emplace(keyOf(p), p).first->second;
}

bool takesBias(const Product &p) {
  return p.elem != ZCCRT_F64 && p.elem == p.elemY && hasAlignedBias(p) && preparedFor(p).isThere;
}

void multiplyBatch(const Product &p) {
  Library &l = library();
  const Prepared &r = preparedFor(p);
  if (!r.isThere)
    zccrt_fail(p.node, "cuBLASLt has no algorithm for this product");
  if (p.bias)
    r.setBias(p);
  double one = 1, add = p.isAdded;
  float oneF = 1, addF = p.isAdded;
  bool isDouble = p.elem == ZCCRT_F64;
  expect(l.cublasLtMatmul(l.handle, r.desc, isDouble ? (void *)&one : &oneF, p.b.data, r.first, p.a.data, r.second,
                          isDouble ? (void *)&add : &addF, p.y, r.result, p.y, r.result, &r.algo, l.workspace, kProductWorkspace,
                          streamOf(Device::Compute)),
         p, "a product");
}

} // namespace zccrt::cuda
