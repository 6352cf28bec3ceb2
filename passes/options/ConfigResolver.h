// Inside of Config: the walk over a configuration. Only Config*.cpp include this.
#pragma once

#include "ir/Diag.h"
#include "passes/options/Config.h"
#include "passes/options/ConfigText.h"
#include <map>
#include <optional>
#include <set>

namespace zcc {

/// nullptr: the section has no such key, for this type of optimizer or schedule.
const ConfigKey *findKey(llvm::StringRef section, llvm::StringRef name, llvm::StringRef type);
/// "section.name"
std::string joinPath(llvm::StringRef section, llvm::StringRef name);
/// A value as a flag takes it: true is on, a list has commas, numbers are as short as can be.
std::string flagText(const llvm::json::Value &v);
std::string jsonText(const llvm::json::Value &v);
llvm::json::Value defaultOf(const ConfigKey &k);
/// true and false, and 1 and 0, which DeepSpeed takes for them.
std::optional<bool> truthOf(const llvm::json::Value *v);
bool isDefault(const ConfigKey &k, const llvm::json::Value &v);
/// What a value of the key must be, if this is none; nullptr if it is one.
const char *expectedInstead(const ConfigKey &k, const llvm::json::Value &v);

inline constexpr const char *kConfig = "config", *kDefault = "DeepSpeed's default";

class Resolver {
public:
  Resolver(const FlagValues &given, const std::vector<std::string> &flags) : given_(given), known_(flags.begin(), flags.end()) {}
  llvm::Expected<Config> run(llvm::json::Object top);

private:
  void walk(const std::string &section, const llvm::json::Object &o, llvm::StringRef type);
  void take(const ConfigKey &k, const llvm::json::Value &v);
  void takeAuto(const ConfigKey &k, const std::string &written);
  void takeFlag(const ConfigKey &k, const std::string &value, llvm::StringRef reason);
  void takeOffload(const ConfigKey &k, const llvm::json::Value &v);
  void takeParam(const ConfigKey &k, const llvm::json::Value &v);
  void unknown(llvm::StringRef section, llvm::StringRef name, llvm::StringRef type);
  void ignore(const ConfigKey &k);
  bool isOn(const std::string &section, const ConfigKey &enabled, const llvm::json::Object &o) const;
  void takePrecision();
  void takeCommunicationType(const llvm::json::Object &top);
  void takeLossScale();
  std::string chooseOptimizer();
  void takeOptimizer(const llvm::json::Object *o);
  void takeScheduler(const llvm::json::Object *o);
  void cycleMomentum();
  void takeBatch(const llvm::json::Object &top);
  std::optional<int64_t> batchKey(const llvm::json::Object &top, llvm::StringRef name);

  bool knows(llvm::StringRef flag) const { return known_.count(flag.str()); }
  bool isGiven(llvm::StringRef flag) const { return given_.count(flag.str()); }
  void setFlag(llvm::StringRef flag, const std::string &value) {
    if (!isGiven(flag))
      out_.flags[flag.str()] = value;
  }
  void fail(const llvm::Twine &what) { errors_ = llvm::joinErrors(std::move(errors_), error(what)); }
  bool flagOf(llvm::StringRef key, bool otherwise) const {
    auto i = switches_.find(key.str());
    return i == switches_.end() ? otherwise : i->second;
  }

  const FlagValues &given_;
  std::set<std::string> known_;
  Config out_;
  llvm::Error errors_ = llvm::Error::success();
  std::map<std::string, bool> switches_; ///< what Code keys of type Bool say, by path
  std::string optimizer_;                ///< zcc's name
  int64_t stage_ = 0;
  bool isOff_ = false;                                                    ///< in a section whose `enabled` is false
  std::vector<std::pair<std::string, std::vector<std::string>>> ignored_; ///< keys by reason
};

} // namespace zcc
