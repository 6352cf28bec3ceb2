// Random initial values, the same for every partitioning: element e of a global depends on seed, name and e only.
#include "ir/Philox.h"
#include "runtime/Elem.h"
#include "runtime/Fail.h"
#include "runtime/Weights.h"
#include <type_traits>

namespace zccrt {

void drawRandom(const zccrt_global &g, int64_t seed, int64_t begin, int64_t count, void *out) {
  if (!isFloat(g.t.elem))
    fail("tensor '%s' is %s and cannot be drawn at random", g.name, elemName(g.t.elem));
  const uint32_t id = zcc::philoxId(g.draw_as ? g.draw_as : g.name);
  auto value = [&](int64_t e) {
    if (g.init == ZCCRT_INIT_NORMAL)
      return g.a + g.b * zcc::philoxNormal(seed, e, id, zcc::kPhiloxInit);
    return g.a + (g.b - g.a) * double(zcc::philoxUniform(seed, e, id, zcc::kPhiloxInit));
  };
  withType(g.t.elem, [&](auto type) {
    using T = decltype(type);
    if constexpr (!std::is_integral_v<T>) {
      T *to = static_cast<T *>(out);
#pragma omp parallel for schedule(static)
      for (int64_t i = 0; i < count; ++i)
        to[i] = T(static_cast<float>(value(begin + i)));
    }
  });
}

} // namespace zccrt
