// The sum of the squares of pieces of a tensor with the host's bits (cpu/SumSquares.cpp), for a norm may be taken there, where
// states live: 16 lanes for each piece, then the pieces one after the other.
#include "runtime/cuda/Each.h"
#include "runtime/cuda/Kernels.h"
#include "runtime/cuda/Warp.h"

namespace zccrt::cuda {

constexpr int kLanes = 16; // as in cpu/Lanes.h, which is written for vectors

static __global__ void pieceSquares(const float *x, int64_t n, int64_t piece, int64_t pieces, double *parts) {
  const int64_t i = firstIndex() / kLanes, begin = i * piece;
  const int lane = threadIdx.x % kLanes;
  const int64_t length = i >= pieces ? 0 : n - begin < piece ? n - begin : piece, whole = length / kLanes * kLanes;
  float sum = 0, rest = 0;
  for (int64_t j = lane; j < whole; j += kLanes)
    sum += x[begin + j] * x[begin + j];
  for (int half = kLanes / 2; half; half /= 2)
    sum += __shfl_xor_sync(kAllLanes, sum, half);
  for (int64_t j = whole; j < length; ++j)
    rest += x[begin + j] * x[begin + j];
  if (lane == 0 && i < pieces)
    parts[i] = sum + rest;
}

/// By one thread, in order; the others bring the numbers.
static __global__ void addPieces(const double *parts, int64_t pieces, const double *before, double *y) {
  __shared__ double some[kBlock];
  double sum = before ? *before : 0;
  for (int64_t first = 0; first < pieces; first += kBlock) {
    if (first + threadIdx.x < pieces)
      some[threadIdx.x] = parts[first + threadIdx.x];
    __syncthreads();
    for (int64_t i = 0; threadIdx.x == 0 && i < kBlock && first + i < pieces; ++i)
      sum += some[i];
    __syncthreads();
  }
  if (threadIdx.x == 0)
    *y = sum;
}

static int64_t piecesOf(const zccrt_call *c, int64_t piece) { return (count(operand(c, 0)) + piece - 1) / piece; }

int64_t sumSquaresWorkspace(const zccrt_call *c) { return piecesOf(c, attrInt(c, "piece", 1)) * 8; }

void sumSquaresRun(char *arena, const zccrt_call *c) {
  if (!arena)
    return;
  const int64_t n = count(operand(c, 0)), piece = attrInt(c, "piece", 1), pieces = piecesOf(c, piece);
  double *parts = scratchAt<double>(arena, c);
  const double *before = hasOperand(c, 1) ? at<double>(arena, operand(c, 1)) : nullptr;
  const int64_t blocks = (pieces * kLanes + kBlock - 1) / kBlock;
  if (pieces)
    ZCC_LAUNCH(pieceSquares, unsigned(blocks), kBlock, at<float>(arena, operand(c, 0)), n, piece, pieces, parts);
  ZCC_LAUNCH(addPieces, 1, kBlock, parts, pieces, before, at<double>(arena, result(c, 0)));
}

} // namespace zccrt::cuda
