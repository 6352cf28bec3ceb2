// Attention and its gradient in double, by plain loops: a row of scores at a time.
#include "runtime/cpu/Attention.h"
#include <cmath>

namespace zccrt::cpu {

namespace {

/// The row of scaled and masked scores of query r; returns its maximum.
double scoreRow(const Heads &n, char *arena, const Rows &q, const Rows &k, int64_t b, int64_t h, int64_t r, double *scores) {
  int64_t kv = h / n.group();
  double max = -INFINITY;
  for (int64_t t = 0; t < n.t; ++t) {
    double x = 0;
    for (int64_t i = 0; i < n.d; ++i)
      x += q.at<double>(b, h, r)[i] * k.at<double>(b, kv, t)[i];
    scores[t] = t < n.keysBefore(r + 1) ? x * n.exactScale + n.maskAt(arena, b, h, r, t) : -INFINITY;
    max = scores[t] > max || std::isnan(scores[t]) ? scores[t] : max;
  }
  return max;
}

} // namespace

void attentionLoops(char *arena, const zccrt_call *c) {
  Heads n(c, 0);
  Rows q(arena, operand(c, 0)), k(arena, operand(c, 1)), v(arena, operand(c, 2)), y(arena, result(c, 0));
  double *lse = at<double>(arena, result(c, 1));
#pragma omp parallel for schedule(static) num_threads(c->threads)
  for (int64_t row = 0; row < n.batch * n.heads * n.s; ++row) {
    double *p = scratchAt<double>(arena, c) + omp_get_thread_num() * n.t;
    int64_t b = row / n.s / n.heads, h = row / n.s % n.heads, r = row % n.s;
    int64_t kv = h / n.group();
    double max = scoreRow(n, arena, q, k, b, h, r, p), sum = 0;
    double *to = y.at<double>(b, h, r);
    std::fill_n(to, n.dv, 0.0);
    lse[row] = -INFINITY;
    if (max == -INFINITY)
      continue;
    for (int64_t t = 0; t < n.t; ++t)
      sum += p[t] = std::exp(p[t] - max);
    lse[row] = max + std::log(sum);
    for (int64_t t = 0; t < n.t; ++t)
      for (int64_t j = 0; j < n.dv; ++j)
        to[j] += p[t] / sum * v.at<double>(b, kv, t)[j];
  }
}

void attentionGradLoops(char *arena, const zccrt_call *c) {
  Heads n(c, 1);
  Rows dy(arena, operand(c, 0)), q(arena, operand(c, 1)), k(arena, operand(c, 2)), v(arena, operand(c, 3)),
      y(arena, operand(c, 5)), dq(arena, result(c, 0)), dk(arena, result(c, 1)), dv(arena, result(c, 2));
  const double *lse = at<double>(arena, operand(c, 6));
  int64_t group = n.group();
  auto row = [&](int64_t b, int64_t h, int64_t r, double *p) {
    int64_t kv = h / group;
    double *dqRow = dq.at<double>(b, h, r), *dyRow = dy.at<double>(b, h, r);
    const double *qRow = q.at<double>(b, h, r), *yRow = y.at<double>(b, h, r);
    double log = lse[(b * n.heads + h) * n.s + r], delta = 0;
    std::fill_n(dqRow, n.d, 0.0);
    if (log == -INFINITY)
      return;
    scoreRow(n, arena, q, k, b, h, r, p);
    const bool isFar = log < kFarLogSum; // as FarRows has it
    double norm = isFar ? 0 : 1;
    for (int64_t t = 0; isFar && t < n.t; ++t)
      norm += std::exp(p[t] - log);
    for (int64_t j = 0; j < n.dv; ++j)
      delta += dyRow[j] * yRow[j];
    for (int64_t t = 0; t < n.t; ++t) {
      double prob = std::exp(p[t] - log) / norm, dp = 0;
      for (int64_t j = 0; j < n.dv; ++j) {
        dp += dyRow[j] * v.at<double>(b, kv, t)[j];
        dv.at<double>(b, kv, t)[j] += prob * dyRow[j];
      }
      double ds = prob * (dp - delta) * n.exactScale;
      for (int64_t i = 0; i < n.d; ++i) {
        dqRow[i] += ds * k.at<double>(b, kv, t)[i];
        dk.at<double>(b, kv, t)[i] += ds * qRow[i];
      }
    }
  };
#pragma omp parallel for schedule(static) num_threads(c->threads)
  for (int64_t job = 0; job < n.batch * n.kvHeads; ++job) {
    double *p = scratchAt<double>(arena, c) + omp_get_thread_num() * n.t;
    int64_t b = job / n.kvHeads, kv = job % n.kvHeads;
    for (int64_t t = 0; t < n.t; ++t) {
      std::fill_n(dk.at<double>(b, kv, t), n.d, 0.0);
      std::fill_n(dv.at<double>(b, kv, t), n.dv, 0.0);
    }
    for (int64_t h = kv * group; h < (kv + 1) * group; ++h)
      for (int64_t r = 0; r < n.s; ++r)
        row(b, h, r, p);
  }
}

} // namespace zccrt::cpu
