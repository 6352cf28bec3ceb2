// Declares, reads and prints the rows of Options.def that zcc and zcc-opt share, and the conditions of passes' options.
#include "passes/options/PassOptions.h"
#include "passes/options/Help.h"
#include "passes/train/Optimizer.h"
#include <cmath>

using namespace zcc;
using llvm::StringRef;

using Strings = DumpOptions::Strings;

// zcc-opt has an option of the name of each pass, too.
static constexpr std::string_view kNames[] = {
#define ZCC_PASS(NAME, ...) NAME,
#include "passes/Passes.def"
#undef ZCC_PASS
#define ZCC_OPTION(NAME, ...) NAME,
#define ZCC_LATER_OPTION(NAME, KEYS) NAME,
#include "passes/options/Options.def"
};
static consteval bool areDistinct() {
  for (const std::string_view &name : kNames)
    for (const std::string_view *other = kNames; other != &name; ++other)
      if (*other == name)
        return false;
  return true;
}
static_assert(areDistinct(), "two options, or an option of Options.def and a pass of Passes.def, have one name");

std::vector<OptionRow> zcc::sharedOptions() {
  const Options options;
  const DumpOptions dump;
  return {
#define ZCC_PASS_OPTION(NAME, TYPE, FIELD, OTHERWISE, RULE, VALUE, HELP, WHEN, KEYS)                                             \
  rowOf(NAME, RULE, options.FIELD, VALUE, HELP),
#define ZCC_DUMP_OPTION(NAME, TYPE, FIELD, OTHERWISE, RULE, VALUE, HELP) rowOf(NAME, RULE, dump.FIELD, VALUE, HELP),
#define ZCC_TABLE_OPTION(NAME, TYPE, FIELD, OTHERWISE, RULE, VALUE, HELP) rowOf(NAME, RULE, TYPE(OTHERWISE), VALUE, HELP),
#include "passes/options/Options.def"
  };
}

// ---- conditions: errors where an option is given that has no effect

static llvm::Error always(StringRef, const Options &) { return llvm::Error::success(); }

static llvm::Error needsFp16(StringRef name, const Options &o) {
  return o.dtype == Elem::F16 ? llvm::Error::success() : error("--" + name + " needs --dtype=fp16");
}

static llvm::Error looksAnyway(StringRef name, const Options &o) {
  return o.dtype != Elem::F16 ? llvm::Error::success() : error("--" + name + ": --dtype=fp16 always looks, for its loss scale");
}

/// Scales are floats.
static llvm::Error isScale(StringRef name, const Options &o) {
  if (llvm::Error e = needsFp16(name, o))
    return e;
  const bool fits = std::isfinite(float(o.lossScale)) && std::isfinite(float(o.minLossScale));
  return fits ? llvm::Error::success() : error("--" + name + " must be below 2^128");
}

static llvm::Error isLeastScale(StringRef name, const Options &o) {
  if (llvm::Error e = isScale(name, o))
    return e;
  return o.lossScale || o.minLossScale > 0 ? llvm::Error::success() : error("--" + name + " must be above 0");
}

static llvm::Error needsBudget(StringRef name, const Options &o) {
  bool isOpen = o.checkpointActivations < 0 && !o.memoryBudget;
  return isOpen ? error("--" + name + "=auto needs --memory=SIZE") : llvm::Error::success();
}

static bool isAway(Offload o) { return o == Offload::Cpu || o == Offload::Nvme; }
static bool mayMove(const Options &o, Offload place) { return isAway(place) || o.seeks(place); }

static llvm::Error movesStates(StringRef name, const Options &o) {
  return isAway(o.offloadOptimizer) || o.offloadRatio == 1 ? llvm::Error::success()
                                                           : error("--" + name + " needs --offload-optimizer=cpu or =nvme");
}

static llvm::Error updatesStates(StringRef name, const Options &o) {
  return mayMove(o, o.offloadOptimizer) || o.offloadUpdate == UpdatePlace::Auto
             ? llvm::Error::success()
             : error("--" + name + " needs --offload-optimizer=cpu or =nvme");
}

static llvm::Error needsBudgetForTiles(StringRef name, const Options &o) {
  return o.hasAutoTiles() && !o.memoryBudget ? error("--" + name + "=auto needs --memory=SIZE") : llvm::Error::success();
}

static llvm::Error isShareOrCount(StringRef name, const Options &o) {
  const bool isShare = o.labelledRows > 0 && o.labelledRows < 1, isCount = o.labelledRows >= 1 && o.labelledRows < double(kMost);
  return isShare || (isCount && o.labelledRows == std::floor(o.labelledRows))
             ? llvm::Error::success()
             : error("--" + name + " is a number of rows, or a share above 0 and below 1");
}

