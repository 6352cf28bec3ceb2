// DeepSpeed configurations: every key of the table, batch sizes, and what sections mean.
#include "passes/options/Config.h"
#include "ir/Diag.h"
#include "passes/options/ConfigResolver.h"
#include "passes/options/ConfigText.h"
#include "runtime/Schedule.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/raw_ostream.h"
#include <gtest/gtest.h>

namespace config_test {

using namespace zcc;
using llvm::StringRef;
using llvm::json::Array;
using llvm::json::Object;
using JsonValue = llvm::json::Value;

// ---- helpers

/// Every flag that a key names.
static std::vector<std::string> allFlags() {
  std::vector<std::string> flags = {"dtype", "optimizer", "grad-accum", "cycle-momentum", "ranks"};
  for (const ConfigKey &k : configKeys())
    if (*k.target && k.treatment != Treatment::Alias)
      flags.push_back(k.target);
  return flags;
}

static Object &sectionOf(Object &top, StringRef path) {
  Object *o = &top;
  for (StringRef part : llvm::split(path, '.')) {
    if (part.empty())
      break;
    if (!o->getObject(part))
      (*o)[part] = Object();
    o = o->getObject(part);
  }
  return *o;
}

static std::string textOf(Object o) {
  std::string s;
  llvm::raw_string_ostream(s) << JsonValue(std::move(o));
  return s;
}

/// What the key needs around it, to be read at all and not to be off.
static Object around(const ConfigKey &k) {
  Object top{{"train_micro_batch_size_per_gpu", 4}};
  StringRef section = k.section, type = StringRef(k.of).split(' ').first;
  if (section.starts_with("optimizer"))
    sectionOf(top, "optimizer")["type"] = type.empty() ? "adam" : type;
  if (section.starts_with("scheduler")) {
    sectionOf(top, "scheduler")["type"] = type.empty() ? "WarmupLR" : type;
    Object &params = sectionOf(top, "scheduler.params");
    if (findKey("scheduler.params", "total_num_steps", type))
      params["total_num_steps"] = 100;
    if (type == "OneCycle")
      params["cycle_min_lr"] = 0.1, params["cycle_max_lr"] = 0.2;
  }
  if (StringRef(k.name).starts_with("stage3_"))
    sectionOf(top, section)["stage"] = 3;
  const ConfigKey *enabled = findKey(section, "enabled", "");
  if (enabled && enabled->treatment != Treatment::Refuse)
    sectionOf(top, section)["enabled"] = true;
  return top;
}

static llvm::Expected<Config> resolve(StringRef text, FlagValues given = {}) { return resolveConfig(text, given, allFlags()); }

static llvm::Expected<Config> resolveWith(const ConfigKey &k, StringRef name, JsonValue v) {
  Object top = around(k);
  sectionOf(top, k.section)[name] = std::move(v);
  return resolve(textOf(std::move(top)));
}

static std::string errorOf(llvm::Expected<Config> c) {
  if (c)
    return "";
  return llvm::toString(c.takeError());
}

static bool contains(llvm::ArrayRef<std::string> lines, StringRef text) {
  return llvm::any_of(lines, [&](const std::string &l) { return StringRef(l).contains(text); });
}

static const Setting *settingOf(const Config &c, StringRef key) {
  for (const Setting &s : c.settings)
    if (s.key == key)
      return &s;
  return nullptr;
}

/// "VALUE (REASON)"
static std::string shown(const Config &c, StringRef key) {
  const Setting *s = settingOf(c, key);
  return s ? s->value + " (" + s->reason + ")" : "";
}

/// A value that is not the default.
static JsonValue other(const ConfigKey &k) {
  switch (k.type) {
  case KeyType::Bool:
    return !defaultOf(k).getAsBoolean().value_or(false);
  case KeyType::Int:
  case KeyType::IntOrFalse:
    return 7;
  case KeyType::Number:
    return 0.5;
  case KeyType::String:
    return k.treatment == Treatment::Offload ? "cpu" : "other";
  case KeyType::Array:
    return Array{"x"};
  case KeyType::Object:
    return Object{{"x", 1}};
  case KeyType::Fp32:
    return "bf16";
  case KeyType::Mean:
    return "sum";
  case KeyType::Betas:
    return Array{0.5, 0.25};
  case KeyType::Warmup:
    return "linear";
  }
  llvm_unreachable("a type of keys");
}

static bool isOff(const ConfigKey &k) {
  const ConfigKey *enabled = findKey(k.section, "enabled", "");
  return enabled && enabled->treatment == Treatment::Refuse && StringRef(k.name) != "enabled";
}

/// What is said of a key that a schedule needs, and that neither has a default nor follows from anything; "": it is none.
static std::string whyNeeded(const ConfigKey &k) {
  const bool isNeeded = k.treatment == Treatment::Param && StringRef(k.otherwise) == "null" && !*k.why;
  return isNeeded ? k.path() + " is missing: " + k.of + " needs it" : "";
}

// ---- each key of the table

TEST(Config, EachKeyTakesItsDefault) {
  for (const ConfigKey &k : configKeys()) {
    bool needsType = k.path() == "optimizer" || k.path() == "scheduler";
    if (k.treatment == Treatment::Code || k.treatment == Treatment::Alias || needsType)
      continue;
    auto c = resolveWith(k, k.name, defaultOf(k));
    EXPECT_EQ(errorOf(std::move(c)), whyNeeded(k)) << k.path();
  }
}

TEST(Config, EachKeyIsTreatedAsTheTableSays) {
  for (const ConfigKey &k : configKeys()) {
    if (k.treatment == Treatment::Code || k.treatment == Treatment::Section || k.treatment == Treatment::Alias)
      continue;
    std::string path = k.path();
    auto c = resolveWith(k, k.name, other(k));
    if (k.treatment == Treatment::Refuse && !isOff(k)) {
      std::string e = errorOf(std::move(c));
      EXPECT_TRUE(StringRef(e).contains(path + ": ") && StringRef(e).contains(k.why)) << path << e;
      continue;
    }
    if (!c)
      return void(ADD_FAILURE() << path << ": " << errorOf(std::move(c)));
    if (isOff(k)) {
      EXPECT_TRUE(StringRef(shown(*c, path)).ends_with(" is off)")) << path;
    } else if (k.treatment == Treatment::Ignore) {
      EXPECT_TRUE(contains(c->warnings, path) && contains(c->warnings, k.why)) << path;
    } else if (k.treatment == Treatment::Derive) {
      EXPECT_TRUE(StringRef(shown(*c, path)).contains("(derived: ")) << path;
    } else if (k.treatment == Treatment::NvmePath) {
      EXPECT_EQ(c->nvmePath, "other") << path;
    } else if (k.treatment == Treatment::Param) {
      EXPECT_TRUE(llvm::is_contained(llvm::make_first_range(c->scheduleParams), k.name)) << path;
    } else if (StringRef(k.name) == "ratio") { // of a section without a device
      EXPECT_TRUE(StringRef(shown(*c, path)).ends_with("(no effect: no state is moved)")) << path;
    } else if (!*k.target) {
      EXPECT_TRUE(StringRef(shown(*c, path)).ends_with("(a hint, not used: derived)")) << path << shown(*c, path);
    } else {
      EXPECT_EQ(c->flags.count(k.target), 1u) << path;
    }
  }
}

TEST(Config, EachMisspeltKeySuggestsTheRightOne) {
  for (const ConfigKey &k : configKeys()) {
    std::string name = k.name;
    name.insert(name.size() / 2, 1, name[name.size() / 2]);
    std::string e = errorOf(resolveWith(k, name, defaultOf(k)));
    EXPECT_EQ(e, "unknown key " + joinPath(k.section, name) + "; did you mean " + k.path() + "?");
  }
}

TEST(Config, EachWrongTypeIsNamed) {
  for (const ConfigKey &k : configKeys()) {
    if (k.treatment == Treatment::Alias || k.path() == "optimizer.type" || k.path() == "scheduler.type")
      continue;
    JsonValue wrong = k.type == KeyType::Object ? JsonValue(3) : JsonValue(Object());
    std::string e = errorOf(resolveWith(k, k.name, std::move(wrong)));
    EXPECT_TRUE(StringRef(e).contains(k.path() + ": expected ")) << k.path() << ": " << e;
  }
}

TEST(Config, EachKeyMayBeAuto) {
  for (const ConfigKey &k : configKeys()) {
    if (k.type == KeyType::Object || k.treatment == Treatment::Alias || StringRef(k.name) == "type" ||
        StringRef(k.path()).starts_with("train_micro"))
      continue;
    auto c = resolveWith(k, k.name, "auto");
    if (!whyNeeded(k).empty()) {
      EXPECT_EQ(errorOf(std::move(c)), whyNeeded(k));
      continue;
    }
    if (!c)
      return void(ADD_FAILURE() << k.path() << ": " << errorOf(std::move(c)));
    EXPECT_TRUE(contains(c->notes, k.path() + ": auto is ")) << k.path();
  }
}

TEST(Config, TheProgramKnowsEachScheduleParameter) {
  for (const char *kind : {"WarmupLR", "WarmupDecayLR", "WarmupCosineLR", "OneCycle", "LRRangeTest"}) {
    std::vector<std::string> here;
    for (const ConfigKey &k : configKeys())
      if (k.treatment == Treatment::Param && k.isOf(kind))
        here.push_back(k.name);
    zccrt::Schedule::Kind there;
    ASSERT_TRUE(zccrt::scheduleFromName(kind, there));
    EXPECT_EQ(here, zccrt::paramNames(there));
  }
}

TEST(Config, GradientsTravelInTheParametersType) {
  auto withType = [](const char *precision, const char *travels) {
    auto c = resolve(
        (llvm::Twine("{\"") + precision + "\": {\"enabled\": true}, \"communication_data_type\": \"" + travels + "\"}").str());
    return c ? shown(*c, "communication_data_type") : errorOf(std::move(c));
  };
  EXPECT_EQ(withType("bf16", "bf16"), "\"bf16\" (config)");
  EXPECT_EQ(withType("fp16", "FP16"), "\"fp16\" (config)");
  EXPECT_EQ(withType("bf16", "fp32"),
            "communication_data_type: \"fp32\" is not supported: gradients travel in the type of the parameters, bf16");
}

TEST(Config, ARateThatAScheduleDoesNotReadIsWarnedAbout) {
  auto c = llvm::cantFail(
      resolve(R"({"scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": 0.1, "cycle_max_lr": 1}}})", {{"lr", "0.5"}}));
  EXPECT_TRUE(contains(c.warnings, "--lr: no effect: the rates of OneCycle are scheduler.params'"));
  c = llvm::cantFail(resolve(R"({"optimizer": {"type": "Adam", "params": {"lr": 3e-5}},
                                 "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_max_lr": "auto", "total_num_steps": 9}}})"));
  EXPECT_EQ(shown(c, "scheduler.params.warmup_max_lr"), "3e-05 (optimizer.params.lr)");
}

