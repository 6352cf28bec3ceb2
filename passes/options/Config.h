// DeepSpeed configurations: what a ds_config.json means in zcc's flags. ConfigKeys.def has the keys.
#pragma once

#include "passes/options/CommandLine.h"
#include "llvm/ADT/ArrayRef.h"

namespace zcc {

/// What becomes of a key; see ConfigKeys.def.
enum class Treatment { Section, Code, Flag, FlagDs, Hint, Prefetch, Offload, NvmePath, Param, Derive, Ignore, Refuse, Alias };

enum class KeyType {
  Bool,
  Int,
  IntOrFalse, ///< false is null
  Number,
  String,
  Array,
  Object,
  Fp32,   ///< "fp32" in any case; null is its default
  Mean,   ///< "mean" in any case
  Betas,  ///< two numbers
  Warmup, ///< "log" or "linear"
};

struct ConfigKey {
  const char *section, *name, *of;
  KeyType type;
  const char *otherwise; ///< DeepSpeed's default, as JSON
  Treatment treatment;
  const char *why;
  const char *target = ""; ///< the option that names the key (Options.def); "": none
  std::string path() const;
  bool isOf(llvm::StringRef type) const; ///< whether params of that type have it
};
llvm::ArrayRef<ConfigKey> configKeys();

/// A setting as it counts, for --plan.
struct Setting {
  std::string key, value, reason;
};

struct Config {
  FlagValues flags; ///< to be set; none of them is given
  std::string schedule = "constant";
  std::vector<std::pair<std::string, std::string>> scheduleParams;
  std::string nvmePath;   ///< the program's default folder for what lives on a disk
  int64_t microBatch = 0; ///< samples of a rank and micro-batch; 0: the model's
  bool fixesTrainBatch = false;
  int64_t gradAccum = 1, ranks = 1;
  std::vector<Setting> settings;
  std::vector<std::string> warnings, notes; ///< one line each

  void set(std::string key, std::string value, std::string reason) {
    settings.push_back({std::move(key), std::move(value), std::move(reason)});
  }
};

/// What a configuration's text means beside the flags that are given. Errors: what is wrong in it,
/// everything at once, each with its path in the JSON.
llvm::Expected<Config> resolveConfig(llvm::StringRef text, const FlagValues &given, const std::vector<std::string> &flags);
/// Compares the model's batch with the configuration's, or takes it. `dimGiven`: --dim fixed the model's.
llvm::Error checkBatch(Config &c, int64_t modelBatch, bool dimGiven);
/// Adds the given flags that no setting names.
void addFlags(std::vector<Setting> &settings, const FlagValues &given);

} // namespace zcc
