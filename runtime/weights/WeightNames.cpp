// Matches names: as they are, then by the prefixes with which most of what is left is found.
#include "runtime/weights/WeightNames.h"
#include "runtime/Elem.h"
#include "runtime/Fail.h"
#include "runtime/Npy.h"
#include "runtime/Options.h"
#include "runtime/weights/NameMap.h"
#include "runtime/weights/RunReader.h"
#include <algorithm>
#include <cstring>
#include <map>
#include <set>

namespace zccrt {

namespace {

/// What turns a name of the model into one of the file.
struct Rule {
  std::string drop, add;
  auto operator<=>(const Rule &) const = default;
};

// What wrappers and classes with a head put in front of names.
constexpr const char *kPrefixes[] = {"model.", "module.", "transformer.", "base_model.", "_orig_mod."};

bool isKnown(const std::string &prefix) {
  return std::find(std::begin(kPrefixes), std::end(kPrefixes), prefix) != std::end(kPrefixes);
}

/// "b.c" and "c" of "a.b.c", with what is in front.
std::vector<std::pair<std::string, std::string>> splits(const std::string &name) {
  std::vector<std::pair<std::string, std::string>> all;
  for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1))
    all.push_back({name.substr(0, dot + 1), name.substr(dot + 1)});
  return all;
}

/// Axes of one element do not matter.
bool isSameShape(std::vector<int64_t> a, std::vector<int64_t> b) {
  std::erase(a, 1);
  std::erase(b, 1);
  return a == b;
}

class Finder {
public:
  Finder(const std::vector<WantedTensor> &wanted, const GivenFiles &given) : wanted(wanted), given(given) {
    found.tensors.resize(wanted.size());
    used.resize(given.tensors.size());
  }

  FoundWeights run(const std::vector<std::string> &maps, MissingWeights missing) {
    mapNames(maps);
    take({});
    while (takeByPrefix()) {
    }
    findTwins();
    for (size_t i = 0; i < used.size(); ++i)
      if (!used[i] && !endsWith(given.tensors[i].name, "num_batches_tracked")) // a counter that PyTorch does without, too
        found.leftOver.push_back(given.tensors[i].name);
    for (size_t i = 0; i < wanted.size(); ++i)
      if (found.tensors[i].tensor < 0 && !wanted[i].mayLack)
        found.missing.push_back(wanted[i].names[0].name);
    expectAll(missing);
    return std::move(found);
  }

private:
  void mapNames(const std::vector<std::string> &texts) {
    std::vector<NameMap> maps(texts.begin(), texts.end());
    for (size_t i = 0; i < given.tensors.size(); ++i) {
      std::string name = given.tensors[i].name;
      std::any_of(maps.begin(), maps.end(), [&](NameMap &m) { return m.apply(name); });
      auto [other, isNew] = index.try_emplace(name, int(i));
      if (!isNew)
        fail("--weights-map: '%s' and '%s' of '%s' both become '%s'", given.tensors[other->second].name.c_str(),
             given.tensors[i].name.c_str(), given.path.c_str(), name.c_str());
    }
    for (const NameMap &m : maps)
      if (!m.hasMatched())
        fail("--weights-map=%s: no other map has left a name of '%s' that matches", m.text().c_str(), given.path.c_str());
  }

  /// The tensor of the file that a name of the model means by a rule; -1: none that is not used.
  int lookUp(const std::string &name, const Rule &r) const {
    if (name.compare(0, r.drop.size(), r.drop) != 0)
      return -1;
    auto i = index.find(r.add + name.substr(r.drop.size()));
    return i == index.end() || used[i->second] ? -1 : i->second;
  }

  bool fits(int tensor, const WantedTensor &w, size_t name) const {
    return tensor >= 0 && isSameShape(given.tensors[tensor].dims, w.names[name].dims);
  }