TEST(Config, OneFolderOfDisks) {
  auto c = llvm::cantFail(resolve(R"({"zero_optimization": {"stage": 3,
      "offload_optimizer": {"device": "nvme", "nvme_path": "/a"}, "offload_param": {"device": "cpu", "nvme_path": "/b"}}})"));
  EXPECT_EQ(c.nvmePath, "/a");
  c = llvm::cantFail(resolve(R"({"zero_optimization": {"stage": 3,
      "offload_optimizer": {"device": "nvme", "nvme_path": "/a"}, "offload_param": {"device": "nvme", "nvme_path": "/b"}}})"));
  EXPECT_EQ(c.nvmePath, "/a");
  EXPECT_TRUE(contains(c.warnings, "zero_optimization.offload_param.nvme_path: no effect"));
}

TEST(Config, AShareOfWhatDoesNotMove) {
  auto said = [](const char *device, FlagValues given) {
    std::string text =
        std::string(R"({"zero_optimization": {"stage": 3, "offload_optimizer": {"device": ")") + device + R"(", "ratio": 0.3}}})";
    auto c = llvm::cantFail(resolve(text, given));
    EXPECT_EQ(c.flags.count("offload-optimizer-ratio"),
              shown(c, "zero_optimization.offload_optimizer.ratio") == "0.3 (config)" ? 1u : 0u);
    return shown(c, "zero_optimization.offload_optimizer.ratio");
  };
  EXPECT_EQ(said("cpu", {}), "0.3 (config)");
  EXPECT_EQ(said("none", {}), "0.3 (no effect: no state is moved)");
  EXPECT_EQ(said("cpu", {{"offload-optimizer", "none"}}), "0.3 (no effect: --offload-optimizer is none)");
  EXPECT_EQ(said("cpu", {{"offload-optimizer", "auto"}}), "0.3 (no effect: --offload-optimizer is auto)");
}

// ---- batch sizes

static std::string batch(StringRef text, const char *ranks) {
  auto c = resolve(text, {{"ranks", ranks}});
  if (!c)
    return llvm::toString(c.takeError());
  const Setting *train = settingOf(*c, "train_batch_size");
  return (train ? train->value : "?") + " = " + std::to_string(c->microBatch) + " x " + std::to_string(c->gradAccum);
}

TEST(Config, BatchSizesAreDeepSpeeds) {
  EXPECT_EQ(batch(R"({"train_batch_size": 32, "train_micro_batch_size_per_gpu": 4})", "2"), "32 = 4 x 4");
  EXPECT_EQ(batch(R"({"train_batch_size": 32, "gradient_accumulation_steps": 2})", "4"), "32 = 4 x 2");
  EXPECT_EQ(batch(R"({"train_micro_batch_size_per_gpu": 3, "gradient_accumulation_steps": 5})", "2"), "30 = 3 x 5");
  EXPECT_EQ(batch(R"({"train_batch_size": 32})", "4"), "32 = 8 x 1");
  EXPECT_EQ(batch(R"({"train_micro_batch_size_per_gpu": 3})", "4"), "12 = 3 x 1");
  EXPECT_EQ(batch(R"({"gradient_accumulation_steps": 4})", "1"), "? = 0 x 4"); // the model's batch
  EXPECT_EQ(batch(R"({"train_batch_size": 24, "train_micro_batch_size_per_gpu": 4,
                      "gradient_accumulation_steps": 3})",
                  "2"),
            "24 = 4 x 3");
  EXPECT_EQ(batch(R"({"train_batch_size": 10})", "4"), "train_batch_size 10 is not train_micro_batch_size_per_gpu 2 x "
                                                       "gradient_accumulation_steps 1 x --ranks 4");
  EXPECT_EQ(batch(R"({"train_batch_size": 0})", "1"), "train_batch_size: expected a number above 0, not 0");
}

