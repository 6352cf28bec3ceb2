// Undoes a fold of PyTorch's default exporter: where a model uses a parameter whole in one place and a constant slice of it
// in another (`self.pos[:, :k]`), its optimizer computes the slice, which is then a constant of its own that nothing trains.
//
//   b = Add(a, slice_1)                       // slice_1: an initializer with the values of pos[:, :k]
// becomes
//   slice_1 = Slice(pos, starts, ends, axes)
//   b = Add(a, slice_1)
#include "frontend/parameters/Parts.h"
#include "frontend/parameters/Evidence.h"
#include "frontend/parameters/InputRoles.h"
#include "onnx.pb.h"
#include "llvm/ADT/STLExtras.h"
#include <cstring>

using namespace zcc;
using llvm::StringRef;

constexpr int64_t kMostBytes = int64_t(256) << 20; ///< nothing larger is compared

static Dims withoutOnes(Dims d) {
  llvm::erase_if(d, [](int64_t n) { return n == 1; });
  return d;
}

/// The bytes of both; false if they cannot be had.
static bool readBoth(const OnnxFile &file, const Initializer &a, const Initializer &b, std::string &x, std::string &y) {
  for (auto [t, to] : {std::pair(&a, &x), std::pair(&b, &y)}) {
    auto bytes = file.read(*t);
    if (!bytes) {
      llvm::consumeError(bytes.takeError());
      return false;
    }
    *to = std::move(*bytes);
  }
  return true;
}

std::vector<Part> zcc::partsEqualTo(const OnnxFile &file, const Initializer &part, const Initializer &whole) {
  std::vector<Part> found;
  if (part.elem != whole.elem || !part.count() || part.count() >= whole.count() || part.bytes > kMostBytes ||
      whole.bytes > kMostBytes || part.place == Initializer::Missing || whole.place == Initializer::Missing)
    return found;
  std::string p, w; // read where shapes fit
  int64_t inner = elemBytes(*whole.elem);
  for (size_t axis = whole.dims.size(); axis-- > 0; inner *= whole.dims[axis]) {
    Dims d = whole.dims;
    int64_t extent = d[axis], taken = part.count() * extent / whole.count();
    d[axis] = taken;
    if (taken < 1 || taken == extent || withoutOnes(d) != withoutOnes(part.dims))
      continue;
    if (p.empty() && !readBoth(file, part, whole, p, w))
      return found;
    int64_t outer = int64_t(w.size()) / (extent * inner), piece = taken * inner;
    for (int64_t first = 0; first + taken <= extent; ++first) {
      bool isEqual = true;
      for (int64_t o = 0; isEqual && o < outer; ++o)
        isEqual = !memcmp(&p[size_t(o * piece)], &w[size_t((o * extent + first) * inner)], size_t(piece));
      if (isEqual)
        found.push_back({int64_t(axis), first, taken});
      if (found.size() > 1)
        return found;
    }
  }
  return found;
}

bool zcc::isCalledPart(StringRef initializer) {
  StringRef base = initializer.rtrim("0123456789");
  base.consume_back("_");
  return base == "slice" || base == "select" || base == "narrow";
}

namespace {
/// Finds the slices of one file, and puts nodes in their place.
class Unfolding {
public:
  Unfolding(const OnnxFile &file, onnx_pb::GraphProto &graph) : file_(file), graph_(graph), evidence_(file) {
    for (auto &t : file.initializers)
      taken_.insert(t.name);
    for (auto &i : graph.input())
      inputs_.insert(i.name());
    for (auto &n : graph.node())
      for (auto &o : n.output())
        taken_.insert(o);
  }

  /// "'slice_1' of 'pos'", for each; their initializers are no longer read.
  std::vector<std::string> run(llvm::StringSet<> &replaced);

private:
  bool mayBePart(const Initializer &t) const;
  bool isParameter(const Initializer &t) const;
  void replace(const Initializer &t, const Initializer &whole, const Part &part);
  std::string fresh(const std::string &name);
  std::string integers(const std::string &name, llvm::ArrayRef<int64_t> values);
  onnx_pb::NodeProto &add(const char *op, const std::string &output);

  const OnnxFile &file_;
  onnx_pb::GraphProto &graph_;
  Evidence evidence_;
  llvm::StringSet<> taken_, inputs_;
};
} // namespace

