// Walks a configuration key by key and does with each what the table says.
#include "passes/options/Config.h"
#include "passes/options/ConfigResolver.h"
#include "passes/options/ConfigText.h"
#include "llvm/ADT/StringExtras.h"

using namespace zcc;
using llvm::StringRef;
using llvm::json::Object;

void Resolver::unknown(StringRef section, StringRef name, StringRef type) {
  std::vector<std::string> here, elsewhere;
  std::string home;
  for (const ConfigKey &k : configKeys()) {
    if (section == k.section && k.isOf(type))
      here.push_back(k.name);
    else
      elsewhere.push_back(k.name);
    if (name == k.name)
      home = k.section;
  }
  std::string what = "unknown key " + joinPath(section, name), near = nearest(name, here);
  if (!near.empty())
    return fail(what + "; did you mean " + joinPath(section, near) + "?");
  near = llvm::is_contained(elsewhere, name.str()) ? name.str() : nearest(name, elsewhere);
  for (const ConfigKey &k : configKeys())
    if (near == k.name)
      home = k.section;
  if (near.empty())
    return fail(what);
  if (home == section)
    return fail(what + ": not of type " + type);
  fail(what + "; did you mean " + joinPath(home, near) + "?");
}

/// Whether a section that can be turned off is on.
bool Resolver::isOn(const std::string &section, const ConfigKey &enabled, const Object &o) const {
  bool isType = section == "fp16" || section == "bf16";
  if (isType && isGiven("dtype"))
    return given_.at("dtype") == section;
  return truthOf(o.get("enabled")).value_or(*defaultOf(enabled).getAsBoolean());
}

void Resolver::walk(const std::string &section, const Object &o, StringRef type) {
  std::vector<std::string> names;
  for (auto &member : o)
    names.push_back(member.first.str());
  llvm::sort(names);
  const ConfigKey *enabled = findKey(section, "enabled", type);
  bool wasOff = isOff_;
  if (enabled)
    isOff_ |= !isOn(section, *enabled, o);
  for (const std::string &name : names) {
    const ConfigKey *k = findKey(section, name, type);
    if (!k) {
      unknown(section, name, type);
      continue;
    }
    std::string written = k->path();
    const JsonValue *v = o.get(name);
    if (k->treatment == Treatment::Alias) {
      auto [home, target] = StringRef(k->why).rsplit('.');
      k = target.empty() ? findKey("", home, type) : findKey(home, target, type);
      if (o.get(k->name))
        fail(written + " and " + k->path() + " are the same key");
    }
    if (v->getAsString() == StringRef("auto") && k->type != KeyType::Object) {
      takeAuto(*k, written);
      continue;
    }
    auto device = o.getString("device");
    if (k->treatment == Treatment::NvmePath && device && *device != "nvme" && v->getAsString()) {
      out_.set(k->path(), jsonText(*v), "no effect: the device is not nvme");
      continue;
    }
    if (StringRef(k->target) == "offload-optimizer-ratio" && !isGiven(k->target) && v->getAsNumber()) {
      const bool isFlag = isGiven("offload-optimizer");
      const std::string place = isFlag ? given_.at("offload-optimizer") : device ? device->lower() : "none";
      if (place != "cpu" && place != "nvme") {
        out_.set(k->path(), jsonText(*v), "no effect: " + (isFlag ? "--offload-optimizer is " + place : "no state is moved"));
        continue;
      }
    }
    auto truth = k->type == KeyType::Bool ? truthOf(v) : std::nullopt;
    if (const char *expected = truth ? nullptr : expectedInstead(*k, *v))
      fail(written + ": expected " + expected + ", not " + jsonText(*v));
    else
      take(*k, truth ? JsonValue(*truth) : *v);
  }
  isOff_ = wasOff;
  for (const ConfigKey &k : configKeys()) {
    bool isAuto = o.getString(k.name) == StringRef("auto"), isThere = o.get(k.name) && !isAuto;
    if (k.treatment != Treatment::FlagDs || section != k.section || !k.isOf(type) || isThere)
      continue;
    if (*k.why && !isAuto && !isGiven(k.target))
      out_.notes.push_back(k.path() + " is " + k.otherwise + ": " + k.why);
    takeFlag(k, flagText(defaultOf(k)), kDefault);
  }
}