TEST(Config, TheModelsBatchIsChecked) {
  auto check = [](StringRef text, int64_t model, bool dim) {
    auto c = resolve(text);
    llvm::Error e = checkBatch(*c, model, dim);
    return e ? llvm::toString(std::move(e)) : shown(*c, "train_micro_batch_size_per_gpu");
  };
  EXPECT_EQ(check(R"({"train_micro_batch_size_per_gpu": 4})", 4, false), "4 (config)");
  EXPECT_EQ(check(R"({"train_micro_batch_size_per_gpu": 4})", 8, true), "8 (--dim)");
  EXPECT_EQ(check("{}", 8, false), "8 (the model's)");
  EXPECT_EQ(check(R"({"train_micro_batch_size_per_gpu": 4})", 8, false),
            "train_micro_batch_size_per_gpu is 4, but the model's batch is 8; export it with a "
            "symbolic batch dimension");
  EXPECT_EQ(check(R"({"train_batch_size": 4})", 8, true),
            "train_micro_batch_size_per_gpu is 4, but the model's batch is 8 by --dim");
}

// ---- sections

TEST(Config, Adam) {
  auto c = llvm::cantFail(resolve(R"({"optimizer": {"type": "Adam", "params": {"lr": 0.01}}})"));
  EXPECT_EQ(c.flags["optimizer"], "adamw");
  EXPECT_EQ(c.flags["weight-decay"], "0");
  EXPECT_EQ(c.flags["lr"], "0.01");
  EXPECT_EQ(c.flags["betas"], "0.9,0.999");
  EXPECT_TRUE(contains(c.notes, "'Adam' is AdamW in DeepSpeed"));
  EXPECT_TRUE(contains(c.notes, "weight_decay is 0: DeepSpeed's default"));
  c = llvm::cantFail(resolve(R"({"optimizer": {"type": "Adam", "params": {"adam_w_mode": false}}})"));
  EXPECT_EQ(c.flags["optimizer"], "adam");
  EXPECT_FALSE(contains(c.notes, "AdamW"));
  c = llvm::cantFail(resolve(R"({"optimizer": {"type": "AdamW", "params": {"torch_adam": true}}})"));
  EXPECT_EQ(c.flags["weight-decay"], "0.01");
}

