// Decides what every initializer is. The order of evidence: the parameter that the metadata of each use names, the module of the
// use, the initializer's own name, and values only where one side is anonymous.
#include "frontend/parameters/Decision.h"
#include "frontend/parameters/InputRoles.h"
#include "ir/StateNames.h"
#include "onnx.pb.h"
#include "llvm/ADT/StringExtras.h"
#include <cmath>

using namespace zcc;
using llvm::StringRef;

// Evidence that speaks for itself.
constexpr const char *kOwnName = "its own name", *kBuffer = "a buffer of the module",
                     *kModuleTensor = "a tensor of the module, no parameter", *kNamedByUse = "the metadata of its use names ",
                     *kNoMetadata = "a floating-point initializer of a file without metadata";

llvm::Expected<std::unique_ptr<Parameters>> Parameters::decide(const OnnxFile &file, const ImportOptions &options,
                                                               ImportReport &report) {
  auto p = std::make_unique<Parameters>();
  if (auto e = Decision(file, options, report, *p).run())
    return e;
  return p;
}

ParameterUse Parameters::use(StringRef initializer) const { return uses_.lookup(initializer); }

ParameterUse Parameters::use(StringRef initializer, const onnx_pb::NodeProto *node, unsigned index) const {
  auto i = splitIndex_.find({node, index});
  return i == splitIndex_.end() ? use(initializer) : ParameterUse{i->second, false};
}

llvm::Error Decision::run() {
  for (const Initializer &t : file_.initializers) {
    factIndex_[t.name] = unsigned(facts_.size());
    facts_.push_back({&t});
  }
  for (Fact &f : facts_)
    findFact(f);
  findParts();
  claimLost();
  freezeFixed();
  applyAlgorithm();
  if (auto e = readPatterns())
    return e;
  makeParameters();
  tieByName();
  tieByValue();
  suggestTies();
  if (auto e = applyTies())
    return e;
  if (auto e = applyTrainAndFreeze())
    return e;
  nameState();
  warnAboutFixed();
  warnAboutLosses();
  remember();
  return llvm::Error::success();
}

Decision::Fact *Decision::fact(StringRef initializer) {
  auto i = factIndex_.find(initializer);
  return i == factIndex_.end() ? nullptr : &facts_[i->second];
}

// ---- facts

/// Whether no weight can stand there.
static bool mustBeConstant(const InitializerUse &u) {
  if (u.node->op_type() == "InstanceNormalization" && u.index >= 1) {
    auto fx = fxNodeOf(*u.node); // of group_norm's decomposition: its own scale follows as a Mul
    return fx && StringRef(fx->target).contains("group_norm");
  }
  return roleOf(u) == InputRole::Setting;
}

void Decision::findFact(Fact &f) {
  const Initializer &t = *f.source;
  f.isAnonymous = evidence_.hasFx && evidence_.kindOf(t.name) == Placeholder::Other && !StringRef(t.name).contains('.');
  auto &uses = evidence_.uses(t.name);
  if (!t.elem || !isFloat(*t.elem)) {
    f.evidence = "not floating point";
    return;
  }
  if (uses.empty()) {
    f.evidence = "not used";
    return;
  }
  if (llvm::all_of(uses, [&](auto &u) { return roleOf(u) == InputRole::Statistic; })) {
    f.role = Parameter::Statistic;
    f.evidence = "running statistics of BatchNormalization";
    f.meaning = f.isAnonymous ? "" : t.name;
    for (auto &u : uses)
      f.meanings.push_back(bufferMergedInto(f, u));
    return;
  }
  // A bias of scores may be learned.
  auto isMask = [](const InitializerUse &u) {
    return u.node->op_type() == "Attention" && u.node->domain().empty() && u.index == 3;
  };
  const bool isParameter = evidence_.kindOf(t.name) == Placeholder::Parameter;
  if (llvm::any_of(uses, [&](auto &u) { return mustBeConstant(u) && !(isParameter && isMask(u)); })) {
    f.evidence = "input of " + uses[0].node->op_type() + " that is not a weight";
    return;
  }
  if (evidence_.hasFx)
    factFromMetadata(f);
  else
    factFromFile(f);
}

/// The buffer that began with the values of a named initializer, and whose place it has in this use; "" if it is none.
std::string Decision::bufferMergedInto(const Fact &f, const InitializerUse &use) const {
  std::string buffer = f.isAnonymous ? "" : evidence_.bufferOf(use);
  return file_.initializer(buffer) ? "" : buffer;
}

