// gather, gather_elements, gather_nd: rows copied from where indices point.
#include "runtime/cpu/Index.h"
#include "runtime/cpu/Kernels.h"

namespace zccrt::cpu {

template <typename Rows> static void gatherRows(char *arena, const zccrt_call *c) {
  if (!arena)
    return;
  const Rows source(arena, c);
  int64_t inner = source.inner;
  int64_t rowBytes = inner * elemBytes(operand(c, 0).elem);
  const char *x = at<char>(arena, operand(c, 0));
  char *y = at<char>(arena, result(c, 0));
  withBytes(operand(c, 0).elem, [&](auto *type) {
    using T = std::remove_pointer_t<decltype(type)>;
    forEach(source.rows, threadsFor(c, source.rows * (rowBytes + 16)), [&](int64_t i) {
      int64_t row = source(i);
      if (inner == 1)
        reinterpret_cast<T *>(y)[i] = reinterpret_cast<const T *>(x)[row];
      else
        memcpy(y + i * rowBytes, x + row * rowBytes, size_t(rowBytes));
    });
  });
}

void gatherRun(char *arena, const zccrt_call *c) { gatherRows<AxisRows>(arena, c); }
void gatherElementsRun(char *arena, const zccrt_call *c) { gatherRows<AxisElements>(arena, c); }
void gatherNdRun(char *arena, const zccrt_call *c) { gatherRows<TupleRows>(arena, c); }

} // namespace zccrt::cpu
