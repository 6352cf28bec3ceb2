// gather, gather_elements, gather_nd: rows copied from where indices point.
#include "runtime/cuda/Index.h"
#include "runtime/cuda/Kernels.h"

namespace zccrt::cuda {

template <typename T, typename Rows> static void gatherElementsOf(const Rows source, const T *x, T *y) {
  each(source.rows * source.inner, [=] __device__(int64_t e) {
    int64_t row = source(e / source.inner);
    if (row >= 0)
      y[e] = x[row * source.inner + e % source.inner];
  });
}

template <typename Rows> static void gatherRows(char *arena, const zccrt_call *c) {
  if (!arena)
    return;
  const Rows source(arena, c);
  cpu::withBytes(operand(c, 0).elem, [&](auto *type) {
    using T = std::remove_pointer_t<decltype(type)>;
    gatherElementsOf<T>(source, at<T>(arena, operand(c, 0)), at<T>(arena, result(c, 0)));
  });
}

void gatherRun(char *arena, const zccrt_call *c) { gatherRows<AxisRows>(arena, c); }
void gatherElementsRun(char *arena, const zccrt_call *c) { gatherRows<AxisElements>(arena, c); }
void gatherNdRun(char *arena, const zccrt_call *c) { gatherRows<TupleRows>(arena, c); }

} // namespace zccrt::cuda
