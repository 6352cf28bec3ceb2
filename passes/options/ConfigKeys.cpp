// The table of keys and what their values may be.
#include "passes/options/ConfigResolver.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/raw_ostream.h"
#include <charconv>

using namespace zcc;
using llvm::StringRef;

// ---- the table

/// Makes the keys that an option names its own.
static void takeKeys(std::vector<ConfigKey> &all, const char *option, StringRef paths) {
  llvm::SmallVector<StringRef, 2> taken;
  paths.split(taken, ' ', /*MaxSplit=*/-1, /*KeepEmpty=*/false);
  for (ConfigKey &k : all) {
    if (!llvm::is_contained(taken, k.path()))
      continue;
    k.target = option;
    if (k.treatment == Treatment::Derive || k.treatment == Treatment::Ignore || k.treatment == Treatment::Refuse)
      k.treatment = Treatment::Flag;
  }
}

static std::vector<ConfigKey> makeKeys() {
  std::vector<ConfigKey> keys = {
#define ZCC_KEY(SECTION, NAME, OF, TYPE, DEFAULT, TREATMENT, WHY)                                                                \
  {SECTION, NAME, OF, KeyType::TYPE, DEFAULT, Treatment::TREATMENT, WHY},
#include "passes/options/ConfigKeys.def"
#undef ZCC_KEY
  };
#define ZCC_PASS_OPTION(NAME, TYPE, FIELD, OTHERWISE, RULE, VALUE, HELP, WHEN, KEYS) takeKeys(keys, NAME, KEYS);
#define ZCC_LATER_OPTION(NAME, KEYS) takeKeys(keys, NAME, KEYS);
#include "passes/options/Options.def"
  return keys;
}

llvm::ArrayRef<ConfigKey> zcc::configKeys() {
  static const std::vector<ConfigKey> keys = makeKeys();
  return keys;
}

std::string zcc::joinPath(StringRef section, StringRef name) {
  return section.empty() ? name.str() : (section + "." + name).str();
}

std::string ConfigKey::path() const { return joinPath(section, name); }

bool ConfigKey::isOf(StringRef type) const { return !*of || llvm::is_contained(llvm::split(of, ' '), type); }

const ConfigKey *zcc::findKey(StringRef section, StringRef name, StringRef type) {
  for (const ConfigKey &k : configKeys())
    if (section == k.section && name == k.name && k.isOf(type))
      return &k;
  return nullptr;
}

// ---- values as text

static std::string shortest(double v) {
  char s[32];
  return {s, std::to_chars(s, s + sizeof s, v).ptr};
}

std::string zcc::flagText(const JsonValue &v) {
  if (auto b = v.getAsBoolean())
    return *b ? "on" : "off";
  if (auto i = v.getAsInteger())
    return std::to_string(*i);
  if (auto d = v.getAsNumber())
    return shortest(*d);
  if (auto s = v.getAsString())
    return s->str();
  std::string list;
  if (const auto *a = v.getAsArray())
    for (const JsonValue &e : *a)
      list += (list.empty() ? "" : ",") + flagText(e);
  return list;
}

/// A value as JSON; numbers in their shortest form.
std::string zcc::jsonText(const JsonValue &v) {
  if (v.kind() == JsonValue::Number)
    return flagText(v);
  std::string s;
  llvm::raw_string_ostream(s) << v;
  return s;
}

JsonValue zcc::defaultOf(const ConfigKey &k) { return llvm::cantFail(llvm::json::parse(k.otherwise)); }

static bool isSame(const JsonValue &a, const JsonValue &b) {
  auto x = a.getAsNumber(), y = b.getAsNumber();
  return x && y ? *x == *y : a == b;
}

std::optional<bool> zcc::truthOf(const JsonValue *v) {
  if (!v)
    return std::nullopt;
  if (auto i = v->getAsInteger(); i && (*i == 0 || *i == 1))
    return *i == 1;
  return v->getAsBoolean();
}

/// Null where a type or a default allows it.
static bool allowsNull(const ConfigKey &k) { return StringRef(k.otherwise) == "null" || k.type == KeyType::Fp32; }

const char *zcc::expectedInstead(const ConfigKey &k, const JsonValue &v) {
  auto text = v.getAsString();
  if (v.getAsNull() && allowsNull(k))
    return nullptr;
  switch (k.type) {
  case KeyType::Bool:
    return v.getAsBoolean() ? nullptr : "true or false";
  case KeyType::Int:
    return v.getAsInteger() ? nullptr : "an integer";
  case KeyType::IntOrFalse:
    return v.getAsInteger() || v.getAsBoolean() == false ? nullptr : "an integer or false";
  case KeyType::Number:
    return v.getAsNumber() ? nullptr : "a number";
  case KeyType::String:
    return text ? nullptr : "a string";
  case KeyType::Array:
    return v.getAsArray() ? nullptr : "a list";
  case KeyType::Object:
    return v.getAsObject() ? nullptr : "an object";
  case KeyType::Fp32:
    return text && llvm::is_contained({"fp32", "fp16", "bf16"}, text->lower()) ? nullptr : "fp32, fp16 or bf16";
  case KeyType::Mean:
    return text && (text->lower() == "mean" || text->lower() == "sum") ? nullptr : "mean or sum";
  case KeyType::Betas: {
    const auto *a = v.getAsArray();
    return a && a->size() == 2 && (*a)[0].getAsNumber() && (*a)[1].getAsNumber() ? nullptr : "a list of two numbers";
  }
  case KeyType::Warmup:
    return text && (*text == "log" || *text == "linear") ? nullptr : "log or linear";
  }
  llvm_unreachable("a type of keys");
}

bool zcc::isDefault(const ConfigKey &k, const JsonValue &v) {
  if (v.getAsNull() || isSame(v, defaultOf(k)) || (k.type == KeyType::IntOrFalse && v.getAsBoolean()))
    return true;
  auto text = v.getAsString();
  if (k.type == KeyType::Fp32 || k.type == KeyType::Mean)
    return text && (text->lower() == "fp32" || text->lower() == "mean");
  return false;
}
