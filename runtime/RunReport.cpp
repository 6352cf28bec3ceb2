// Keeps a bounded number of points, and writes them as a page.
#include "runtime/RunReport.h"
#include "page/RunScript.h"
#include "runtime/Fail.h"
#include "runtime/Json.h"
#include "runtime/Page.h"
#include <algorithm>
#include <cmath>
#include <fstream>

namespace zccrt {

// What a wide screen shows; even, for pairs become one.
constexpr size_t kPoints = 2048, kMarks = 512;

static RunReport *pageOfError; ///< whose page an error writes

RunReport::RunReport(const zccrt_program &p, int64_t first, int64_t steps, const std::string &path)
    : program(p), first(first), steps(steps), file(path) {
  points.reserve(kPoints);
  evaluations.reserve(kMarks);
  checkpoints.reserve(kMarks);
  for (int i = 0; i < p.nmetrics; ++i) {
    Metric &m = metrics.emplace_back(Metric{p.metrics[i].name, {}, {}, {}});
    m.sums.reserve(kPoints);
    m.counts.reserve(kPoints);
    m.evaluations.reserve(kMarks);
  }
  pageOfError = this;
  lastWords = [](const std::string &error) {
    if (pageOfError)
      pageOfError->writeUnfinished(error);
  };
}

RunReport::~RunReport() { pageOfError = nullptr; }

void RunReport::merge(Point &a, const Point &b) {
  if (b.finite) {
    a.least = a.finite ? std::min(a.least, b.least) : b.least;
    a.most = a.finite ? std::max(a.most, b.most) : b.most;
  }
  a.fastest = a.count ? std::min(a.fastest, b.fastest) : b.fastest;
  a.slowest = std::max(a.slowest, b.slowest);
  a.count += b.count;
  a.finite += b.finite;
  a.skipped += b.skipped;
  a.loss += b.loss;
  a.seconds += b.seconds;
  a.samples += b.samples;
  a.lr = b.lr;
  a.gradNorm = std::max(a.gradNorm, b.gradNorm);
  a.lossScale = b.lossScale;
}

/// Pairs of points become one.
void RunReport::halve() {
  for (size_t i = 0; i < points.size(); i += 2) {
    points[i / 2] = points[i];
    merge(points[i / 2], points[i + 1]);
  }
  points.resize(points.size() / 2);
  for (Metric &m : metrics)
    for (std::vector<double> *list : {&m.sums, &m.counts}) {
      for (size_t i = 0; i < list->size(); i += 2)
        (*list)[i / 2] = (*list)[i] + (*list)[i + 1];
      list->resize(points.size());
    }
  each *= 2;
}

/// Where there is no room for another, every second one goes.
template <typename T> void RunReport::thinOut(std::vector<T> &marks) {
  if (marks.size() < kMarks)
    return;
  for (size_t i = 0; i < kMarks / 2; ++i)
    marks[i] = marks[2 * i + 1];
  marks.resize(kMarks / 2);
}

void RunReport::addMetrics(std::span<const MetricValue> values, bool isNewPoint) {
  for (size_t i = 0; i < metrics.size(); ++i) {
    Metric &m = metrics[i];
    if (isNewPoint) {
      m.sums.push_back(0);
      m.counts.push_back(0);
    }
    if (i < values.size() && std::isfinite(values[i].value)) {
      m.sums.back() += values[i].value;
      ++m.counts.back();
    }
  }
}

void RunReport::addEvaluation(const StepReport &r) {
  thinOut(evaluations);
  evaluations.push_back({r.step, *r.evalLoss});
  for (size_t i = 0; i < metrics.size(); ++i) {
    thinOut(metrics[i].evaluations);
    metrics[i].evaluations.push_back(i < r.evalMetrics.size() ? r.evalMetrics[i].value : NAN);
  }
}

void RunReport::add(const StepReport &r) {
  std::lock_guard lock(guard);
  Point p;
  p.step = r.step;
  p.count = 1;
  if (std::isfinite(r.loss)) {
    p.finite = 1;
    p.loss = p.least = p.most = r.loss;
  }
  p.skipped = r.skipped.value_or(false);
  p.lr = r.lr.value_or(0);
  p.gradNorm = r.gradNorm && std::isfinite(*r.gradNorm) ? *r.gradNorm : 0;
  p.lossScale = r.lossScale.value_or(0);
  p.seconds = p.fastest = p.slowest = r.seconds;
  p.samples = r.samples;
  hasLr |= r.lr.has_value();
  hasNorm |= r.gradNorm.has_value();
  hasScale |= r.lossScale.has_value();
  const bool isNewPoint = points.empty() || points.back().count == each;
  if (isNewPoint) {
    if (points.size() == kPoints)
      halve();
    points.push_back(p);
  } else {
    merge(points.back(), p);
  }
  addMetrics(r.metrics, isNewPoint);
  sent = r.sent;
  if (r.evalLoss)
    addEvaluation(r);
}

void RunReport::addCheckpoint(int64_t step) {
  std::lock_guard lock(guard);
  thinOut(checkpoints);
  checkpoints.push_back({step, 0});
}

// ---- the page

/// "[a, b]" of what `of` gives for each. Allocates once, however many there are: allocations of a run do not grow with its steps.
template <typename T, typename F> static std::string list(const std::vector<T> &all, F of) {
  constexpr size_t kDigits = 24;
  std::string s = "[";
  s.reserve(kPoints * kDigits);
  for (const T &x : all) {
    char digits[kDigits];
    double value = of(x);
    snprintf(digits, sizeof digits, std::isfinite(value) ? "%s%.9g" : "%snull", s.size() > 1 ? "," : "", value);
    s += digits;
  }
  return s += "]";
}

std::string RunReport::metricsJson() const {
  std::string s = "[";
  for (const Metric &m : metrics) {
    std::vector<double> means(m.sums);
    for (size_t i = 0; i < means.size(); ++i)
      means[i] /= m.counts[i];
    auto same = [](double v) { return v; };
    s += (s.size() > 1 ? ",\n{\"name\": " : "{\"name\": ") + jsonString(m.name) + ", \"values\": " + list(means, same) +
         ", \"evaluations\": " + list(m.evaluations, same) + "}";
  }
  return s + "]";
}

std::string RunReport::json(const std::vector<int64_t> &peaks, const Ending &ending) const {
  constexpr size_t kRoom = 1 << 20;
  std::string s = "{";
  s.reserve(kRoom);
  auto add = [&](const char *key, const std::string &value) {
    s.append(s.size() > 1 ? ",\n\"" : "\"").append(key).append("\": ").append(value);
  };
  auto column = [&](const char *key, auto of) { add(key, list(points, of)); };
  add("model", jsonString(program.model));
  add("program", jsonString(where.program));
  add("first", std::to_string(first));
  add("steps", std::to_string(steps));
  add("stoppedBy", ending.signal ? jsonString(ending.signal) : "null");
  add("error", ending.error.empty() ? "null" : jsonString(ending.error));
  add("errorStep", where.step < 0 ? "null" : std::to_string(where.step));
  add("ranks", std::to_string(program.ranks));
  add("each", std::to_string(each));
  column("step", [](const Point &p) { return double(p.step); });
  column("count", [](const Point &p) { return double(p.count); });
  column("loss", [](const Point &p) { return p.finite ? p.loss / p.finite : NAN; });
  column("least", [](const Point &p) { return p.finite ? p.least : NAN; });
  column("most", [](const Point &p) { return p.finite ? p.most : NAN; });
  column("seconds", [](const Point &p) { return p.seconds / p.count; });
  column("slowest", [](const Point &p) { return p.slowest; });
  column("fastest", [](const Point &p) { return p.fastest; });
  column("samples", [](const Point &p) { return p.samples; });
  column("skipped", [](const Point &p) { return double(p.skipped); });
  if (hasLr)
    column("lr", [](const Point &p) { return p.lr; });
  if (hasNorm)
    column("gradNorm", [](const Point &p) { return p.gradNorm; });
  if (hasScale)
    column("lossScale", [](const Point &p) { return p.lossScale; });
  add("evalStep", list(evaluations, [](const Mark &m) { return double(m.step); }));
  add("evalLoss", list(evaluations, [](const Mark &m) { return m.loss; }));
  add("metrics", metricsJson());
  add("checkpoints", list(checkpoints, [](const Mark &m) { return double(m.step); }));
  add("tokens",
      std::to_string(program.tokens && program.tokens->t.ndim ? program.tokens->t.dims[program.tokens->t.ndim - 1] : 0));
  add("arenas", list(std::vector<int64_t>(program.arena_bytes, program.arena_bytes + 3), [](int64_t b) { return double(b); }));
  add("library", std::to_string(program.library_bytes));
  add("staging", std::to_string(collectivesAreStaged() ? program.staging_bytes : 0));
  add("save", std::to_string(checkpoints.empty() ? 0 : program.save_bytes));
  add("peaks", list(peaks, [](int64_t b) { return double(b); }));
  add("sent",
      format("{\"all_reduce\": %lld, \"all_gather\": %lld, \"reduce_scatter\": %lld}", static_cast<long long>(sent.allReduce),
             static_cast<long long>(sent.allGather), static_cast<long long>(sent.reduceScatter)));
  add("plan", program.plan_json && *program.plan_json ? program.plan_json : "{}");
  return s + "}";
}

void RunReport::write(const std::vector<int64_t> &peaks, const Ending &ending) {
  std::lock_guard lock(guard);
  const std::string text = page(std::string(program.model) + ": run", json(peaks, ending), kRunScript);
  file.write(text.data(), text.size());
  file.commit();
}

void RunReport::writeUnfinished(const std::string &error) noexcept try {
  if (!guard.try_lock())
    return;
  const bool isOpen = file.isOpen();
  guard.unlock();
  if (isOpen)
    write({residentPeak()}, {nullptr, error});
} catch (const std::exception &) {
  // The error that ends the run is the one to be told.
}

int64_t residentPeak() {
  std::ifstream file("/proc/self/status");
  long long kib = 0;
  for (std::string line; std::getline(file, line);)
    if (sscanf(line.c_str(), "VmHWM: %lld", &kib) == 1)
      break;
  return kib * 1024;
}

} // namespace zccrt
