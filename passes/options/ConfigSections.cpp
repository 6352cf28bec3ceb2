// The sections of a configuration that are more than their keys: precision, optimizer, schedule, batch.
#include "passes/options/ConfigResolver.h"
#include "passes/train/Optimizer.h"
#include "llvm/ADT/StringExtras.h"

using namespace zcc;
using llvm::StringRef;
using llvm::json::Object;

// ---- precision

void Resolver::takePrecision() {
  bool half = flagOf("fp16.enabled", false), brain = flagOf("bf16.enabled", false);
  if (half && brain)
    return fail("fp16.enabled and bf16.enabled exclude each other");
  std::string type = half ? "fp16" : brain ? "bf16" : "fp32";
  if (isGiven("dtype"))
    return out_.set("dtype", given_.at("dtype"), "--dtype");
  out_.set("dtype", type, half ? "fp16.enabled" : brain ? "bf16.enabled" : kDefault);
  setFlag("dtype", type);
}

/// Gradients travel between ranks in the type of the parameters, which is DeepSpeed's default.
void Resolver::takeCommunicationType(const Object &top) {
  auto text = top.getString("communication_data_type");
  if (!text || *text == "auto")
    return;
  const std::string type = isGiven("dtype") ? given_.at("dtype") : out_.flags["dtype"];
  if (text->lower() != type)
    return fail("communication_data_type: \"" + *text + "\" is not supported: gradients travel in the type of the parameters, " +
                type);
  out_.set("communication_data_type", "\"" + type + "\"", kConfig);
}

/// In 16 bits the stages train alike here, which DeepSpeed's do not. In fp32 its stages 1 to 3 skip what is not finite
/// (runtime/zero/stage_1_and_2.py and stage3.py, step), and its stage 0 does not.
void Resolver::takeLossScale() {
  auto valueOf = [&](const char *flag) -> StringRef {
    const FlagValues &from = isGiven(flag) ? given_ : out_.flags;
    auto i = from.find(flag);
    return i == from.end() ? "" : StringRef(i->second);
  };
  if (valueOf("dtype") == "fp32" && stage_ > 0 && !isGiven("check-grad-overflow")) {
    setFlag("check-grad-overflow", "on");
    out_.notes.push_back("fp32: a step whose gradients are not finite is skipped, as by DeepSpeed's stages 1 to 3, and "
                         "updates wait for all gradients; --check-grad-overflow=off takes it");
  }
  double fixed = 0;
  bool isFixed = !valueOf("loss-scale").getAsDouble(fixed) && fixed > 0;
  if (valueOf("dtype") != "fp16" || stage_ > 0 || isFixed)
    return;
  out_.notes.push_back("fp16: the loss scale is that of DeepSpeed's stages 1 to 3; its stage 0 has no "
                       "hysteresis, and goes on where the scale cannot be halved");
}

// ---- optimizer

/// zcc's name of DeepSpeed's optimizer.type, or "" with an error.
static std::string optimizerFromType(StringRef type, std::string &why) {
  std::string name = type.lower();
  if (findOptimizer(name))
    return name;
  for (const char *other : {"muon", "onebitadam", "onebitlamb", "zerooneadam", "muadam", "muadamw", "musgd", "rmsprop",
                            "adadelta", "adamax", "asgd", "lbfgs", "nadam", "radam", "rprop", "sparseadam", "adafactor"})
    if (name == other) {
      why = " is not supported";
      break;
    }
  std::vector<std::string> known;
  for (const OptimizerDef &d : optimizers())
    known.push_back(d.name);
  std::string near = why.empty() ? nearest(name, known) : "";
  if (!near.empty())
    why = " is unknown; did you mean '" + near + "'?";
  else
    why = (why.empty() ? " is unknown" : why) + "; there are " + llvm::join(known, ", ");
  return "";
}

