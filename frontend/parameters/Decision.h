// How Parameters::decide comes to its result, step by step.
#pragma once

#include "frontend/parameters/Evidence.h"
#include "frontend/parameters/Parameters.h"
#include "ir/Tensor.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/Support/Regex.h"

namespace zcc {

/// The values of a matrix (or stack of them) with the last two axes swapped.
std::string transposedBytes(const std::string &bytes, llvm::ArrayRef<int64_t> dims, int64_t elem);

/// The lines of torch.onnx.export that change the model least.
std::string exportHint();

class Decision {
public:
  Decision(const OnnxFile &f, const ImportOptions &o, ImportReport &r, Parameters &p)
      : file_(f), options_(o), report_(r), out_(p), evidence_(f) {}

  llvm::Error run();

  /// How well values agree with a pattern.
  enum class Likeness { None, Near, Exact };

private:
  /// The default role of each initializer, and the parameters its uses mean.
  struct Fact {
    const Initializer *source;
    Parameter::Role role = Parameter::Constant;
    std::string evidence;
    bool named = false;                ///< by --train: never tied by value or split
    std::vector<std::string> meanings; ///< per use: the parameter's or buffer's name, or ""
    std::vector<bool> areNumbers;      ///< per use: it means no parameter (Evidence::isNumbers)
    std::string meaning;               ///< of the first use that has a parameter, or its own name
    bool isAnonymous = false;          ///< has no parameter name of its own
    bool isOpen = false;               ///< may stand for a parameter that the file lacks
    int64_t pieces = 1;                ///< as Parameter::pieces
  };

  /// "--train=a.*"
  struct Pattern {
    std::string option;
    std::string text;
    llvm::Regex regex;
  };
  /// All that a parameter is called: by the file, by the metadata of its uses, and by what is tied to it.
  using ParameterNames = llvm::DenseMap<Parameter *, std::vector<std::string>>;

  /// How the file's tensor lies against the model's.
  enum class Layout { Same, Transposed, Flat /* the model's has one axis */ };

  void findFact(Fact &f);
  void factFromMetadata(Fact &f);
  void factFromFile(Fact &f);
  std::string bufferMergedInto(const Fact &f, const InitializerUse &use) const;
  void standsFor(Fact &f, const std::string &what, const std::string &evidence);
  Evidence::Near whereLost(const Fact &f, Evidence::Near near) const;
  bool isComputed(const Fact &f) const;
  bool isComputedMatrix(const Fact &f) const;
  void claimLost();
  void partByModule(Fact &f);
  bool isAliasOf(llvm::StringRef parameter) const;
  bool isAttributeName(llvm::StringRef name) const;
  std::optional<std::vector<double>> valuesOf(const Initializer &t) const;
  std::optional<bool> finds(const Initializer &t, llvm::function_ref<bool(llvm::ArrayRef<double>)> isFound) const;
  bool isMask(const Initializer &t) const;
  std::optional<std::vector<double>> valuesOf(const Initializer &t, int64_t begin, int64_t count) const;
  Likeness sinusoidal(const Initializer &t) const;
  bool isSchedule(const Initializer &t) const;
  bool hasFewValues(const Initializer &t) const;
  bool repeatsRows(const Initializer &t) const;
  bool isOfFrozenNorm(llvm::StringRef name) const;
  void freezeFixed();
  bool isPassive(const Initializer &t, Parameter::Role role) const;
  llvm::Error readPatterns();
  llvm::Error applyTrainAndFreeze();
  llvm::Expected<std::vector<Parameter *>> matching(const Pattern &p, const ParameterNames &names) const;
  ParameterNames namesOfParameters() const;
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
  void findParts();
  void warnAboutParts();
  bool isFoldedNumber(const Fact &f) const;
  bool readsDropped(const onnx_pb::NodeProto &n) const;
  void warnAboutFixed();
  void warnAboutFolded(llvm::ArrayRef<std::string> layers, const std::string &more = "");
  void warnAboutTorchScript();
  void warnAboutComputed();
  void warnAboutHidden();
  bool isLikeWeight(const Initializer &t, const InitializerUse &use) const;
  void warnAboutLosses();
  bool isObvious(const Parameter &p) const;
  void nameState();
  void nameByUses(Fact &f);
  void nameByModules(Fact &f);
  void nameBuffer(Fact &f);
  void nameTied();
  void addName(const std::string &name, Fact &f, Parameter *p, Layout layout);
  Layout layoutOf(const Fact &f, const InitializerUse &use) const;
  Parameter *writtenParameter(const Fact &f) const;
  bool isInState(const Fact &f) const;
  bool isBuffer(llvm::StringRef name) const { return evidence_.kindOf(name) == Placeholder::Buffer; }
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
  std::vector<std::pair<const Initializer *, std::string>> computed_;      ///< results that stand for parameters: of which
  std::vector<std::pair<const Initializer *, const Initializer *>> parts_; ///< of parameters: the part, the whole
  std::vector<const Initializer *> schedules_;                             ///< trained, though they look like buffers
  /// What PyTorch keeps fixed, as far as values show it.
  struct Fixed {
    const Initializer *source;
    enum Kind { Table, Norm, NearlyTable } kind; ///< of sines and cosines; the last is trained all the same
  };
  std::vector<Fixed> fixed_;
  std::vector<Pattern> train_, freeze_;
  llvm::StringMap<unsigned> factIndex_;
  llvm::StringMap<unsigned> stateIndex_; ///< of Parameters::state, by name
  llvm::StringSet<> stateTargets_;       ///< what the metadata says is in the state_dict
  llvm::DenseSet<const void *> hasName_; ///< parameters and initializers in Parameters::state
  llvm::StringSet<> claimed_;            ///< lost parameters that an initializer stands for
};

} // namespace zcc