static llvm::Error needsSeparateHost(StringRef name, const Options &o) {
  if (o.separateHost)
    return llvm::Error::success();
  return error("--" + name + ": host memory is the device's own on this target: --memory bounds both");
}

/// A setting of some optimizers.
template <unsigned use> static llvm::Error hasOptimizer(StringRef name, const Options &o) {
  if (findOptimizer(o.optimizer)->uses & use)
    return llvm::Error::success();
  return error("--" + name + " is no setting of --optimizer=" + o.optimizer);
}

// ---- warnings where an option is given that has no effect, beside which scripts may well give it

std::vector<std::string> zcc::idleOptions(const Options &o, const FlagValues &given) {
  const struct {
    bool areIdle;
    std::vector<const char *> names;
    const char *why;
  } rules[] = {
      {o.inference,
       {"optimizer", "lr", "weight-decay", "betas", "eps", "momentum", "nesterov", "param-group", "grad-accum", "accum-order",
        "clip-grad-norm", "loss-scale", "check-grad-overflow", "offload-optimizer", "offload-update", "checkpoint-activations",
        "offload-activations", "labelled-rows"},
       "nothing is trained"},
      {!o.inference && o.gradAccum == 1, {"accum-order"}, "--grad-accum is 1"},
      {o.lossScale != 0,
       {"initial-scale-power", "loss-scale-window", "loss-scale-hysteresis", "min-loss-scale"},
       "--loss-scale says that it stays"},
      {o.zero < 3 && !mayMove(o, o.offloadParam),
       {"param-persistence-threshold", "max-live-parameters", "max-reuse-distance"},
       "parameters are neither partitioned (--zero=3) nor moved (--offload-param)"},
      {!mayMove(o, o.offloadOptimizer), {"sub-group-size"}, "no state is moved (--offload-optimizer)"},
  };
  std::vector<std::string> found;
  for (auto &[areIdle, names, why] : rules)
    for (const char *name : names)
      if (areIdle && given.count(name))
        found.push_back(std::string("--") + name + " has no effect: " + why);
  return found;
}

// ---- reading and printing

llvm::Expected<Options> zcc::passOptions() {
  Options o;
#define ZCC_PASS_OPTION(NAME, TYPE, FIELD, OTHERWISE, RULE, VALUE, HELP, WHEN, KEYS)                                             \
  if (llvm::Error e = readOption(NAME, RULE, o.FIELD))                                                                           \
    return e;
#include "passes/options/Options.def"
  if (llvm::Error e = checkOptimizer(o))
    return e;
#define ZCC_PASS_OPTION(NAME, TYPE, FIELD, OTHERWISE, RULE, VALUE, HELP, WHEN, KEYS)                                             \
  if (llvm::Error e = textsOf(NAME).empty() ? llvm::Error::success() : WHEN(NAME, o))                                            \
    return e;
#include "passes/options/Options.def"
  return o;
}

llvm::Expected<DumpOptions> zcc::dumpOptions() {
  DumpOptions d;
#define ZCC_DUMP_OPTION(NAME, TYPE, FIELD, OTHERWISE, RULE, VALUE, HELP)                                                         \
  if (llvm::Error e = readOption(NAME, RULE, d.FIELD))                                                                           \
    return e;
#include "passes/options/Options.def"
  return d;
}

/// " --NAME=VALUE" where the value is not the default's; a switch has no value, a list one flag for each.
template <class Rule, class T> static std::string flagOf(StringRef name, const Rule &rule, const T &v, const T &otherwise) {
  std::string flags;
  if constexpr (Rule::takes == Takes::Values) {
    for (auto &each : v)
      flags += " " + shellWord(("--" + name + "=" + rule.print(each)).str());
  } else if (std::string text = rule.print(v); text != rule.print(otherwise)) {
    flags = " " + shellWord(("--" + name + (Rule::takes == Takes::Nothing ? "" : "=" + text)).str());
  }
  return flags;
}

std::string zcc::flagsOf(const Options &o) {
  const Options d;
  std::string flags;
#define ZCC_PASS_OPTION(NAME, TYPE, FIELD, OTHERWISE, RULE, VALUE, HELP, WHEN, KEYS)                                             \
  flags += flagOf(NAME, RULE, o.FIELD, d.FIELD);
#include "passes/options/Options.def"
  return flags;
}