TEST(Config, OtherOptimizers) {
  auto c = llvm::cantFail(resolve(R"({"optimizer": {"type": "Lamb", "params": {"max_coeff": 2}}})"));
  EXPECT_EQ(c.flags["optimizer"], "lamb");
  EXPECT_EQ(c.flags["max-coeff"], "2");
  c = llvm::cantFail(resolve(R"({"optimizer": {"type": "Adagrad"}})"));
  EXPECT_EQ(c.flags["lr"], "0.01");
  EXPECT_EQ(c.flags["eps"], "1e-10");
  c = llvm::cantFail(resolve(R"({"optimizer": {"type": "SGD", "params": {"momentum": 0.9, "nesterov": true}}})"));
  EXPECT_EQ(c.flags["nesterov"], "on");
  EXPECT_EQ(errorOf(resolve(R"({"optimizer": {"type": "OneBitAdam"}})")),
            "optimizer.type: 'OneBitAdam' is not supported; there are adamw, adam, sgd, adagrad, "
            "lamb, lion");
  EXPECT_EQ(errorOf(resolve(R"({"optimizer": {"type": "AdanW"}})")), "optimizer.type: 'AdanW' is unknown; did you mean 'adamw'?");
  EXPECT_EQ(errorOf(resolve(R"({"optimizer": {"params": {}}})")), "optimizer.type is missing");
  EXPECT_EQ(errorOf(resolve(R"({"optimizer": {"type": "Adam", "params": {"lr_decay": 0}}})")),
            "unknown key optimizer.params.lr_decay: not of type adam");
}