  /// The name of a wanted tensor that a rule finds, and that fits; else one that does not; -1: none.
  int nameBy(const WantedTensor &w, const Rule &r) const {
    int other = -1;
    for (size_t n = 0; n < w.names.size(); ++n) {
      const int tensor = lookUp(w.names[n].name, r);
      if (fits(tensor, w, n))
        return int(n);
      if (tensor >= 0 && other < 0)
        other = int(n);
    }
    return other;
  }

  void take(const Rule &r) {
    rules.push_back(r);
    for (size_t i = 0; i < wanted.size(); ++i)
      if (found.tensors[i].tensor < 0)
        if (int name = nameBy(wanted[i], r); name >= 0) {
          found.tensors[i] = {lookUp(wanted[i].names[name].name, r), name, {}};
          used[found.tensors[i].tensor] = true;
        }
  }

  std::set<Rule> candidates() const {
    std::set<Rule> rules;
    std::set<std::string> names; // of what is not found
    for (size_t i = 0; i < wanted.size(); ++i)
      if (found.tensors[i].tensor < 0)
        for (const WantedTensor::Name &n : wanted[i].names)
          names.insert(n.name);
    for (const std::string &name : names) {
      for (auto &[front, rest] : splits(name)) {
        if (index.count(rest))
          rules.insert({front, ""});
        for (const char *prefix : kPrefixes)
          if (index.count(prefix + rest))
            rules.insert({front, prefix});
      }
    }
    for (auto &[name, tensor] : index)
      for (auto &[front, rest] : splits(name))
        if (!used[tensor] && names.count(rest))
          rules.insert({"", front});
    return rules;
  }

  /// Takes what the best rule finds; false: there is none. One with a prefix that nobody has heard of must find half of the
  /// model: "encoder." beside "decoder." is no other spelling.
  bool takeByPrefix() {
    Rule best;
    size_t most = 0;
    for (const Rule &r : candidates()) {
      size_t count = 0;
      for (size_t i = 0; i < wanted.size(); ++i)
        if (int name = found.tensors[i].tensor < 0 ? nameBy(wanted[i], r) : -1; name >= 0)
          count += fits(lookUp(wanted[i].names[name].name, r), wanted[i], name);
      bool isTrusted = (r.drop.empty() || isKnown(r.drop)) && (r.add.empty() || isKnown(r.add));
      if (count > most && (isTrusted || 2 * count >= wanted.size())) {
        best = r;
        most = count;
      }
    }
    if (!most)
      return false;
    take(best);
    found.notes.push_back(format("'%s*' of the model is '%s*' in '%s' (%zu tensors)", best.drop.c_str(), best.add.c_str(),
                                 given.path.c_str(), most));
    return true;
  }

  /// Other names of what is found.
  void findTwins() {
    for (size_t i = 0; i < wanted.size(); ++i)
      for (size_t n = 0; n < wanted[i].names.size() && found.tensors[i].tensor >= 0; ++n)
        for (const Rule &r : rules)
          if (int tensor = lookUp(wanted[i].names[n].name, r); fits(tensor, wanted[i], n)) {
            found.tensors[i].twins.push_back({tensor, int(n)});
            used[tensor] = true;
          }
  }

  std::string misfit(const WantedTensor &w, const FoundTensor &f) const {
    const GivenTensor &t = given.tensors[f.tensor];
    const WantedTensor::Name &n = w.names[f.name];
    if (!isSameShape(t.dims, n.dims))
      return format("'%s' is %s, the model's is %s", n.name.c_str(), shapeText(t.dims.data(), int(t.dims.size())).c_str(),
                    shapeText(n.dims.data(), int(n.dims.size())).c_str());
    if (t.elem < 0)
      return format("'%s' is of type %s, which zcc does not read", n.name.c_str(), t.dtype.c_str());
    if (t.elem != w.elem && !(isFloat(t.elem) && isFloat(w.elem)))
      return format("'%s' is of type %s, the model's is %s", n.name.c_str(), elemName(t.elem), elemName(w.elem));
    return "";
  }

