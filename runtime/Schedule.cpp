// The formulas of the schedules, and their parameters by name.
#include "runtime/Schedule.h"
#include "runtime/Fail.h"
#include <algorithm>
#include <cmath>
#include <cstring>

namespace zccrt {

const char *const kScheduleNames = "constant|linear|cosine|WarmupLR|WarmupDecayLR|WarmupCosineLR|OneCycle|LRRangeTest";

bool scheduleFromName(const std::string &name, Schedule::Kind &kind) {
  std::string names = std::string(kScheduleNames) + "|";
  int index = 0;
  for (size_t at = 0; at < names.size(); ++index) {
    size_t end = names.find('|', at);
    if (names.compare(at, end - at, name) == 0) {
      kind = static_cast<Schedule::Kind>(index);
      return true;
    }
    at = end + 1;
  }
  return false;
}

static double polynomial(const Schedule &s, int64_t step) {
  if (step < s.warmupSteps)
    return s.lr * double(step + 1) / double(s.warmupSteps);
  if (s.kind == Schedule::Constant)
    return s.lr;
  int64_t length = s.totalSteps - s.warmupSteps;
  if (length <= 0)
    return s.lr;
  double done = double(std::min(step - s.warmupSteps, length)) / double(length);
  if (s.kind == Schedule::Linear)
    return s.lr + (s.min - s.lr) * done;
  return s.min + (s.lr - s.min) * (1 + std::cos(M_PI * done)) / 2;
}

// ---- DeepSpeed's: `last` is its last_batch_iteration, which is step - 1

/// How far the warm-up is, 0 to 1.
static double warmUp(const Schedule &s, double last) {
  double n = s.param[WarmupNumSteps];
  return s.param[WarmupType] == 0 ? 1 / std::log(n) * std::log(last + 1) : last / n;
}

static double warmupRate(const Schedule &s, double last) {
  double low = s.param[WarmupMinLr], high = s.param[WarmupMaxLr];
  if (last < 0)
    return low;
  double gamma = 1, n = s.param[WarmupNumSteps], total = s.param[TotalNumSteps];
  if (last < n)
    gamma = warmUp(s, last);
  else if (s.kind == Schedule::WarmupDecayLR)
    gamma = std::max(0.0, (total - last) / std::max(1.0, total - n));
  return low + (high - low) * gamma;
}

static double cosineRatio(const Schedule &s, double last) {
  double n = s.param[WarmupNumSteps], least = s.param[WarmupMinRatio], end = s.param[CosMinRatio];
  if (last < 0)
    return 0;
  if (last < n)
    return least + warmUp(s, last) * (1 - least);
  double progress = std::min(1.0, (last - n + 1) / std::max(1.0, s.param[TotalNumSteps] - n));
  return std::max(0.0, end + (1 - end) * ((1 + std::cos(M_PI * progress)) / 2));
}

/// Up from 0 to 1 and down again, continuously or in stairs.
double Schedule::scaleInCycle(int64_t step) const {
  double first = param[CycleFirstStepSize], second = param[CycleSecondStepSize];
  double total = first + second, ratio = first / total;
  double x = 1 + step / total - std::floor(1 + step / total);
  bool rises = x <= ratio;
  double stairs = param[rises ? CycleFirstStairCount : CycleSecondStairCount];
  if (stairs <= 0)
    return rises ? x / ratio : (x - 1) / (ratio - 1);
  double at = std::fmod(double(step), total);
  return std::floor(at <= first ? at * stairs / first : (total - at) * stairs / second) / stairs;
}

static double cycleLength(const Schedule &s) { return s.param[CycleFirstStepSize] + s.param[CycleSecondStepSize]; }

/// How many decay intervals lie behind the cycle.
static double decayIntervals(const Schedule &s, int64_t step) { return (double(step) - cycleLength(s)) / s.param[DecayStepSize]; }

double Schedule::beta1At(int64_t step) const {
  double low = param[CycleMinMom], high = param[CycleMaxMom], rate = param[DecayMomRate];
  if (step == 0)
    return low;
  if (step - 1 < cycleLength(*this))
    return high - (high - low) * scaleInCycle(step);
  return param[DecayStepSize] == 0 || rate == 0 ? high : high * (1 + rate * decayIntervals(*this, step));
}

double Schedule::at(int64_t step) const {
  double last = double(step - 1);
  switch (kind) {
  case Constant:
  case Linear:
  case Cosine:
    return polynomial(*this, step);
  case WarmupLR:
  case WarmupDecayLR:
    return warmupRate(*this, last);
  case WarmupCosineLR:
    return lr * cosineRatio(*this, last);
  case OneCycle: {
    double low = param[CycleMinLr], high = param[CycleMaxLr], rate = param[DecayLrRate];
    if (last < cycleLength(*this))
      return low + (high - low) * scaleInCycle(step);
    return param[DecayStepSize] == 0 || rate == 0 ? low : low / (1 + rate * decayIntervals(*this, step));
  }
  case LRRangeTest: {
    double interval = double(step) / param[RangeStepSize];
    if (param[RangeStaircase] != 0)
      interval = std::floor(interval);
    return param[RangeMinLr] * (1 + param[RangeStepRate] * interval);
  }
  }
  return lr;
}

// ---- parameters

namespace {
struct ParamSpec {
  const char *name;
  unsigned kinds;   ///< bits of Schedule::Kind
  double otherwise; ///< NaN: see resolve()
  enum { Number, Any, Whole, Positive, Switch, Type } form;
};
} // namespace

static constexpr unsigned bit(Schedule::Kind k) { return 1u << k; }
static constexpr unsigned kPlain = bit(Schedule::WarmupLR) | bit(Schedule::WarmupDecayLR);
static constexpr unsigned kCosine = bit(Schedule::WarmupCosineLR);
static constexpr unsigned kCycle = bit(Schedule::OneCycle), kRange = bit(Schedule::LRRangeTest);

/// In the order of ScheduleParam.
static constexpr ParamSpec kParams[kScheduleParams] = {
    {"warmup_min_lr", kPlain, 0, ParamSpec::Number},
    {"warmup_max_lr", kPlain, NAN, ParamSpec::Number},
    {"warmup_num_steps", kPlain | kCosine, 1000, ParamSpec::Positive},
    {"warmup_type", kPlain | kCosine, 0, ParamSpec::Type},
    {"total_num_steps", bit(Schedule::WarmupDecayLR) | kCosine, NAN, ParamSpec::Whole},
    {"warmup_min_ratio", kCosine, 0, ParamSpec::Number},
    {"cos_min_ratio", kCosine, 1e-4, ParamSpec::Number},
    {"cycle_min_lr", kCycle, NAN, ParamSpec::Number},
    {"cycle_max_lr", kCycle, NAN, ParamSpec::Number},
    {"decay_lr_rate", kCycle, 0, ParamSpec::Any},
    {"cycle_first_step_size", kCycle, 2000, ParamSpec::Positive},
    {"cycle_second_step_size", kCycle, NAN, ParamSpec::Whole},
    {"cycle_first_stair_count", kCycle, 0, ParamSpec::Whole},
    {"cycle_second_stair_count", kCycle, NAN, ParamSpec::Whole},
    {"decay_step_size", kCycle, 0, ParamSpec::Whole},
    {"cycle_momentum", kCycle, 1, ParamSpec::Switch},
    {"cycle_min_mom", kCycle, 0.8, ParamSpec::Number},
    {"cycle_max_mom", kCycle, 0.9, ParamSpec::Number},
    {"decay_mom_rate", kCycle, 0, ParamSpec::Any},
    {"lr_range_test_min_lr", kRange, 1e-3, ParamSpec::Number},
    {"lr_range_test_step_size", kRange, 2000, ParamSpec::Positive},
    {"lr_range_test_step_rate", kRange, 1, ParamSpec::Any},
    {"lr_range_test_staircase", kRange, 0, ParamSpec::Switch},
};

Schedule::Params::Params() { fill(NAN); }

void Schedule::resolve() {
  for (int i = 0; i < kScheduleParams; ++i)
    if (std::isnan(param[i]))
      param[i] = kParams[i].otherwise;
  auto otherwise = [&](ScheduleParam p, double v) {
    if (std::isnan(param[p]))
      param[p] = v;
  };
  otherwise(WarmupMaxLr, kind == WarmupDecayLR ? 1e-3 : lr);
  otherwise(TotalNumSteps, double(totalSteps));
  otherwise(CycleSecondStepSize, param[CycleFirstStepSize]);
  otherwise(CycleSecondStairCount, param[CycleFirstStairCount]);
  param[WarmupNumSteps] = std::max(2.0, param[WarmupNumSteps]);
  for (ScheduleParam p : {CycleMinLr, CycleMaxLr})
    if (kind == OneCycle && std::isnan(param[p]))
      fail("the schedule OneCycle needs %s: --lr-param=%s=X", kParams[p].name, kParams[p].name);
}

std::vector<std::string> paramNames(Schedule::Kind kind) {
  std::vector<std::string> names;
  for (const ParamSpec &p : kParams)
    if (p.kinds & bit(kind))
      names.push_back(p.name);
  return names;
}

static double valueOf(const ParamSpec &p, const std::string &text) {
  const char *expected = "a number that is not negative";
  char *end;
  double x = strtod(text.c_str(), &end);
  bool isNumber = end != text.c_str() && !*end && std::isfinite(x);
  if (p.form != ParamSpec::Any)
    isNumber &= x >= 0;
  if (p.form == ParamSpec::Type) {
    expected = "log or linear";
    if (text == "log" || text == "linear")
      return text == "linear";
  } else if (p.form == ParamSpec::Switch) {
    expected = "true or false";
    if (text == "true" || text == "false" || text == "1" || text == "0")
      return text == "true" || text == "1";
  } else if (p.form == ParamSpec::Number || p.form == ParamSpec::Any) {
    expected = p.form == ParamSpec::Any ? "a number" : expected;
    if (isNumber)
      return x;
  } else {
    expected = p.form == ParamSpec::Positive ? "a whole number above 0" : "a whole number";
    if (isNumber && x == std::floor(x) && (x > 0 || p.form == ParamSpec::Whole))
      return x;
  }
  fail("schedule parameter %s=%s: expected %s", p.name, text.c_str(), expected);
}

void setParam(Schedule &s, const std::string &name, const std::string &value) {
  for (int i = 0; i < kScheduleParams; ++i)
    if (name == kParams[i].name && kParams[i].kinds & bit(s.kind)) {
      s.param[i] = valueOf(kParams[i], value);
      return;
    }
  std::string all;
  for (const std::string &n : paramNames(s.kind))
    all += (all.empty() ? "" : ", ") + n;
  fail("this schedule has no parameter '%s'%s%s", name.c_str(), all.empty() ? "" : "; it has ", all.c_str());
}

} // namespace zccrt