/// "auto" in DeepSpeed means its default, in Transformers what the trainer's arguments say: here
/// the flag, if there is one, else zcc's choice or DeepSpeed's default.
void Resolver::takeAuto(const ConfigKey &k, const std::string &written) {
  bool hasDefault = StringRef(k.otherwise) != "null";
  std::string value = hasDefault ? k.otherwise : "absent", reason = kDefault;
  bool isFlag = k.treatment == Treatment::Flag || k.treatment == Treatment::FlagDs;
  if (isFlag && isGiven(k.target))
    value = given_.at(k.target), reason = std::string("--") + k.target;
  else if (StringRef(k.name) == "enabled" && isGiven("dtype"))
    value = given_.at("dtype") == k.section ? "true" : "false", reason = "--dtype";
  else if (k.treatment == Treatment::Hint || k.treatment == Treatment::Prefetch || k.treatment == Treatment::Derive ||
           (isFlag && !hasDefault))
    value = "derived", reason = "zcc's choice";
  else if (auto lr = out_.flags.find("lr");
           StringRef(k.name) == "warmup_max_lr" && hasDefault && (isGiven("lr") || lr != out_.flags.end())) {
    value = isGiven("lr") ? given_.at("lr") : lr->second, reason = isGiven("lr") ? "--lr" : "optimizer.params.lr";
    out_.scheduleParams.emplace_back(k.name, value);
  } else if (k.treatment == Treatment::Param && !hasDefault && *k.why)
    value = k.why;
  else if (k.treatment == Treatment::Code && k.type == KeyType::Int)
    value = "derived", reason = "from the other batch sizes";
  out_.notes.push_back(written + ": auto is " + value + " (" + reason + ")");
  // Defaults of FlagDs follow with those of absent keys, batch sizes with the others.
  if (k.treatment != Treatment::FlagDs && k.treatment != Treatment::Code)
    out_.set(k.path(), value, reason);
}

void Resolver::take(const ConfigKey &k, const JsonValue &v) {
  std::string path = k.path();
  // What is off does nothing in DeepSpeed either.
  if (isOff_ && StringRef(k.name) != "enabled" && k.treatment != Treatment::Section)
    return out_.set(path, jsonText(v), StringRef(k.section).str() + " is off");
  switch (k.treatment) {
  case Treatment::Section:
    if (const Object *inner = v.getAsObject())
      // takeOptimizer and takeScheduler walk theirs, which depend on the type.
      if (!StringRef(path).starts_with("optimizer") && !StringRef(path).starts_with("scheduler"))
        walk(path, *inner, "");
    return;
  case Treatment::Code:
    if (auto b = v.getAsBoolean()) {
      switches_[path] = *b;
      out_.set(path, jsonText(v), kConfig);
    }
    return;
  case Treatment::Flag:
    if (v.getAsNull())
      return out_.set(path, "null", "derived");
    if (!knows(k.target) && !isDefault(k, v))
      return fail(path + ": " + jsonText(v) + " is not supported yet; there is " + k.otherwise);
    return takeFlag(k, flagText(v), kConfig);
  case Treatment::FlagDs:
    return takeFlag(k, flagText(v), kConfig);
  case Treatment::Hint:
  case Treatment::Prefetch:
    if (stage_ < 3 && StringRef(k.name).starts_with("stage3_"))
      return out_.set(path, jsonText(v), "of stage 3");
    if (!knows(k.target))
      return out_.set(path, jsonText(v), "a hint, not used: derived");
    if (k.treatment == Treatment::Prefetch)
      return takeFlag(k, *v.getAsInteger() > 0 ? "on" : "off", kConfig);
    return takeFlag(k, flagText(v), kConfig);
  case Treatment::Offload:
    return takeOffload(k, v);
  case Treatment::NvmePath:
    if (auto folder = v.getAsString(); folder && !out_.nvmePath.empty() && out_.nvmePath != *folder) {
      out_.warnings.push_back(path + ": no effect: the program's default --nvme-path is the other section's, " + out_.nvmePath);
      return out_.set(path, jsonText(v), "no effect");
    } else if (folder) {
      out_.nvmePath = folder->str();
    }
    return out_.set(path, jsonText(v), v.getAsNull() ? kDefault : "the program's default --nvme-path");
  case Treatment::Param:
    return takeParam(k, v);
  case Treatment::Derive:
    return out_.set(path, jsonText(v), std::string("derived: ") + k.why);
  case Treatment::Ignore:
    if (!isDefault(k, v))
      ignore(k);
    return out_.set(path, jsonText(v), std::string("no effect: ") + k.why);
  case Treatment::Refuse:
    if (isDefault(k, v))
      return out_.set(path, jsonText(v), kDefault);
    if (const Object *o = v.getAsObject(); o && (o->empty() || truthOf(o->get("enabled")) == false))
      return out_.set(path, jsonText(v), path + " is off");
    return fail(path + ": " + (v.getAsObject() ? "it" : jsonText(v)) + " is not supported: " + k.why);
  case Treatment::Alias:
    break;
  }
  llvm_unreachable("aliases are replaced before");
}

