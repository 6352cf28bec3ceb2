// The sum of the squares of pieces of a tensor: a piece in float by lanes, pieces in double one after the other.
// cuda/kernels/SumSquares.cu has the same order.
#include "runtime/cpu/Call.h"
#include "runtime/cpu/Kernels.h"
#include "runtime/cpu/Lanes.h"

namespace zccrt::cpu {

static int64_t piecesOf(const zccrt_call *c, int64_t piece) { return (count(operand(c, 0)) + piece - 1) / piece; }

ZCC_CLONES static double squares(const float *x, int64_t n) { return rowDot(x, x, n); }

int64_t sumSquaresWorkspace(const zccrt_call *c) { return piecesOf(c, attrInt(c, "piece", 1)) * 8; }

void sumSquaresRun(char *arena, const zccrt_call *c) {
  if (!arena)
    return;
  const int64_t n = count(operand(c, 0)), piece = attrInt(c, "piece", 1), pieces = piecesOf(c, piece);
  const float *x = at<float>(arena, operand(c, 0));
  double *parts = scratchAt<double>(arena, c), sum = hasOperand(c, 1) ? *at<double>(arena, operand(c, 1)) : 0;
  forEach(pieces, threadsFor(c, n * 4), [&](int64_t i) { parts[i] = squares(x + i * piece, std::min(piece, n - i * piece)); });
  for (int64_t i = 0; i < pieces; ++i)
    sum += parts[i];
  *at<double>(arena, result(c, 0)) = sum;
}

} // namespace zccrt::cpu
