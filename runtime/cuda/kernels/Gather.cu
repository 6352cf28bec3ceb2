// gather, gather_elements, gather_nd: rows copied from where indices point.
#include "runtime/cuda/AsyncCopy.h"
#include "runtime/cuda/Index.h"
#include "runtime/cuda/Kernels.h"

namespace zccrt::cuda {

template <typename T, typename Rows> static void gatherElementsOf(const Rows source, int64_t inner, const char *from, char *to) {
  const T *const x = (const T *)from;
  T *const y = (T *)to;
  eachIndex(source.rows * inner, [=] __device__(auto e) {
    using I = decltype(e);
    const int64_t row = source(e / I(inner));
    if (row >= 0)
      y[e] = x[row * inner + e % I(inner)];
  });
}

template <typename Rows> static void gatherRows(char *arena, const zccrt_call *c) {
  if (!arena)
    return;
  const Rows source(arena, c);
  const char *from = arena + operand(c, 0).offset;
  char *to = arena + result(c, 0).offset;
  const int64_t bytes = source.inner * cpu::elemBytes(operand(c, 0).elem);
  if ((bytes | int64_t(uintptr_t(from) | uintptr_t(to))) % int64_t(sizeof(Sixteen)) == 0)
    return gatherElementsOf<Sixteen>(source, bytes / int64_t(sizeof(Sixteen)), from, to);
  cpu::withBytes(operand(c, 0).elem,
                 [&](auto *type) { gatherElementsOf<std::remove_pointer_t<decltype(type)>>(source, source.inner, from, to); });
}

void gatherRun(char *arena, const zccrt_call *c) { gatherRows<AxisRows>(arena, c); }
void gatherElementsRun(char *arena, const zccrt_call *c) { gatherRows<AxisElements>(arena, c); }
void gatherNdRun(char *arena, const zccrt_call *c) { gatherRows<TupleRows>(arena, c); }

} // namespace zccrt::cuda
