// Products of 16x16 pieces by a warp: a GPU's tensor cores; under emulation, and where a GPU has none for the element, loops.
#pragma once

#include "runtime/cpu/Number.h"
#include "runtime/cuda/Cuda.h"
#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>
#endif

namespace zccrt::cuda {

constexpr int kPiece = 16; ///< its side

/// Sums in loops: a lane has half a row.
class LoopPiece {
public:
  __device__ LoopPiece() {
    for (float &x : sums)
      x = 0;
  }
  template <bool aAcross, bool bAcross, typename T> __device__ void add(const T *a, int lda, const T *b, int ldb) {
    for (int k = 0; k < kPiece; ++k) {
      float x = aAcross ? a[k * lda + row()] : a[row() * lda + k];
      for (int j = 0; j < kColumns; ++j)
        sums[j] += x * float(bAcross ? b[(column() + j) * ldb + k] : b[k * ldb + column() + j]);
    }
  }
  __device__ void store(float *to, int ld) const {
    for (int j = 0; j < kColumns; ++j)
      to[row() * ld + column() + j] = sums[j];
  }

private:
  static constexpr int kColumns = kPiece * kPiece / kWarp;
  float sums[kColumns];
  __device__ static int row() { return int(threadIdx.x % kWarp) / 2; }
  __device__ static int column() { return int(threadIdx.x % 2) * kColumns; }
};

#ifdef __CUDACC__
template <typename E> class CorePiece {
public:
  __device__ CorePiece() { nvcuda::wmma::fill_fragment(sums, 0.0f); }
  template <bool aAcross, bool bAcross, typename T> __device__ void add(const T *a, int lda, const T *b, int ldb) {
    using namespace nvcuda::wmma;
    fragment<matrix_a, kPiece, kPiece, kPiece, E, std::conditional_t<aAcross, col_major, row_major>> x;
    fragment<matrix_b, kPiece, kPiece, kPiece, E, std::conditional_t<bAcross, col_major, row_major>> y;
    load_matrix_sync(x, reinterpret_cast<const E *>(a), lda);
    load_matrix_sync(y, reinterpret_cast<const E *>(b), ldb);
    mma_sync(sums, x, y, sums);
  }
  __device__ void store(float *to, int ld) const { store_matrix_sync(to, sums, ld, nvcuda::wmma::mem_row_major); }

private:
  nvcuda::wmma::fragment<nvcuda::wmma::accumulator, kPiece, kPiece, kPiece, float> sums;
};
#endif

/// Of an element: the sum, in f32, of products of 16x16 pieces that lie in shared memory, at multiples of 32 bytes and `ld`
/// elements from row to row, a multiple of 8. All lanes of a warp take part; what others wrote is there behind __syncwarp().
template <typename T> struct PieceOf {
  using Type = LoopPiece;
};
#if defined(__CUDA_ARCH__)
template <> struct PieceOf<cpu::F16> {
  using Type = CorePiece<__half>;
};
#if __CUDA_ARCH__ >= 800
template <> struct PieceOf<cpu::Bf16> {
  using Type = CorePiece<__nv_bfloat16>;
};
#endif
#endif
template <typename T> using Piece = typename PieceOf<T>::Type;

} // namespace zccrt::cuda