void Decision::factFromMetadata(Fact &f) {
  const Initializer &t = *f.source;
  auto &uses = evidence_.uses(t.name);
  auto kind = evidence_.kindOf(t.name);
  if (kind == Placeholder::Buffer || kind == Placeholder::Tensor) {
    f.evidence = kind == Placeholder::Buffer ? kBuffer : kModuleTensor;
    return;
  }
  for (auto &u : uses) {
    f.meanings.push_back(evidence_.parameterOf(t, u).value_or(""));
    if (f.meaning.empty())
      f.meaning = f.meanings.back();
    if (f.meanings.back().empty())
      f.meanings.back() = bufferMergedInto(f, u);
    f.areNumbers.push_back(f.meanings.back().empty() && evidence_.isNumbers(u));
  }
  bool own = kind == Placeholder::Parameter || (!evidence_.hasSignature() && !f.isAnonymous);
  if (!f.meaning.empty()) {
    f.role = Parameter::Trained;
    f.evidence = kNamedByUse + f.meaning;
  } else if (own) {
    f.role = Parameter::Trained;
    f.evidence = kOwnName;
  }
  if (own)
    f.meaning = t.name;
  if (f.role == Parameter::Trained)
    return;
  // Re-arranged or fused beyond recognition, but it only can be a weight.
  auto as = llvm::find_if(uses, [](auto &u) { return roleOf(u) == InputRole::Weight; });
  if (as != uses.end()) {
    f.role = Parameter::Trained;
    f.evidence = "a weight of " + as->node->op_type();
    return;
  }
  bool named = !evidence_.hasSignature() && StringRef(t.name).starts_with("embedding");
  f.evidence = "no parameter of the model stands behind it";
  if (t.count() <= 1 || isMask(t) || hasFewValues(t))
    return;
  if (named)
    standsFor(f, "an embedding", "its name");
  else
    f.isOpen = true;
}

/// The file has a result that was computed from parameters instead of them.
void Decision::standsFor(Fact &f, const std::string &what, const std::string &evidence) {
  f.role = Parameter::Trained;
  f.evidence = evidence;
  f.pieces = repeatsRows(*f.source) ? f.source->dims[0] : 1;
  computed_.push_back({f.source, what});
}

/// Whether the exporter only moved the elements of what it was made from, by the name of its FX
/// node.
static bool isRearranged(StringRef initializer) {
  StringRef base = initializer.rtrim("0123456789");
  base.consume_back("_");
  return base == "permute" || base == "transpose" || base == "t" || base == "view" || base == "reshape" || base == "clone" ||
         base == "alias";
}

/// Modules that each lack parameters of their own share equal values only by chance: their uses
/// mean different ones.
void Decision::partByModule(Fact &f) {
  auto &uses = evidence_.uses(f.source->name);
  if (f.pieces > 1 || uses.size() < 2)
    return;
  auto first = evidence_.lostNear(uses[0], Evidence::Near::SameModule);
  f.meanings.resize(uses.size());
  for (size_t i = 1; i < uses.size(); ++i) {
    auto lost = evidence_.lostNear(uses[i], Evidence::Near::SameModule);
    bool shares = llvm::any_of(lost, [&](auto &p) { return llvm::is_contained(first, p); });
    if (!lost.empty() && !shares)
      f.meanings[i] = scopeOf(*uses[i].node).value_or("") + "." + f.source->name;
  }
}

/// Where to look for what an initializer was made from. The result of a table that was looked up is called "embedding",
/// and the table belongs to a child of the module that uses it.
Evidence::Near Decision::whereLost(const Fact &f, Evidence::Near near) const {
  bool isLookup = StringRef(f.source->name).starts_with("embedding") &&
                  llvm::any_of(evidence_.uses(f.source->name),
                               [&](auto &u) { return !evidence_.lostNear(u, Evidence::Near::Parent).empty(); });
  return isLookup ? Evidence::Near::Parent : near;
}

/// Whether an initializer already stands for what it was computed from.
bool Decision::isComputed(const Fact &f) const {
  return llvm::any_of(computed_, [&](auto &c) { return c.first == f.source; });
}