TEST(Config, FlagsWin) {
  const char *text = R"({"gradient_clipping": 0.5, "gradient_accumulation_steps": 2,
    "optimizer": {"type": "Adam", "params": {"lr": 0.01, "eps": 1e-6}},
    "scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": 9, "warmup_max_lr": 1}}})";
  auto c = llvm::cantFail(resolve(text, {{"lr", "0.3"}, {"clip-grad-norm", "7"}, {"grad-accum", "3"}}));
  EXPECT_EQ(c.flags.count("lr") + c.flags.count("clip-grad-norm") + c.flags.count("grad-accum"), 0u);
  EXPECT_EQ(shown(c, "optimizer.params.lr"), "0.3 (--lr)");
  EXPECT_EQ(shown(c, "scheduler.params.warmup_max_lr"), "0.3 (--lr)");
  EXPECT_EQ(shown(c, "gradient_clipping"), "7 (--clip-grad-norm)");
  EXPECT_EQ(shown(c, "gradient_accumulation_steps"), "3 (--grad-accum)");
  EXPECT_EQ(c.flags["eps"], "1e-06");
  c = llvm::cantFail(resolve(text, {{"optimizer", "sgd"}}));
  EXPECT_EQ(c.flags.count("eps") + c.flags.count("betas"), 0u);
  EXPECT_TRUE(contains(c.warnings, "optimizer.params are those of 'adam' and not used"));
}

TEST(Config, Defaults) {
  auto c = llvm::cantFail(resolve("{}"));
  EXPECT_EQ(c.flags["clip-grad-norm"], "1");
  EXPECT_TRUE(contains(c.notes, "gradient_clipping is 1.0"));
  EXPECT_TRUE(contains(c.notes, "there is no optimizer section"));
  EXPECT_EQ(c.schedule, "constant");
}

TEST(Config, Precision) {
  EXPECT_EQ(llvm::cantFail(resolve(R"({"bfloat16": {"enabled": true}})")).flags["dtype"], "bf16");
  EXPECT_EQ(llvm::cantFail(resolve(R"({"fp16": {"enabled": true}})")).flags["dtype"], "fp16");
  auto c = llvm::cantFail(resolve(R"({"fp16": {"enabled": "auto", "min_loss_scale": 4}})", {{"dtype", "fp16"}}));
  EXPECT_EQ(c.flags["min-loss-scale"], "4");
  EXPECT_TRUE(contains(c.notes, "fp16.enabled: auto is true (--dtype)"));
  EXPECT_EQ(errorOf(resolve(R"({"fp16": {"enabled": true}, "bf16": {"enabled": true}})")),
            "fp16.enabled and bf16.enabled exclude each other");
  EXPECT_EQ(errorOf(resolve(R"({"bfloat16": {"enabled": true}, "bf16": {"enabled": true}})")),
            "bfloat16 and bf16 are the same key");
  c = llvm::cantFail(resolve(R"({"bf16": {"enabled": true, "check_grad_overflow": false}})"));
  EXPECT_EQ(c.flags["check-grad-overflow"], "off");
}