/// Whether no parameter or buffer stands behind it by its name or its uses, and it is no chance that it has the values of a
/// slice: it is called one, or it holds so much.
bool Unfolding::mayBePart(const Initializer &t) const {
  constexpr int64_t kTellingBytes = 32; // that random numbers agree on by chance in no file
  bool isAnonymous =
      evidence_.kindOf(t.name) == Placeholder::Other && !StringRef(t.name).contains('.') && !inputs_.contains(t.name);
  auto &uses = evidence_.uses(t.name);
  if (!isAnonymous || !t.elem || !isFloat(*t.elem) || t.count() < 2 || uses.empty())
    return false;
  bool isNamed = isCalledPart(t.name);
  for (auto &u : uses) {
    if (roleOf(u) == InputRole::Setting || roleOf(u) == InputRole::Statistic || evidence_.parameterOf(t, u))
      return false;
    auto fx = fxNodeOf(*u.node);
    isNamed &= !fx || llvm::is_contained(fx->names, t.name);
  }
  return isNamed || t.bytes >= kTellingBytes;
}

bool Unfolding::isParameter(const Initializer &t) const {
  return evidence_.kindOf(t.name) == Placeholder::Parameter && t.elem && isFloat(*t.elem) && !evidence_.uses(t.name).empty();
}

std::string Unfolding::fresh(const std::string &name) {
  std::string unique = name;
  while (!taken_.insert(unique).second)
    unique += "_";
  return unique;
}

onnx_pb::NodeProto &Unfolding::add(const char *op, const std::string &output) {
  auto &n = *graph_.add_node();
  n.set_op_type(op);
  n.set_name(output);
  n.add_output(output);
  return n;
}

std::string Unfolding::integers(const std::string &name, llvm::ArrayRef<int64_t> values) {
  std::string output = fresh(name);
  auto &a = *add("Constant", output).add_attribute();
  a.set_name("value");
  a.set_type(onnx_pb::AttributeProto::TENSOR);
  a.mutable_t()->set_data_type(onnxFromElem(Elem::I64));
  a.mutable_t()->add_dims(int64_t(values.size()));
  for (int64_t v : values)
    a.mutable_t()->add_int64_data(v);
  return output;
}

void Unfolding::replace(const Initializer &t, const Initializer &whole, const Part &part) {
  Dims dims = whole.dims;
  dims[size_t(part.axis)] = part.taken;
  bool hasShape = dims == t.dims;
  std::vector<std::string> inputs{whole.name, integers(t.name + ".starts", part.first),
                                  integers(t.name + ".ends", part.first + part.taken), integers(t.name + ".axes", part.axis)};
  std::string sliced = hasShape ? t.name : fresh(t.name + ".slice");
  auto &slice = add("Slice", sliced);
  for (const std::string &i : inputs)
    slice.add_input(i);
  if (hasShape)
    return;
  std::string shape = integers(t.name + ".shape", t.dims);
  auto &reshape = add("Reshape", t.name);
  reshape.add_input(sliced);
  reshape.add_input(shape);
}

std::vector<std::string> Unfolding::run(llvm::StringSet<> &replaced) {
  std::vector<std::string> said;
  if (!evidence_.hasFx || !evidence_.hasSignature())
    return said;
  int before = graph_.node_size();
  for (const Initializer &t : file_.initializers) {
    if (!mayBePart(t))
      continue;
    const Initializer *of = nullptr;
    std::vector<Part> places;
    for (const Initializer &whole : file_.initializers) {
      if (places.size() > 1 || !isParameter(whole))
        continue;
      for (const Part &p : partsEqualTo(file_, t, whole)) {
        places.push_back(p);
        of = &whole;
      }
    }
    if (places.size() != 1)
      continue;
    replace(t, *of, places[0]);
    replaced.insert(t.name);
    said.push_back("'" + t.name + "' of '" + of->name + "'");
  }
  auto *nodes = graph_.mutable_node(); // before those that read them
  std::rotate(nodes->pointer_begin(), nodes->pointer_begin() + before, nodes->pointer_end());
  return said;
}

/// The first operator set whose Slice takes its bounds as inputs.
constexpr int64_t kSliceByInputs = 10;

void OnnxFile::unfoldParts() {
  if (training || opset("") < kSliceByInputs)
    return;
  auto *graph = model_->mutable_graph();
  llvm::StringSet<> replaced;
  unfolded = Unfolding(*this, *graph).run(replaced);
  if (unfolded.empty())
    return;
  int kept = 0;
  for (int i = 0; i < graph->initializer_size(); ++i)
    if (!replaced.contains(graph->initializer(i).name()))
      graph->mutable_initializer()->SwapElements(i, kept++);
  graph->mutable_initializer()->DeleteSubrange(kept, graph->initializer_size() - kept);
  llvm::erase_if(initializers, [&](auto &t) { return replaced.contains(t.name); });
  initializerIndex.clear();
  for (size_t i = 0; i < initializers.size(); ++i)
    initializerIndex[initializers[i].name] = unsigned(i);
}