/// Whether an initializer is a result that is multiplied as a matrix, or looked up.
bool Decision::isComputedMatrix(const Fact &f) const {
  return evidence_.isResult(f.source->name) && llvm::any_of(evidence_.uses(f.source->name), [](auto &u) {
           return llvm::is_contained({"MatMul", "Gemm", "Einsum", "Gather", "Conv", "ConvTranspose"}, u.node->op_type());
         });
}

/// Anonymous initializers stand for parameters that the model had and the file lacks: first those
/// that the very module of a parameter uses, then those that its parent uses, then the matrices that any module around it
/// uses.
void Decision::claimLost() {
  for (Evidence::Near near : {Evidence::Near::SameModule, Evidence::Near::Parent, Evidence::Near::Within}) {
    std::vector<std::string> now;
    for (Fact &f : facts_) {
      bool isNameless = f.role == Parameter::Trained && f.isAnonymous && f.meaning.empty();
      if ((!isNameless && (!f.isOpen || f.role == Parameter::Trained)) ||
          (near == Evidence::Near::Within && (isComputed(f) || !isComputedMatrix(f))))
        continue;
      std::vector<std::string> lost;
      Evidence::Near where = whereLost(f, near);
      for (auto &u : evidence_.uses(f.source->name))
        for (const std::string &p : evidence_.lostNear(u, where))
          if (!llvm::is_contained(lost, p) && !claimed_.contains(p))
            lost.push_back(p);
      if (lost.empty())
        continue;
      now.insert(now.end(), lost.begin(), lost.end());
      if (isNameless && (isComputed(f) || isRearranged(f.source->name) || !evidence_.isResult(f.source->name)))
        continue; // a weight already, whatever its name
      if (lost.size() == 1 && where == Evidence::Near::SameModule && isRearranged(f.source->name)) {
        f.role = Parameter::Trained;
        f.meaning = lost[0];
        f.evidence = "its module lacks " + lost[0];
      } else {
        standsFor(f, listed(lost), "the module that uses it lacks " + llvm::join(lost, ", "));
        if (where == Evidence::Near::SameModule)
          partByModule(f);
      }
    }
    claimed_.insert(now.begin(), now.end());
  }
}

/// Whether a module's attribute can have this name: "net.scale", or "scale" in PyTorch's files, whose own numbers have
/// names like "onnx::Mul_5". Other exporters name numbers anyhow.
bool Decision::isAttributeName(StringRef name) const {
  bool isIdentifier =
      !name.empty() && !llvm::isDigit(name[0]) && llvm::all_of(name, [](char c) { return llvm::isAlnum(c) || c == '_'; });
  return name.contains('.') || (isIdentifier && file_.isFromPyTorch());
}

void Decision::factFromFile(Fact &f) {
  const Initializer &t = *f.source;
  static const llvm::StringSet<> buffers{
      "running_mean",      "running_var", "num_batches_tracked", "inv_freq",    "position_ids", "token_type_ids",
      "final_logits_bias", "masked_bias", "attn_mask",           "causal_mask", "mask",         "relative_position_index"};
  if (buffers.contains(StringRef(t.name).rsplit('.').second.empty() ? StringRef(t.name) : StringRef(t.name).rsplit('.').second))
    f.evidence = "named like a buffer";
  else if (t.dims.empty() && !isAttributeName(t.name))
    f.evidence = "a number";
  else if (!isAttributeName(t.name) && sinusoidal(t) == Likeness::Exact)
    f.evidence = "a table of sines and cosines";
  else if (isMask(t))
    f.evidence = "it has the values of a mask";
  else {
    f.role = Parameter::Trained;
    f.evidence = kNoMetadata;
    bool isWeight = llvm::any_of(evidence_.uses(t.name), [](auto &u) { return roleOf(u) == InputRole::Weight; });
    if (!isWeight && isSchedule(t))
      schedules_.push_back(&t);
  }
  if (!StringRef(t.name).starts_with("onnx::")) // TorchScript's exporter made the name up
    f.meaning = t.name;
}

/// A training algorithm in the file says what it trains and what else it updates.
void Decision::applyAlgorithm() {
  auto &t = file_.training;
  if (!t)
    return;
  for (Fact &f : facts_) {
    bool isTrained = llvm::is_contained(t->trained, f.source->name);
    bool isUpdated = !options_.ownOptimizer && t->updatesInitializer(f.source->name);
    if (f.role == Parameter::Trained || isUpdated) {
      f.role = isTrained ? Parameter::Trained : isUpdated ? Parameter::Statistic : Parameter::Frozen;
      f.evidence = isTrained   ? "the model's training algorithm differentiates by it"
                   : isUpdated ? "the model's training algorithm updates it"
                               : "the model's training algorithm leaves it";
    }
    f.named = true;
    f.pieces = 1;
  }
}

