// What of the parameters is trained: what PyTorch keeps fixed as far as values show it, --train and --freeze. A parameter answers
// to each of its names.
#include "frontend/parameters/Decision.h"
#include "frontend/parameters/InputRoles.h"
#include "ir/Pattern.h"
#include "onnx.pb.h"

using namespace zcc;
using llvm::StringRef;

/// Whether a file without metadata has it from a BatchNorm whose statistics no BatchNormalization reads: a frozen one,
/// as backbones of detectors have, is computed of plain operators, and its scale and shift are buffers.
bool Decision::isOfFrozenNorm(StringRef name) const {
  auto [module, leaf] = name.rsplit('.');
  if (evidence_.hasFx || (leaf != "weight" && leaf != "bias"))
    return false;
  std::string variance = module.str() + ".running_var";
  return file_.initializer(variance) && !evidence_.uses(variance).empty() &&
         llvm::none_of(evidence_.uses(variance), [](auto &u) { return roleOf(u) == InputRole::Statistic; });
}

/// No file says what requires_grad=False keeps fixed.
void Decision::freezeFixed() {
  for (Fact &f : facts_) {
    if (f.role != Parameter::Trained)
      continue;
    Likeness table = sinusoidal(*f.source);
    bool isNorm = isOfFrozenNorm(f.source->name);
    if (isNorm || table == Likeness::Exact) {
      f.role = Parameter::Frozen;
      f.evidence = isNorm ? "it belongs to a frozen BatchNorm" : "it is a table of sines and cosines";
      fixed_.push_back({f.source, isNorm ? Fixed::Norm : Fixed::Table});
    } else if (table == Likeness::Near) {
      fixed_.push_back({f.source, Fixed::NearlyTable});
    }
  }
}

/// What nobody trains who does not name it alone: running statistics, and tensors of modules that are no parameters.
bool Decision::isPassive(const Initializer &t, Parameter::Role role) const {
  auto kind = evidence_.kindOf(t.name);
  return role == Parameter::Statistic || kind == Placeholder::Buffer || kind == Placeholder::Tensor;
}

/// Of what a pattern matches, the others than what is passive, if there are any.
template <typename T, typename F> static void keepOthers(std::vector<T *> &matches, F isOther) {
  if (llvm::any_of(matches, isOther))
    llvm::erase_if(matches, [&](const T *m) { return !isOther(m); });
}

/// Compiles the regular expressions; what --train calls by the initializer's name is taken as it stands in the file.
llvm::Error Decision::readPatterns() {
  for (auto [option, texts, patterns] :
       {std::tuple("--train", &options_.train, &train_), std::tuple("--freeze", &options_.freeze, &freeze_)})
    for (const std::string &text : *texts) {
      std::string given = std::string(option) + "=" + text;
      auto regex = readPattern(text);
      if (!regex)
        return error(given + ": not a regular expression: " + llvm::toString(regex.takeError()));
      patterns->push_back(Pattern{given, text, std::move(*regex)});
    }
  for (const Pattern &p : train_) {
    std::vector<Fact *> named;
    for (Fact &f : facts_)
      if (f.source->elem && isFloat(*f.source->elem) && p.regex.match(f.source->name))
        named.push_back(&f);
    keepOthers(named, [&](const Fact *f) { return f->named || !isPassive(*f->source, f->role); });
    for (Fact *f : named) {
      f->role = Parameter::Trained;
      f->named = true;
      f->pieces = 1;
    }
  }
  return llvm::Error::success();
}

Decision::ParameterNames Decision::namesOfParameters() const {
  ParameterNames names;
  auto add = [&](Parameter *p, const std::string &name) {
    if (name.empty() || llvm::is_contained(names[p], name))
      return;
    names[p].push_back(name);
    for (const std::string &alias : evidence_.aliasesOf(name))
      if (!llvm::is_contained(names[p], alias))
        names[p].push_back(alias);
  };
  for (auto &p : out_.all_)
    add(p.get(), p->name);
  for (const Fact &f : facts_) {
    Parameter *own = out_.use(f.source->name).parameter;
    add(own, f.source->name);
    add(own, f.meaning);
    auto &uses = evidence_.uses(f.source->name);
    for (size_t i = 0; i < f.meanings.size(); ++i)
      add(out_.use(f.source->name, uses[i].node, uses[i].index).parameter, f.meanings[i]);
  }
  for (auto &s : out_.splits_)
    if (facts_[factIndex_.lookup(s.initializer)].isAnonymous) // the exporter's name stands for all of them
      add(s.parameter, s.initializer);
  return names;
}

/// The least number of edits that make `text` a part of `name`.
static size_t distanceWithin(StringRef text, StringRef name) {
  std::vector<size_t> row(name.size() + 1), next(name.size() + 1); // may begin anywhere
  for (size_t i = 0; i < text.size(); ++i) {
    next[0] = i + 1;
    for (size_t j = 0; j < name.size(); ++j)
      next[j + 1] = std::min({row[j] + (text[i] != name[j]), row[j + 1] + 1, next[j] + 1});
    row.swap(next);
  }
  return *llvm::min_element(row);
}