  void expectAll(MissingWeights missing) const {
    std::string text;
    for (size_t i = 0; i < wanted.size(); ++i)
      if (std::string s = found.tensors[i].tensor < 0 ? "" : misfit(wanted[i], found.tensors[i]); !s.empty())
        text += "\nnote: " + s;
    if (missing == MissingWeights::Refuse && !found.missing.empty())
      text += format("\nnote: it lacks %zu of %zu tensors: %s", found.missing.size(), wanted.size(),
                     listedNames(found.missing).c_str());
    if (text.empty())
      return;
    if (!found.leftOver.empty())
      text += format("\nnote: %zu of its tensors are left over: %s", found.leftOver.size(), listedNames(found.leftOver).c_str());
    for (const std::string &n : found.notes)
      text += "\nnote: " + n;
    fail("'%s' does not fit the model; --weights-map=REGEX=REPLACEMENT gives its tensors other names%s", given.path.c_str(),
         text.c_str());
  }

  const std::vector<WantedTensor> &wanted;
  const GivenFiles &given;
  std::map<std::string, int> index; ///< of the file's tensors by name, as --weights-map has it
  std::vector<bool> used;           ///< of the file's tensors
  std::vector<Rule> rules;
  FoundWeights found;
};

} // namespace

FoundWeights findWeights(const std::vector<WantedTensor> &wanted, const GivenFiles &given, const std::vector<std::string> &maps,
                         MissingWeights missing) {
  return Finder(wanted, given).run(maps, missing);
}

std::string leftOverText(const FoundWeights &found, const GivenFiles &given) {
  return found.leftOver.empty() ? ""
                                : format("%zu tensors of '%s' are not the model's and are left over: %s", found.leftOver.size(),
                                         given.path.c_str(), listedNames(found.leftOver).c_str());
}

// ---- tied parameters

/// Whether two tensors of the file are one tensor of the model.
static bool isEqual(const GivenFiles &given, const WantedTensor &w, const FoundTensor &f, const FoundTensor::Twin &twin) {
  constexpr int64_t kElements = 1 << 18; // at a time
  const WantedTensor::Name &first = w.names[f.name], &second = w.names[twin.name];
  std::vector<int64_t> dims = first.dims;
  if (first.isTransposed && dims.size() >= 2)
    std::swap(dims[dims.size() - 2], dims.back());
  auto place = [&](int tensor, bool isTransposed) {
    const GivenTensor &t = given.tensors[tensor];
    return TensorInFile{t.offset, t.elem, dims, isTransposed};
  };
  const TensorInFile a = place(f.tensor, first.isTransposed), b = place(twin.tensor, second.isTransposed);
  if (a.elem < 0 || b.elem < 0 || isFloat(a.elem) != isFloat(b.elem))
    return false;
  const File fileA(given.files[given.tensors[f.tensor].file]), fileB(given.files[given.tensors[twin.tensor].file]);
  RunReader reader;
  const Box whole = Box::whole(dims);
  std::vector<char> left(kElements * elemBytes(a.elem)), right(left.size());
  for (int64_t at = 0, total = whole.elements(); at < total; at += kElements) {
    const int64_t n = std::min(kElements, total - at);
    reader.read(fileA, a, {whole, at, n}, a.elem, left.data());
    reader.read(fileB, b, {whole, at, n}, a.elem, right.data());
    if (std::memcmp(left.data(), right.data(), n * elemBytes(a.elem)) != 0)
      return false;
  }
  return true;
}

void expectTwinsEqual(const std::vector<WantedTensor> &wanted, const FoundWeights &found, const GivenFiles &given) {
  std::string text;
  for (size_t i = 0; i < wanted.size(); ++i)
    for (const FoundTensor::Twin &twin : found.tensors[i].twins)
      if (!isEqual(given, wanted[i], found.tensors[i], twin))
        text += format("\nnote: '%s' and '%s' differ", given.tensors[found.tensors[i].tensor].name.c_str(),
                       given.tensors[twin.tensor].name.c_str());
  if (!text.empty())
    fail("tensors of '%s' differ that are one parameter of the model; zcc --untie=NAME parts them%s", given.path.c_str(),
         text.c_str());
}

} // namespace zccrt