void Resolver::takeOptimizer(const Object *o) {
  optimizer_ = isGiven("optimizer") ? given_.at("optimizer") : "adamw";
  if (!o) {
    out_.set("optimizer.type", optimizer_, isGiven("optimizer") ? "--optimizer" : "zcc's default");
    if (!isGiven("optimizer"))
      out_.notes.push_back("there is no optimizer section: it is adamw with PyTorch's defaults");
    return;
  }
  auto type = o->getString("type");
  if (!type)
    return fail("optimizer.type is missing");
  std::string why, name = optimizerFromType(*type, why);
  if (name.empty())
    return fail("optimizer.type: '" + *type + "'" + why);
  walk("optimizer", *o, "");
  Object none;
  const Object *params = o->getObject("params") ? o->getObject("params") : &none;
  const bool isAdamW = name == "adam" && optimizer_ == "adamw" && truthOf(params->get("adam_w_mode")).value_or(true);
  if (isGiven("optimizer") && optimizer_ != name && !isAdamW) {
    out_.set("optimizer.type", optimizer_, "--optimizer");
    if (!params->empty())
      out_.warnings.push_back("optimizer.params are those of '" + name + "' and not used: --optimizer=" + optimizer_);
    return;
  }
  walk("optimizer.params", *params, name);
  bool isWeightDecay = name == "adamw" || flagOf("optimizer.params.adam_w_mode", true);
  optimizer_ = name == "adam" && isWeightDecay && (!isGiven("optimizer") || isAdamW) ? "adamw" : name;
  if (optimizer_ != name)
    out_.notes.push_back("optimizer.type: '" + type->str() + "' is AdamW in DeepSpeed, unless params.adam_w_mode is false");
  bool isTorch = flagOf("optimizer.params.torch_adam", false);
  bool decays = params->get("weight_decay") && params->getString("weight_decay") != StringRef("auto");
  if (optimizer_ == "adamw" && !decays && !isGiven("weight-decay")) {
    std::string value = isTorch ? "0.01" : "0";
    out_.notes.push_back(
        "optimizer.params.weight_decay is " + value + ": " +
        (isTorch ? "PyTorch's default, with torch_adam" : "DeepSpeed's default, where PyTorch's AdamW has 0.01"));
    setFlag("weight-decay", value);
    for (Setting &s : out_.settings)
      if (s.key == "optimizer.params.weight_decay")
        s.value = value;
  }
  out_.set("optimizer.type", optimizer_, isGiven("optimizer") ? "--optimizer" : kConfig);
  setFlag("optimizer", optimizer_);
}

// ---- schedule

void Resolver::takeParam(const ConfigKey &k, const llvm::json::Value &v) {
  if (v.getAsNull())
    return out_.set(k.path(), *k.why ? k.why : "null", kDefault);
  std::string value = v.getAsBoolean() ? *v.getAsBoolean() ? "true" : "false" : flagText(v);
  out_.scheduleParams.emplace_back(k.name, value);
  out_.set(k.path(), value, kConfig);
}

void Resolver::takeScheduler(const Object *o) {
  if (!o)
    return out_.set("scheduler.type", "none: a constant rate", kDefault);
  std::vector<std::string> known;
  for (const ConfigKey &k : configKeys())
    if (StringRef(k.section) == "scheduler.params")
      for (StringRef t : llvm::split(k.of, ' '))
        if (!llvm::is_contained(known, t.str()))
          known.push_back(t.str());
  auto type = o->getString("type");
  if (!type)
    return fail("scheduler.type is missing");
  if (!llvm::is_contained(known, type->str())) {
    std::string near = nearest(*type, known);
    return fail("scheduler.type: '" + *type + "' is not supported; " +
                (near.empty() ? "there are " + llvm::join(known, ", ") : "did you mean '" + near + "'?"));
  }
  walk("scheduler", *o, "");
  out_.schedule = type->str();
  out_.set("scheduler.type", out_.schedule, kConfig);
  Object none;
  const Object *params = o->getObject("params") ? o->getObject("params") : &none;
  walk("scheduler.params", *params, *type);
  for (const char *required : {"total_num_steps", "cycle_min_lr", "cycle_max_lr"}) {
    const ConfigKey *k = findKey("scheduler.params", required, *type);
    if (!k)
      continue;
    const llvm::json::Value *v = params->get(required);
    const bool isDerived = *k->why != 0;
    if (!v || (!isDerived && (v->getAsNull() || v->getAsString() == StringRef("auto"))))
      fail(std::string("scheduler.params.") + required + " is missing: " + *type + " needs it");
  }
  if (isGiven("lr") && (*type == "OneCycle" || *type == "LRRangeTest"))
    out_.warnings.push_back("--lr: no effect: the rates of " + out_.schedule + " are scheduler.params'");
  if (isGiven("lr") && findKey("scheduler.params", "warmup_max_lr", *type)) {
    llvm::erase_if(out_.scheduleParams, [](auto &p) { return p.first == "warmup_max_lr"; });
    out_.scheduleParams.emplace_back("warmup_max_lr", given_.at("lr"));
    llvm::erase_if(out_.settings, [](Setting &s) { return s.key == "scheduler.params.warmup_max_lr"; });
    out_.set("scheduler.params.warmup_max_lr", given_.at("lr"), "--lr");
  }
  if (out_.schedule == "OneCycle")
    cycleMomentum();
}