/// The names that a regular expression without a match most likely means: "'a', 'b' or 'c'"; empty if none is near.
static std::string nearestNames(StringRef pattern, llvm::ArrayRef<std::string> names) {
  constexpr size_t kMost = 4;
  std::string plain;
  llvm::copy_if(pattern, std::back_inserter(plain), [](char c) { return !StringRef("^$\\()[]*+?|").contains(c); });
  std::vector<std::pair<size_t, StringRef>> near;
  for (const std::string &n : names)
    if (size_t d = distanceWithin(plain, n); d <= plain.size() / 3)
      near.emplace_back(d, n);
  llvm::stable_sort(near, llvm::less_first());
  if (near.size() > kMost)
    near.resize(kMost);
  std::string s;
  for (size_t i = 0; i < near.size(); ++i)
    s += (i == 0 ? "'" : i + 1 < near.size() ? ", '" : " or '") + near[i].second.str() + "'";
  return s;
}

llvm::Expected<std::vector<Parameter *>> Decision::matching(const Pattern &p, const ParameterNames &names) const {
  std::vector<Parameter *> r;
  std::vector<std::string> others;
  for (auto &x : out_.all_) {
    if (!x->source->elem || !isFloat(*x->source->elem))
      continue;
    const std::vector<std::string> &called = names.find(x.get())->second;
    if (llvm::any_of(called, [&](const std::string &n) { return p.regex.match(n); }))
      r.push_back(x.get());
    if (x->role != Parameter::Constant)
      others.insert(others.end(), called.begin(), called.end());
  }
  if (!r.empty())
    return r;
  std::string near = nearestNames(p.text, others);
  return error(p.option + " matches no floating-point initializer" + (near.empty() ? "" : "; did you mean " + near + "?"));
}

llvm::Error Decision::applyTrainAndFreeze() {
  if (train_.empty() && freeze_.empty())
    return llvm::Error::success();
  ParameterNames names = namesOfParameters();
  std::vector<Parameter *> trained;
  for (const Pattern &p : train_) {
    auto matches = matching(p, names);
    if (!matches)
      return matches.takeError();
    keepOthers(*matches, [&](const Parameter *m) { return m->role == Parameter::Trained || !isPassive(*m->source, m->role); });
    trained.insert(trained.end(), matches->begin(), matches->end());
  }
  for (auto &p : out_.all_) {
    if (llvm::is_contained(trained, p.get())) {
      p->role = Parameter::Trained;
      p->evidence = "--train";
    } else if (!train_.empty() && p->role == Parameter::Trained) {
      p->role = Parameter::Frozen;
      p->evidence = "not among --train";
    }
  }
  for (const Pattern &p : freeze_) {
    auto matches = matching(p, names);
    if (!matches)
      return matches.takeError();
    bool isAny = false;
    for (Parameter *m : *matches)
      if (m->role == Parameter::Trained || m->role == Parameter::Frozen) {
        m->role = Parameter::Frozen;
        m->evidence = "--freeze";
        isAny = true;
      }
    if (!isAny)
      warn(p.option + " matches nothing that is trained" +
           (llvm::any_of(*matches, [](const Parameter *m) { return m->role == Parameter::Statistic; })
                ? "; --batch-norm=frozen keeps running statistics"
                : ""));
  }
  return llvm::Error::success();
}

/// What was frozen without being asked for, and what is trained although it looks fixed.
void Decision::warnAboutFixed() {
  std::vector<std::string> schedules, tables, norms, near;
  for (const Initializer *t : schedules_)
    if (train_.empty() && out_.use(t->name).parameter->role == Parameter::Trained)
      schedules.push_back(t->described());
  for (auto [source, kind] : fixed_) {
    const Parameter *p = out_.use(source->name).parameter;
    bool isAsked = !train_.empty() || p->evidence == "--freeze";
    if (!isAsked)
      (kind == Fixed::Table ? tables : kind == Fixed::Norm ? norms : near).push_back("'" + p->name + "'");
  }
  auto verb = [](auto &names, const char *one, const char *several) {
    return listed(names) + (names.size() == 1 ? one : several);
  };
  const std::string isFrozen = ", which PyTorch's models keep fixed: not trained; --train=REGEX, "
                               "which names all that is trained, overrides this";
  if (!schedules.empty())
    warn(verb(schedules, " is", " are") +
         " trained, as the file does not say what is a buffer; --freeze=REGEX if the model does not "
         "train what rises or falls all the way");
  if (!tables.empty())
    warn(verb(tables, " is a table", " are tables") + " of sines and cosines" + isFrozen);
  if (!norms.empty())
    warn(verb(norms, " belongs to a frozen BatchNorm", " belong to frozen BatchNorms") + isFrozen);
  if (!near.empty())
    warn(verb(near, " is nearly a table of sines and cosines and is", " are nearly tables of sines and cosines and are") +
         " trained, as no file says what requires_grad=False keeps fixed; --freeze=REGEX if the "
         "model does");
}
