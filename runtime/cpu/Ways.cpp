// What a choice between ways of a library rests on.
#include "runtime/cpu/Ways.h"
#include "runtime/cpu/ConvShape.h"
#include "runtime/cpu/ProductShape.h"
#include "runtime/cpu/Wide.h"
#include <cstring>

namespace zccrt::cpu {

/// What is widened to f32 goes its way.
static std::string elemName(int32_t elem) { return isHalf(elem) && computesNatively(elem) ? "bf16" : "f32"; }

/// Of one product. Batches of them run side by side, vectors and other elements have one way.
static std::optional<WayCase> productCase(const zccrt_call *c) {
  const zccrt_tensor &a = factor(c, 0), &b = factor(c, 1), &y = result(c, 0);
  const Matrix left = matrixOf(a), right = matrixOf(b), sum = matrixOf(y);
  const int64_t batches = extent(y, 0, y.ndim - 2), n = y.dims[y.ndim - 1], k = a.dims[a.ndim - 1];
  int64_t m = y.dims[y.ndim - 2];
  if (!(a.elem == ZCCRT_F32 || (isHalf(a.elem) && !computesNatively(a.elem))) || left.packed || right.packed || sum.packed ||
      sum.transposed)
    return std::nullopt;
  if (batches != 1 && !(oneMatrix(b) && rowsMerge(a, left, batches) && rowsMerge(y, sum, batches)))
    return std::nullopt;
  m *= batches;
  if (m <= 1 || n <= 1 || k <= 1)
    return std::nullopt;
  const std::string form = std::string(left.transposed ? "t" : "n") + (right.transposed ? "t" : "n");
  return WayCase{"matmul f32 " + form + (aliased(left, right) == Aliased::None ? "" : " aliased"), {m, n, k}};
}

static std::optional<WayCase> convCase(const char *kernel, const zccrt_call *c, const ConvShape &s) {
  const int32_t elem = operand(c, 0).elem;
  if (elem == ZCCRT_F64 || s.group != 1)
    return std::nullopt;
  int64_t pixels = 1, window = 1;
  for (int i = 0; i < s.spatial; ++i) {
    pixels *= s.out[i];
    window *= s.kernel[i];
  }
  if (hasBlocks(s)) {
    if (strcmp(kernel, "conv_grad_weight"))
      return std::nullopt;
    return WayCase{std::string(kernel) + " " + elemName(elem) + (hasSteps(s) ? " blocks steps" : " blocks"),
                   {s.filters, s.channels, s.batch * pixels, window}};
  }
  WayCase w{std::string(kernel) + " " + elemName(elem) + (isProduct(s) ? " points" : " windows"),
            {s.filters, s.channels, pixels}};
  if (!isProduct(s))
    w.extents.push_back(window);
  return w;
}

std::optional<WayCase> wayCase(const char *kernel, const zccrt_call *c) {
  const std::string name = kernel;
  if (findAttr(c, "packed")) // its way is chosen
    return std::nullopt;
  const auto of = [&](const zccrt_tensor &x, const zccrt_tensor &w, const zccrt_tensor &y) {
    return convCase(kernel, c, ConvShape(c, x, w, y));
  };
  if (name == "matmul" || name == "add_matmul")
    return productCase(c);
  if (name == "conv")
    return of(operand(c, 0), operand(c, 1), result(c, 0));
  if (name == "conv_grad_input")
    return of(result(c, 0), operand(c, 1), operand(c, 0));
  if (name == "conv_grad_weight")
    return of(operand(c, 0), result(c, 0), operand(c, 1));
  return std::nullopt;
}

std::vector<std::string> waysOf(const std::string &kind) {
  if (kind.starts_with("matmul"))
    return kind.ends_with(" aliased") ? std::vector<std::string>{"sgemm", "primitive", "padded"}
                                      : std::vector<std::string>{"sgemm", "primitive"};
  if (kind.find(" blocks") != std::string::npos)
    return {"blocked", "columns"};
  if (kind.starts_with("conv_grad_weight f32") || kind == "conv_grad_weight bf16 windows" || kind == "conv f32 windows" ||
      kind == "conv_grad_input f32 windows")
    return {"plain", "blocked", "columns"};
  if (kind.starts_with("conv") && kind.ends_with("bf16 points"))
    return {"plain", "blocked", "product"};
  if (kind.starts_with("conv"))
    return {"plain", "blocked"};
  return {};
}

} // namespace zccrt::cpu