// ---- parameters, splits

Parameter *Decision::add(const Fact &f, StringRef name) {
  out_.all_.push_back(std::make_unique<Parameter>());
  Parameter *p = out_.all_.back().get();
  p->role = f.role;
  p->name = isStateName(name) ? "param." + name.str() : name.str();
  p->source = f.source;
  p->pieces = f.pieces;
  p->evidence = f.evidence;
  return p;
}

bool Decision::unties(const Fact &f) const { return llvm::is_contained(options_.unties, f.source->name); }

void Decision::makeParameters() {
  for (Fact &f : facts_) {
    bool recovered = f.isAnonymous && !f.meaning.empty() && !factIndex_.count(f.meaning);
    Parameter *p = add(f, recovered ? f.meaning : f.source->name);
    out_.uses_[f.source->name] = {p, false};
    if (p->role != Parameter::Constant)
      split(f);
  }
}

/// One initializer, several parameters or buffers: the exporter merged equal values. Options that call the initializer
/// by name mean all of its parameters.
void Decision::split(Fact &f) {
  auto &uses = evidence_.uses(f.source->name);
  llvm::StringMap<Parameter *> byMeaning;
  Parameter *own = out_.uses_[f.source->name].parameter;
  byMeaning[f.meaning] = own;
  std::vector<std::string> names{f.meaning.empty() ? f.source->name : f.meaning};
  auto means = [&](size_t use, Parameter *p) {
    out_.splitIndex_[{uses[use].node, uses[use].index}] = p;
    out_.splits_.push_back({uses[use].node, uses[use].index, f.source->name, p});
  };
  Parameter *numbers = nullptr;
  for (size_t i = 0; i < f.areNumbers.size(); ++i) {
    if (!f.areNumbers[i])
      continue;
    if (!numbers) {
      numbers = add(f, f.source->name + ".numbers");
      numbers->role = Parameter::Constant;
      numbers->evidence = "its use means no parameter";
      names.push_back("numbers of the program");
    }
    means(i, numbers);
  }
  for (size_t i = 0; i < f.meanings.size(); ++i) {
    const std::string &m = f.meanings[i];
    if (m.empty() || m == f.meaning || (!isBuffer(m) && (f.named || unties(f))))
      continue;
    Parameter *&p = byMeaning[m];
    if (!p) {
      p = add(f, m);
      p->evidence = "its use means " + m;
      names.push_back(m);
      if (isBuffer(m))
        p->role = Parameter::Constant;
    }
    if (isBuffer(m) && roleOf(uses[i]) == InputRole::Statistic)
      p->role = Parameter::Statistic;
    means(i, p);
  }
  if (names.size() > 1)
    remark("'" + f.source->name + "' is " + std::to_string(names.size()) +
           (numbers || llvm::any_of(names, [&](auto &n) { return isBuffer(n); }) ? " tensors" : " parameters") +
           " that had one value: " + llvm::join(names, ", "));
}

/// Whether a reader of the model expects it: a parameter trained under its own name, statistics, buffers and numbers.
bool Decision::isObvious(const Parameter &p) const {
  bool isOwnName = p.name == p.source->name && !StringRef(p.name).starts_with("onnx::");
  switch (p.role) {
  case Parameter::Trained:
    return isOwnName && p.pieces == 1 &&
           (p.evidence == kOwnName || p.evidence == kNoMetadata || p.evidence == kNamedByUse + p.name);
  case Parameter::Statistic:
    return isOwnName;
  case Parameter::Frozen:
    return false;
  case Parameter::Constant:
    return p.source->count() <= 1 || p.evidence == kBuffer || p.evidence == kModuleTensor;
  }
  llvm_unreachable("all roles are listed");
}

void Decision::remember() {
  static const char *const names[] = {"trained", "frozen", "statistic", "constant"};
  for (auto &p : out_.all_)
    if (p->role != Parameter::Constant || (p->source->elem && isFloat(*p->source->elem)))
      report_.parameters.push_back({p->name, p->source->name, names[p->role], p->evidence, isObvious(*p)});
}
