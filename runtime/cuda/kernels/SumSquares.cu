// The sum of the squares of pieces of a tensor: a warp for each piece, then one thread for their sums.
#include "runtime/cuda/Each.h"
#include "runtime/cuda/Kernels.h"
#include "runtime/cuda/Warp.h"

namespace zccrt::cuda {

static __global__ void pieceSquares(const float *x, int64_t n, int64_t piece, int64_t pieces, double *parts) {
  for (int64_t i = blockIdx.x; i < pieces; i += gridDim.x) {
    const float *begin = x + i * piece;
    const int64_t length = n - i * piece < piece ? n - i * piece : piece;
    float sum = 0;
    for (int64_t j = threadIdx.x; j < length; j += kWarp)
      sum += begin[j] * begin[j];
    sum = warpSum(sum);
    if (threadIdx.x == 0)
      parts[i] = sum;
  }
}

static int64_t piecesOf(const zccrt_call *c, int64_t piece) { return (count(operand(c, 0)) + piece - 1) / piece; }

int64_t sumSquaresWorkspace(const zccrt_call *c) { return piecesOf(c, attrInt(c, "piece", 1)) * 8; }

void sumSquaresRun(char *arena, const zccrt_call *c) {
  if (!arena)
    return;
  const int64_t n = count(operand(c, 0)), piece = attrInt(c, "piece", 1), pieces = piecesOf(c, piece);
  double *parts = scratchAt<double>(arena, c), *y = at<double>(arena, result(c, 0));
  const double *before = hasOperand(c, 1) ? at<double>(arena, operand(c, 1)) : nullptr;
  ZCC_LAUNCH(pieceSquares, blocksFor(pieces, 1), kWarp, at<float>(arena, operand(c, 0)), n, piece, pieces, parts);
  each(1, [=] __device__(int64_t) {
    double sum = before ? *before : 0;
    for (int64_t i = 0; i < pieces; ++i)
      sum += parts[i];
    *y = sum;
  });
}

} // namespace zccrt::cuda
