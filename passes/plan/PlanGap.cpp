// Goes through the timed schedule engine by engine.
#include "passes/plan/PlanGap.h"
#include "passes/Target.h"
#include "passes/TimedSchedule.h"
#include "llvm/Support/FormatVariadic.h"
#include <cmath>

using namespace zcc;
using llvm::formatv;

namespace {
/// Parts of a step, by where its operators stand.
constexpr size_t kParts = 3;
constexpr const char *kPartNames[kParts] = {"the forward", "the backward", "updates behind it"};
using PerPart = std::array<double, kParts>;

/// Seconds of one engine.
struct Engine {
  PerPart idle{}, waitedFor{};
  double busy = 0;
};
} // namespace

/// Where each part of a function ends.
static PerPart endsOf(const TimedFunction &f) {
  PerPart end{};
  for (const Span &s : f.spans)
    if (!s.waits() && s.engine == EngineKind::Compute && s.node->phase != Phase::Update) {
      double &e = end[s.node->phase == Phase::Forward ? 0 : 1];
      e = std::max(e, s.end);
    }
  end[1] = std::max(end[0], end[1]);
  end[2] = std::max(end[1], f.seconds);
  return end;
}

static double overlap(double begin, double end, double from, double to) {
  return std::max(0.0, std::min(end, to) - std::max(begin, from));
}

static Engine measure(const TimedSchedule &schedule, EngineKind kind) {
  Engine e;
  for (const TimedFunction &f : schedule.functions) {
    PerPart end = endsOf(f);
    for (size_t p = 0; p < kParts; ++p) {
      double from = p ? end[p - 1] : 0, busy = 0, waited = 0;
      for (const Span &s : f.spans) {
        double seconds = overlap(s.begin, s.end, from, end[p]);
        if (s.waits() && f.spans[s.waitsFor].engine == kind)
          waited += seconds;
        else if (!s.waits() && s.engine == kind)
          busy += seconds;
      }
      e.idle[p] += f.times * std::max(0.0, end[p] - from - busy);
      e.waitedFor[p] += f.times * waited;
      e.busy += f.times * busy;
    }
  }
  return e;
}

/// "0.441 s of the forward and 0.262 s of the backward"; "" where it is hardly anything.
static std::string partsText(const PerPart &seconds, double ofStep) {
  constexpr double kShown = 1. / 256, kShort = 0.1;
  std::string text;
  for (size_t p = 0; p < kParts; ++p) {
    bool isShort = seconds[p] < kShort;
    if (seconds[p] >= kShown * ofStep)
      text += (text.empty() ? "" : ", ") +
              formatv("{0:f3} {1} of {2}", seconds[p] * (isShort ? 1e3 : 1), isShort ? "ms" : "s", kPartNames[p]).str();
  }
  return text;
}

std::vector<std::string> zcc::gapsOf(const Module &m, const PassContext &ctx, int64_t left) {
  TimedSchedule schedule = scheduleOf(m, ctx.options);
  setTimes(schedule, machineOf(ctx.target));
  const double step = costOf(schedule, machineOf(ctx.target)).seconds;
  std::vector<std::string> out;
  for (size_t k = 0; k < kEngines; ++k) {
    Engine e = measure(schedule, EngineKind(k));
    if (EngineKind(k) == EngineKind::Compute || !e.busy)
      continue;
    std::string idle = partsText(e.idle, step), waited = partsText(e.waitedFor, step);
    std::string text = (engineName(EngineKind(k)) + (idle.empty() ? " is never idle" : " is idle for " + idle)).str();
    if (!waited.empty())
      text += "; compute waits for it for " + waited;
    out.push_back(std::move(text));
  }
  if (!out.empty() && left >= 0)
    out.push_back(formatv("to bring more earlier {0:f1} MiB of the budget are left", double(left) / (1 << 20)).str());
  return out;
}