/// Keys of one section without an effect for the same reason are one warning.
void Resolver::ignore(const ConfigKey &k) {
  for (auto &[why, keys] : ignored_)
    if (why == k.why)
      return keys.push_back(k.path());
  ignored_.push_back({k.why, {k.path()}});
}

void Resolver::takeFlag(const ConfigKey &k, const std::string &value, StringRef reason) {
  if (isGiven(k.target)) {
    std::string flag = given_.at(k.target);
    return out_.set(k.path(), flag, std::string("--") + k.target);
  }
  out_.set(k.path(), value, reason.str());
  if (knows(k.target))
    setFlag(k.target, value);
}

void Resolver::takeOffload(const ConfigKey &k, const JsonValue &v) {
  std::string device = v.getAsBoolean() ? *v.getAsBoolean() ? "cpu" : "none" : v.getAsString()->lower();
  if (device != "none" && device != "cpu" && device != "nvme")
    return fail(k.path() + ": expected none, cpu or nvme, not " + jsonText(v));
  if (*k.why && device != "none")
    out_.warnings.push_back(k.path() + " is " + k.why);
  if (device != "none" && !knows(k.target))
    return fail(k.path() + ": " + device + " is not supported yet: there is no --" + k.target);
  takeFlag(k, device, kConfig);
}

// ---- all

llvm::Expected<Config> Resolver::run(Object top) {
  if (auto zero = top.getBoolean("zero_optimization")) {
    top["zero_optimization"] = Object{{"stage", *zero ? 1 : 0}};
    out_.notes.push_back("zero_optimization: true and false are deprecated; it is stage " + std::string(*zero ? "1" : "0"));
  }
  if (const Object *zero = top.getObject("zero_optimization"))
    stage_ = zero->getInteger("stage").value_or(0);
  if (isGiven("zero") && StringRef(given_.at("zero")).getAsInteger(10, stage_))
    stage_ = 0; // the flag's own error
  walk("", top, "");
  takeBatch(top);
  takePrecision();
  takeCommunicationType(top);
  takeLossScale();
  takeOptimizer(top.getObject("optimizer"));
  takeScheduler(top.getObject("scheduler"));
  for (auto &[why, keys] : ignored_)
    out_.warnings.push_back(llvm::join(keys, ", ") + ": no effect: " + why);
  if (errors_)
    return std::move(errors_);
  return std::move(out_);
}

llvm::Expected<Config> zcc::resolveConfig(StringRef text, const FlagValues &given, const std::vector<std::string> &flags) {
  auto value = parseConfigText(text);
  if (!value)
    return value.takeError();
  return Resolver(given, flags).run(std::move(*value->getAsObject()));
}

void zcc::addFlags(std::vector<Setting> &settings, const FlagValues &given) {
  // What says what to do, not how.
  auto isCommand = [](StringRef name) {
#define ZCC_COMMAND_OPTION(NAME, ...)                                                                                            \
  if (name == NAME)                                                                                                              \
    return true;
#include "passes/options/Options.def"
    return name.starts_with("print-");
  };
  for (auto &[name, value] : given)
    if (!isCommand(name) && llvm::none_of(settings, [&](Setting &s) { return s.reason == "--" + name; }))
      settings.push_back({"--" + name, value, "flag"});
}
