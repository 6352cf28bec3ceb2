// How Parameters::decide comes to its result, step by step.
#pragma once

#include "frontend/Evidence.h"
#include "frontend/Parameters.h"
#include "ir/Interpreter.h"

namespace zcc {

/// "a, b and 20 more".
std::string listed(llvm::ArrayRef<std::string> names);

class Decision {
public:
  Decision(const OnnxFile &f, const ImportOptions &o, ImportReport &r, Parameters &p)
      : file_(f), options_(o), report_(r), out_(p), evidence_(f) {}

  llvm::Error run();

private:
  /// The default role of each initializer, and the parameters its uses mean.
  struct Fact {
    const Initializer *source;
    Parameter::Role role = Parameter::Constant;
    std::string evidence;
    bool named = false;                ///< by --train: never tied or split
    std::vector<std::string> meanings; ///< per use: the parameter's name, or ""
    std::string meaning;               ///< of the first use that has one, or its own name
    bool isAnonymous = false;          ///< has no parameter name of its own
    bool isOpen = false;               ///< may stand for a parameter that the file lacks
    int64_t pieces = 1;                ///< as Parameter::pieces
  };

  void findFact(Fact &f);
  void factFromMetadata(Fact &f);
  void factFromFile(Fact &f);
  void standsFor(Fact &f, const std::string &what, const std::string &evidence);
  void claimLost();
  void partByModule(Fact &f);
  bool isAliasOf(llvm::StringRef parameter) const;
  bool isAttributeName(llvm::StringRef name) const;
  std::optional<std::vector<double>> valuesOf(const Initializer &t) const;
  bool isMask(const Initializer &t) const;
  bool isSinusoidal(const Initializer &t) const;
  bool isSchedule(const Initializer &t) const;
  bool hasFewValues(const Initializer &t) const;
  bool repeatsRows(const Initializer &t) const;
  llvm::Error applyTrainAndFreeze();
  void applyAlgorithm();
  void makeParameters();
  void split(Fact &f);
  void tieByName();
  void tieByValue();
  bool tie(Fact &to, Fact &from, const std::string &why, bool mustEqual);
  void suggestTies();
  bool isSame(const Initializer &a, const Initializer &b) const;
  void splitByUse(Fact &f);
  llvm::Error applyTies();
  void warnAboutDetach();
  void warnAboutLosses();
  void remember();

  bool unties(const Fact &f) const;
  Fact *fact(llvm::StringRef initializer);
  Parameter *add(const Fact &f, llvm::StringRef name);
  void remark(const std::string &text) { report_.remarks.push_back(text); }
  void warn(const std::string &text) { report_.warnings.push_back(text); }

  const OnnxFile &file_;
  const ImportOptions &options_;
  ImportReport &report_;
  Parameters &out_;
  Evidence evidence_;
  std::vector<Fact> facts_;
  std::vector<std::string>
      computed_; ///< "'expand' from model.cls_token": results that stand for parameters
  std::vector<std::string> schedules_; ///< "'betas' f32[100]": trained, though they look like buffers
  llvm::StringMap<unsigned> factIndex_;
  llvm::StringSet<> claimed_; ///< lost parameters that an initializer stands for
};

} // namespace zcc
