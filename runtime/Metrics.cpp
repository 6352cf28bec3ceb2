// Adds up the parts of metrics. Allocates nothing after it was made.
#include "runtime/Metrics.h"
#include <cmath>

namespace zccrt {

Metrics::Metrics(const zccrt_program &p, Comm &comm)
    : p(p), comm(comm), parts(p.nmetrics), gathered(p.nmetrics * comm.ranks), values(p.nmetrics) {
  for (int i = 0; i < p.nmetrics; ++i)
    values[i].name = p.metrics[i].name;
}

void Metrics::addMicro(const Arena &arena, int64_t slot) {
  for (int i = 0; i < p.nmetrics; ++i) {
    const zccrt_metric &m = p.metrics[i];
    if (m.micro >= 0)
      parts[i] +=
          {arena.floatAt(m.micro, ZCCRT_F32, slot), m.micro_weight < 0 ? 1 : arena.floatAt(m.micro_weight, ZCCRT_F32, slot)};
  }
}

void Metrics::addEval(const Arena &arena, int64_t rows, int64_t counted) {
  for (int i = 0; rows && i < p.nmetrics; ++i) {
    const zccrt_metric &m = p.metrics[i];
    if (m.eval < 0)
      continue;
    const double sum = arena.floatAt(m.eval, ZCCRT_F32);
    if (m.eval_weight >= 0)
      parts[i] += {sum, arena.floatAt(m.eval_weight, ZCCRT_F32)};
    else // @eval divides by the whole batch's rows
      parts[i] += {sum * static_cast<double>(counted ? counted : rows), static_cast<double>(rows)};
  }
}

std::span<const MetricValue> Metrics::finish(double loss) {
  if (parts.empty())
    return {};
  comm.exchange(parts.data(), parts.size() * sizeof(Weighted), gathered.data());
  for (size_t i = 0; i < parts.size(); ++i) {
    Weighted all;
    for (size_t r = i; r < gathered.size(); r += parts.size())
      all += gathered[r];
    const zccrt_metric &m = p.metrics[i];
    const double mean = m.micro < 0 && m.eval < 0 ? loss : all.sum / all.weight;
    values[i].value = m.exponential ? std::exp(mean) : mean;
    parts[i] = {};
  }
  return values;
}

} // namespace zccrt
