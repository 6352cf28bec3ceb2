// Convolutions by plain loops over all taps, in double.
#include "runtime/cpu/ConvShape.h"

namespace zccrt::cpu {

void convLoops(ConvKind kind, const ConvShape &s, double *x, double *w, const double *bias, double *y, int threads) {
  int64_t taps = volume(s.kernel, s.spatial), ins = volume(s.in, s.spatial), outs = volume(s.out, s.spatial);
  int64_t perGroup = s.channels / s.group, filtersPerGroup = s.filters / s.group;
  auto xAt = [&](int64_t n, int64_t m, int64_t ch) { return x + (n * s.channels + m / filtersPerGroup * perGroup + ch) * ins; };
  auto wAt = [&](int64_t m, int64_t ch) { return w + (m * perGroup + ch) * taps; };
  auto yAt = [&](int64_t n, int64_t m) { return y + (n * s.filters + m) * outs; };
  if (kind == ConvKind::Forward) {
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t job = 0; job < s.batch * s.filters; ++job) {
      int64_t n = job / s.filters, m = job % s.filters;
      double *to = yAt(n, m);
      std::fill_n(to, outs, bias ? bias[m] : 0.0);
      for (int64_t ch = 0; ch < perGroup; ++ch)
        forTaps(s, [&](int64_t tap, int64_t i, int64_t o) { to[o] += wAt(m, ch)[tap] * xAt(n, m, ch)[i]; });
    }
    return;
  }
  if (kind == ConvKind::GradInput) {
    std::fill_n(x, s.batch * s.channels * ins, 0.0);
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t n = 0; n < s.batch; ++n)
      for (int64_t m = 0; m < s.filters; ++m)
        for (int64_t ch = 0; ch < perGroup; ++ch)
          forTaps(s, [&](int64_t tap, int64_t i, int64_t o) { xAt(n, m, ch)[i] += wAt(m, ch)[tap] * yAt(n, m)[o]; });
    return;
  }
#pragma omp parallel for schedule(static) num_threads(threads)
  for (int64_t m = 0; m < s.filters; ++m)
    for (int64_t ch = 0; ch < perGroup; ++ch) {
      std::fill_n(wAt(m, ch), taps, 0.0);
      for (int64_t n = 0; n < s.batch; ++n)
        forTaps(s, [&](int64_t tap, int64_t i, int64_t o) { wAt(m, ch)[tap] += xAt(n, m, ch)[i] * yAt(n, m)[o]; });
    }
}

} // namespace zccrt::cpu