TEST(Config, Fp32LooksForOverflowsAsTheStageDoes) { // DeepSpeed 0.19.8: runtime/zero/stage_1_and_2.py:3043, stage3.py:2890
  auto c = llvm::cantFail(resolve(R"({"zero_optimization": {"stage": 2}})"));
  EXPECT_EQ(c.flags["check-grad-overflow"], "on");
  EXPECT_TRUE(contains(c.notes, "fp32: a step whose gradients are not finite is skipped"));
  EXPECT_EQ(llvm::cantFail(resolve("{}")).flags.count("check-grad-overflow"), 0u);
  c = llvm::cantFail(resolve(R"({"zero_optimization": {"stage": 2}})", {{"check-grad-overflow", "off"}}));
  EXPECT_EQ(c.flags.count("check-grad-overflow"), 0u);
}

TEST(Config, SettingsOfAnotherPrecisionThanTheFlagsAreOff) {
  auto c = llvm::cantFail(resolve(R"({"fp16": {"enabled": true, "hysteresis": 4}})", {{"dtype", "fp32"}}));
  EXPECT_EQ(c.flags.count("loss-scale-hysteresis"), 0u);
  EXPECT_EQ(shown(c, "fp16.hysteresis"), "4 (fp16 is off)");
  c = llvm::cantFail(resolve(R"({"fp16": {"hysteresis": 4}})", {{"dtype", "fp16"}}));
  EXPECT_EQ(c.flags["loss-scale-hysteresis"], "4");
}

TEST(Config, TheLossScaleOfStage0IsSaid) {
  const char *note = "the loss scale is that of DeepSpeed's stages 1 to 3";
  EXPECT_TRUE(contains(llvm::cantFail(resolve(R"({"fp16": {"enabled": true}})")).notes, note));
  for (const char *other : {R"({"fp16": {"enabled": true}, "zero_optimization": {"stage": 1}})",
                            R"({"fp16": {"enabled": true, "loss_scale": 128}})", R"({"bf16": {"enabled": true}})", "{}"})
    EXPECT_FALSE(contains(llvm::cantFail(resolve(other)).notes, note)) << other;
}

TEST(Config, OneAndZeroAreTrueAndFalse) {
  auto c = llvm::cantFail(resolve(R"({"zero_allow_untested_optimizer": 1, "bf16": {"enabled": 1},
    "zero_optimization": {"stage": 3, "overlap_comm": 0}})"));
  EXPECT_EQ(shown(c, "zero_allow_untested_optimizer"), "true (no effect: every optimizer here works at every stage)");
  EXPECT_EQ(c.flags["dtype"], "bf16");
  EXPECT_EQ(c.flags["overlap"], "off");
  EXPECT_EQ(errorOf(resolve(R"({"bf16": {"enabled": 2}})")), "bf16.enabled: expected true or false, not 2");
  auto none = llvm::cantFail(resolve(R"({"activation_checkpointing": {"number_checkpoints": false}})"));
  EXPECT_FALSE(contains(none.warnings, "number_checkpoints")); // as DeepSpeed takes it: not given
  EXPECT_EQ(errorOf(resolve(R"({"activation_checkpointing": {"number_checkpoints": true}})")),
            "activation_checkpointing.number_checkpoints: expected an integer or false, not true");
}