/// OneCycle sets the betas of an optimizer that has them: the first cycles, the second is 0.99.
void Resolver::cycleMomentum() {
  std::string least = "0.8";
  bool cycles = true;
  for (auto &[name, value] : out_.scheduleParams) {
    if (name == "cycle_momentum")
      cycles = value == "true";
    if (name == "cycle_min_mom")
      least = value;
  }
  if (!cycles)
    return;
  const OptimizerDef *d = findOptimizer(optimizer_);
  if (d && d->uses & OptimizerDef::Betas) {
    setFlag("cycle-momentum", "on");
    setFlag("betas", least + ",0.99");
    for (Setting &s : out_.settings)
      if (s.key == "optimizer.params.betas" && !isGiven("betas"))
        s = {s.key, "cycled,0.99", "scheduler.params.cycle_momentum"};
    return;
  }
  out_.warnings.push_back("scheduler.params.cycle_momentum: no effect: " + optimizer_ + " has no betas");
  llvm::erase_if(out_.scheduleParams, [](auto &p) { return p.first == "cycle_momentum"; });
  out_.scheduleParams.emplace_back("cycle_momentum", "false");
}

// ---- batch sizes

std::optional<int64_t> Resolver::batchKey(const Object &top, StringRef name) {
  auto v = top.getInteger(name);
  if (v && *v <= 0)
    fail(name + ": expected a number above 0, not " + llvm::Twine(*v));
  return v;
}

/// DeepSpeed's _set_batch_related_parameters and its assertion.
void Resolver::takeBatch(const Object &top) {
  auto train = batchKey(top, "train_batch_size");
  auto micro = batchKey(top, "train_micro_batch_size_per_gpu");
  auto accum = batchKey(top, "gradient_accumulation_steps");
  auto flag = [&](StringRef name, int64_t &to) {
    auto i = given_.find(name.str());
    return i != given_.end() && !StringRef(i->second).getAsInteger(10, to) && to > 0;
  };
  flag("ranks", out_.ranks);
  int64_t n = out_.ranks, k;
  bool accumFromFlag = flag("grad-accum", k);
  if (accumFromFlag)
    accum = k;
  auto reason = [](bool inConfig) { return inConfig ? kConfig : "derived"; };
  std::string of[] = {reason(train.has_value()), reason(micro.has_value()),
                      accumFromFlag ? "--grad-accum" : reason(accum.has_value())};
  if ((train && *train <= 0) || (micro && *micro <= 0) || (accum && *accum <= 0))
    return;
  out_.fixesTrainBatch = train.has_value();
  if (train && micro && !accum)
    accum = *train / *micro / n;
  else if (train && accum && !micro)
    micro = *train / n / *accum;
  else if (train && !micro)
    accum = 1, micro = *train / n;
  out_.gradAccum = accum.value_or(1);
  out_.microBatch = micro.value_or(0);
  if (micro && !train)
    train = *micro * out_.gradAccum * n;
  if (train && (*train != out_.microBatch * out_.gradAccum * n || !out_.microBatch))
    return fail("train_batch_size " + llvm::Twine(*train) + " is not train_micro_batch_size_per_gpu " +
                llvm::Twine(out_.microBatch) + " x gradient_accumulation_steps " + llvm::Twine(out_.gradAccum) + " x --ranks " +
                llvm::Twine(n));
  if (train) {
    out_.set("train_batch_size", std::to_string(*train), of[0]);
    out_.set("train_micro_batch_size_per_gpu", std::to_string(*micro), of[1]);
  }
  out_.set("gradient_accumulation_steps", std::to_string(out_.gradAccum), of[2]);
  setFlag("grad-accum", std::to_string(out_.gradAccum));
}

llvm::Error zcc::checkBatch(Config &c, int64_t modelBatch, bool dimGiven) {
  if (c.microBatch == modelBatch)
    return llvm::Error::success();
  if (c.microBatch && (c.fixesTrainBatch || !dimGiven))
    return error("train_micro_batch_size_per_gpu is " + llvm::Twine(c.microBatch) + ", but the model's batch is " +
                 llvm::Twine(modelBatch) + (dimGiven ? " by --dim" : "; export it with a symbolic batch dimension"));
  llvm::erase_if(c.settings,
                 [](const Setting &s) { return s.key == "train_batch_size" || s.key == "train_micro_batch_size_per_gpu"; });
  const char *reason = dimGiven ? "--dim" : "the model's";
  c.microBatch = modelBatch;
  c.set("train_micro_batch_size_per_gpu", std::to_string(modelBatch), reason);
  c.set("train_batch_size", std::to_string(modelBatch * c.gradAccum * c.ranks), "derived");
  return llvm::Error::success();
}
