// Opens data files, and compares what they hold.
#include "runtime/DataParts.h"
#include "runtime/Elem.h"
#include "runtime/Fail.h"
#include <algorithm>
#include <cstring>

namespace zccrt {

std::string typeText(int elem, const int64_t *dims, int ndim) {
  return std::string(elemName(elem)) + " " + shapeText(dims, ndim);
}

static std::string typeText(const Array &a) { return typeText(a.elem, a.dims.data(), static_cast<int>(a.dims.size())); }

namespace {

/// What an archive holds of the inputs.
struct ArchiveParts {
  std::string path;
  std::vector<Array> arrays;
  const Array *find(const std::string &name) const {
    auto at = std::find_if(arrays.begin(), arrays.end(), [&](auto &a) { return a.name == name; });
    return at == arrays.end() ? nullptr : &*at;
  }
};

/// What is wrong, all of it.
class Complaints {
public:
  void add(const std::string &line) {
    constexpr int kMost = 8;
    if (++count <= kMost)
      text += "\nnote: " + line;
    else if (count == kMost + 1)
      text += "\nnote: and more";
  }
  void raise() const {
    if (count)
      fail("the data files do not fit together%s", text.c_str());
  }

private:
  std::string text;
  int count = 0;
};

} // namespace

static bool hasOwnShape(const zccrt_io &in, const Array &a) {
  return std::equal(a.dims.begin(), a.dims.end(), in.t.dims, in.t.dims + in.t.ndim);
}

static bool haveSameBytes(const Array &a, const Array &b) {
  constexpr int64_t kPiece = 1 << 20;
  std::vector<char> left(kPiece), right(kPiece);
  const int64_t bytes = a.elements() * elemBytes(a.elem);
  for (int64_t at = 0; at < bytes; at += kPiece) {
    const int64_t n = std::min(kPiece, bytes - at);
    a.source->read(a.offset + at, n, left.data());
    b.source->read(b.offset + at, n, right.data());
    if (memcmp(left.data(), right.data(), n) != 0)
      return false;
  }
  return true;
}

/// The parts must have the same type, and the same shape but for axis 0.
static void compareTypes(const InputParts &in, Complaints &wrong) {
  const Array &first = in.parts[0];
  if (in.parts.size() > 1 && first.dims.empty())
    return wrong.add(format("'%s' is a single number, of which '%s' has one and '%s' another", in.input->name, first.file.c_str(),
                            in.parts[1].file.c_str()));
  for (const Array &a : in.parts) {
    bool isLike = a.elem == first.elem && a.dims.size() == first.dims.size() &&
                  std::equal(a.dims.begin() + !a.dims.empty(), a.dims.end(), first.dims.begin() + !first.dims.empty());
    if (!isLike)
      wrong.add(format("'%s' is %s in '%s', and %s in '%s'", in.input->name, typeText(first).c_str(), first.file.c_str(),
                       typeText(a).c_str(), a.file.c_str()));
  }
}

/// Archives that share an input hold the same inputs, each of them as many batches of every one.
static void compareArchives(const std::vector<ArchiveParts> &archives, const std::vector<InputParts> &inputs, Complaints &wrong) {
  // Not of one that is the same for every batch.
  auto other = std::find_if(inputs.begin(), inputs.end(), [](const InputParts &in) { return in.parts.size() > 1; });
  for (const InputParts &in : inputs) {
    if (in.parts.size() < 2)
      continue;
    for (const ArchiveParts &archive : archives) {
      const Array *own = archive.find(in.input->name);
      bool shares = std::any_of(archive.arrays.begin(), archive.arrays.end(), [&](const Array &a) {
        return std::any_of(inputs.begin(), inputs.end(),
                           [&](auto &other) { return other.parts.size() > 1 && a.name == other.input->name; });
      });
      if (!own && shares)
        wrong.add(format("'%s' has no '%s', which '%s' has", archive.path.c_str(), in.input->name, in.parts[0].file.c_str()));
      const Array *first = archive.find(other->input->name);
      if (!own || !first || own->dims.empty() || first->dims.empty())
        continue;
      const int64_t rows = in.input->t.ndim ? in.input->t.dims[0] : 1,
                    others = other->input->t.ndim ? other->input->t.dims[0] : 1;
      if (own->dims[0] * others != first->dims[0] * rows)
        wrong.add(format("'%s' has %lld rows of '%s', and %lld of '%s'", archive.path.c_str(),
                         static_cast<long long>(first->dims[0]), other->input->name, static_cast<long long>(own->dims[0]),
                         in.input->name));
    }
  }
}

/// An input that every file brings in its own shape, the same each time, while others of its files have other numbers of
/// samples, is the same for every batch.
static void dropRepeated(std::vector<InputParts> &inputs) {
  for (InputParts &in : inputs) {
    auto isOwn = [&](const Array &a) { return hasOwnShape(*in.input, a); };
    bool variesBeside = std::any_of(inputs.begin(), inputs.end(), [&](const InputParts &other) {
      return other.parts.size() > 1 &&
             !std::all_of(other.parts.begin(), other.parts.end(), [&](const Array &a) { return hasOwnShape(*other.input, a); });
    });
    if (in.parts.size() < 2 || !variesBeside || !std::all_of(in.parts.begin(), in.parts.end(), isOwn))
      continue;
    if (std::all_of(in.parts.begin(), in.parts.end(),
                    [&](const Array &a) { return a.elem == in.parts[0].elem && haveSameBytes(in.parts[0], a); }))
      in.parts.resize(1);
  }
}

/// The input of that name. Throws a Failure that suggests the nearest.
static const zccrt_io &inputOf(const DataFiles::Named &f, const std::vector<std::string> &names, const zccrt_program &p) {
  auto known = std::find(names.begin(), names.end(), f.input);
  if (known != names.end())
    return p.inputs[known - names.begin()];
  std::string near = nearest(f.input, names);
  if (near.empty() && !names.empty())
    near = names[0];
  fail("--data=%s=%s: the model has no input '%s'%s", f.input.c_str(), f.file.c_str(), f.input.c_str(),
       near.empty() ? "" : format("; did you mean '%s'?", near.c_str()).c_str());
}

std::vector<InputParts> openParts(const zccrt_program &p, const DataFiles &files, std::vector<std::string> &others) {
  std::vector<std::string> names;
  for (int i = 0; i < p.ninputs; ++i)
    names.push_back(p.inputs[i].name);
  std::vector<InputParts> inputs;
  auto partsOf = [&](const zccrt_io &input) -> std::vector<Array> & {
    auto known = std::find_if(inputs.begin(), inputs.end(), [&](auto &i) { return i.input == &input; });
    return known == inputs.end() ? inputs.emplace_back(InputParts{&input, {}}).parts : known->parts;
  };
  std::vector<ArchiveParts> archives;
  for (const std::string &path : files.npz) {
    archives.push_back({path, openNpz(path, names, others)});
    for (const Array &a : archives.back().arrays)
      partsOf(p.inputs[std::find(names.begin(), names.end(), a.name) - names.begin()]).push_back(a);
  }
  std::sort(others.begin(), others.end());
  others.erase(std::unique(others.begin(), others.end()), others.end());
  for (const DataFiles::Named &f : files.npy) {
    const zccrt_io &input = inputOf(f, names, p);
    for (const ArchiveParts &archive : archives)
      if (archive.find(f.input))
        fail("input '%s' is given twice: by '%s' and by '%s'", f.input.c_str(), archive.path.c_str(), f.file.c_str());
    partsOf(input).push_back(openNpy(f.file));
  }
  Complaints wrong;
  for (const InputParts &in : inputs)
    compareTypes(in, wrong);
  wrong.raise();
  dropRepeated(inputs);
  compareArchives(archives, inputs, wrong);
  wrong.raise();
  return inputs;
}

} // namespace zccrt