TEST(Config, Zero) {
  auto c = llvm::cantFail(resolve(R"({"zero_optimization": {"stage": 3, "overlap_comm": false,
    "stage3_prefetch_bucket_size": 0, "param_persistence_threshold": 1e4}})"));
  EXPECT_EQ(c.flags["zero"], "3");
  EXPECT_EQ(c.flags["overlap"], "off");
  EXPECT_EQ(c.flags["prefetch"], "off");
  EXPECT_EQ(c.flags["param-persistence-threshold"], "10000");
  EXPECT_EQ(errorOf(resolveConfig(R"({"zero_optimization": {"offload_optimizer": {"device": "nvme"}}})", {}, {"zero"})),
            "zero_optimization.offload_optimizer.device: nvme is not supported yet: there is no "
            "--offload-optimizer");
  EXPECT_EQ(errorOf(resolve(R"({"stage3_max_live_parameters": 1})")), "unknown key stage3_max_live_parameters; did you mean "
                                                                      "zero_optimization.stage3_max_live_parameters?");
}

TEST(Config, WhatIsOffIsNotRefused) {
  auto c = llvm::cantFail(resolve(R"({"hybrid_engine": {"enabled": false, "max_out_tokens": 512}, "eigenvalue": {"enabled": 0},
    "compression_training": {}})"));
  EXPECT_EQ(shown(c, "eigenvalue"), R"({"enabled":0} (eigenvalue is off))");
  EXPECT_EQ(errorOf(resolve(R"({"hybrid_engine": {"max_out_tokens": 512}})")),
            "hybrid_engine: it is not supported: there is no inference engine");
}

TEST(Config, KeysOfStage3DoNothingElsewhere) {
  auto c = llvm::cantFail(resolve(R"({"zero_optimization": {"stage": 2, "reduce_bucket_size": 1e6,
    "stage3_max_live_parameters": 1e9}})"));
  EXPECT_EQ(c.flags.count("max-live-parameters"), 0u);
  EXPECT_EQ(shown(c, "zero_optimization.stage3_max_live_parameters"), "1000000000 (of stage 3)");
  EXPECT_EQ(c.flags["reduce-bucket-size"], "1000000");
}

TEST(Config, ZeroMayBeTrue) {
  auto c = llvm::cantFail(resolve(R"({"zero_optimization": true, "allgather_size": 1000})"));
  EXPECT_EQ(c.flags["zero"], "1");
  EXPECT_TRUE(contains(c.notes, "zero_optimization: true and false are deprecated; it is stage 1"));
  EXPECT_EQ(llvm::cantFail(resolve(R"({"zero_optimization": false})")).flags["zero"], "0");
}

TEST(Config, Schedules) {
  auto c = llvm::cantFail(resolve(R"({"scheduler": {"type": "WarmupLR",
    "params": {"warmup_max_lr": "auto", "warmup_num_steps": 10, "warmup_type": "linear"}}})"));
  EXPECT_EQ(c.schedule, "WarmupLR");
  using Params = std::vector<std::pair<std::string, std::string>>;
  EXPECT_EQ(c.scheduleParams, (Params{{"warmup_num_steps", "10"}, {"warmup_type", "linear"}}));
  EXPECT_TRUE(contains(c.notes, "warmup_max_lr: auto is the optimizer's lr"));
  EXPECT_EQ(errorOf(resolve(R"({"scheduler": {"type": "WarmupCosineLR"}})")),
            "scheduler.params.total_num_steps is missing: WarmupCosineLR needs it");
  EXPECT_EQ(errorOf(resolve(R"({"scheduler": {"type": "WarmupCosinLR"}})")),
            "scheduler.type: 'WarmupCosinLR' is not supported; did you mean 'WarmupCosineLR'?");
}

TEST(Config, MomentumCyclesWithBetas) {
  std::string cycle = R"("scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": 0.01,
    "cycle_max_lr": 0.1, "cycle_min_mom": 0.7}}})";
  auto c = llvm::cantFail(resolve(R"({"optimizer": {"type": "Adam"}, )" + cycle));
  EXPECT_EQ(c.flags["cycle-momentum"], "on");
  EXPECT_EQ(c.flags["betas"], "0.7,0.99");
  c = llvm::cantFail(resolve(R"({"optimizer": {"type": "SGD"}, )" + cycle));
  EXPECT_EQ(c.flags.count("cycle-momentum"), 0u);
  EXPECT_TRUE(contains(c.warnings, "cycle_momentum: no effect: sgd has no betas"));
  EXPECT_TRUE(llvm::is_contained(c.scheduleParams, std::pair<std::string, std::string>("cycle_momentum", "false")));
}

// ---- the text

