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

RunReport::RunReport(const zccrt_program &p, int64_t first, int64_t steps) : program(p), first(first), steps(steps) {
  points.reserve(kPoints);
  evaluations.reserve(kMarks);
  checkpoints.reserve(kMarks);
}

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
  each *= 2;
}

/// Where there is no room, every second one goes.
void RunReport::note(std::vector<Mark> &marks, Mark m) {
  if (marks.size() == kMarks) {
    for (size_t i = 0; i < kMarks / 2; ++i)
      marks[i] = marks[2 * i + 1];
    marks.resize(kMarks / 2);
  }
  marks.push_back(m);
}

void RunReport::add(const StepReport &r) {
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
  if (!points.empty() && points.back().count < each) {
    merge(points.back(), p);
  } else {
    if (points.size() == kPoints)
      halve();
    points.push_back(p);
  }
  sent = r.sent;
  if (r.evalLoss)
    note(evaluations, {r.step, *r.evalLoss});
}

void RunReport::addCheckpoint(int64_t step) { note(checkpoints, {step, 0}); }

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

std::string RunReport::json(const std::vector<int64_t> &peaks, const char *stoppedBy) const {
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
  add("stoppedBy", stoppedBy ? jsonString(stoppedBy) : "null");
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
  add("checkpoints", list(checkpoints, [](const Mark &m) { return double(m.step); }));
  add("tokens",
      std::to_string(program.tokens && program.tokens->t.ndim ? program.tokens->t.dims[program.tokens->t.ndim - 1] : 0));
  add("arenas", list(std::vector<int64_t>(program.arena_bytes, program.arena_bytes + 3), [](int64_t b) { return double(b); }));
  add("library", std::to_string(program.library_bytes));
  add("save", std::to_string(checkpoints.empty() ? 0 : program.save_bytes));
  add("peaks", list(peaks, [](int64_t b) { return double(b); }));
  add("sent",
      format("{\"all_reduce\": %lld, \"all_gather\": %lld, \"reduce_scatter\": %lld}", static_cast<long long>(sent.allReduce),
             static_cast<long long>(sent.allGather), static_cast<long long>(sent.reduceScatter)));
  add("plan", program.plan_json && *program.plan_json ? program.plan_json : "{}");
  return s + "}";
}

std::string RunReport::page(const std::vector<int64_t> &peaks, const char *stoppedBy) const {
  return zccrt::page(std::string(program.model) + ": run", json(peaks, stoppedBy), kRunScript);
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