TEST(Config, Text) {
  auto c = llvm::cantFail(resolve("{ # a comment\n\"fp16\": {}, // another\n /* a third: \" */ "
                                  "\"log_level\": \"# no // comment\"}"));
  EXPECT_EQ(settingOf(c, "log_level")->value, "\"# no // comment\"");
  EXPECT_EQ(errorOf(resolve("{\n  \"fp16\": }")), "line 2, column 11: expected a value");
  EXPECT_EQ(errorOf(resolve("[1]")), "a configuration is an object, { ... }");
  EXPECT_EQ(errorOf(resolve(R"({"zero_optimization": {"stage": 1, "x": [{"a": 1}], "stage": 2}})")),
            "zero_optimization.stage is there twice");
}

/// What is read, as JSON, or the error.
static std::string read(StringRef text) {
  auto v = parseConfigText(text);
  if (!v)
    return llvm::toString(v.takeError());
  std::string s;
  llvm::raw_string_ostream(s) << *v;
  return s;
}

TEST(Config, TextIsHjson) {
  const std::pair<const char *, const char *> texts[] = {
      {"{a: 1, 'b': [1, 2.5,], c: {},}", R"({"a":1,"b":[1,2.5],"c":{}})"},
      {"{\n a: true # so\n b: null // so\n\n c: -1e3 /* so */ }", R"({"a":true,"b":null,"c":-1000})"},
      {"a: 1\nb: two words, and } more  \nc: [x\ny\n]", R"({"a":1,"b":"two words, and } more","c":["x","y"]})"},
      {"{a: 01\nb: 1.\nc: nullx\nd: 1 2\n}", R"({"a":"01","b":"1.","c":"nullx","d":"1 2"})"},
      {R"({"a": "\u00e9\ud83d\ude00\n\"'", b: '\'"'})", "{\"a\":\"\xc3\xa9\xf0\x9f\x98\x80\\n\\\"'\",\"b\":\"'\\\"\"}"},
      {"\xef\xbb\xbf{}", "{}"},
  };
  for (auto [text, json] : texts)
    EXPECT_EQ(read(text), json);
}

TEST(Config, TextErrors) {
  const std::pair<std::string, const char *> texts[] = {
      {"{a: 1", "line 1, column 1: the object does not end"},
      {"{a: yes}", "line 1, column 1: the object does not end; a string without quotes goes on to "
                   "the end of its line"},
      {"{a: [1,\n", "line 1, column 5: the list does not end"},
      {"{a 1}", "line 1, column 4: expected ':' behind the key a"},
      {"{a: 1,, b: 2}", "line 1, column 7: expected a key"},
      {"{a: [,]}", "line 1, column 6: expected a value"},
      {"{a: 1} b", "line 1, column 8: the configuration has ended before"},
      {"{a: \"x\n\"}", "line 1, column 5: the string does not end in its line"},
      {"{a: \"x", "line 1, column 5: the string does not end"},
      {"{a: \"\\x\"}", "line 1, column 6: no such escape"},
      {"{a: \"\\ud800\"}", "line 1, column 6: half a character"},
      {"{a: '''x'''}", "line 1, column 5: strings of several lines are not read"},
      {"{a: 1e999}", "line 1, column 5: the number is too large"},
      {"{a: \xff}", "line 1, column 5: this is not UTF-8"},
      {"# nothing\n", "a configuration is an object, { ... }"},
      {"{a: 1, 'a': 2}", "a is there twice"},
      {"{a: " + std::string(50000, '['), "line 1, column 69: brackets are nested deeper than 64"},
      {std::string(50000, '{'), "line 1, column 2: expected a key"},
  };
  for (auto &[text, message] : texts)
    EXPECT_EQ(read(text), message) << text.substr(0, 20);
  std::string deep;
  for (int i = 0; i < 50000; ++i)
    deep += "{a:";
  EXPECT_TRUE(StringRef(read(deep)).contains("nested deeper than 64"));
}

TEST(Config, ReportsEverythingAtOnce) {
  std::string e = errorOf(resolve(R"({"amp": {"enabled": true}, "fp17": {}, "steps_per_print": "x"})"));
  for (const char *text :
       {"amp.enabled: true is not supported", "did you mean fp16?", "steps_per_print: expected an integer, not \"x\""})
    EXPECT_TRUE(StringRef(e).contains(text)) << e;
}

} // namespace config_test
