// Undoes a fold of PyTorch's default exporter: where a model uses a parameter as it is in one place, and in another a constant
// slice of it (`self.pos[:, :k]`), transposed or in another shape, its optimizer computes that, which is then a constant of its
// own that nothing trains.
//
//   b = Add(a, slice_1)                       // slice_1: an initializer with the values of pos[:, :k]
// becomes
//   slice_1 = Slice(pos, starts, ends, axes)
//   b = Add(a, slice_1)
#include "frontend/parameters/Parts.h"
#include "frontend/Emitter.h"
#include "frontend/parameters/Decision.h"
#include "frontend/parameters/InputRoles.h"
#include "onnx.pb.h"
#include "llvm/ADT/STLExtras.h"
#include <cstring>

using namespace zcc;
using llvm::StringRef;

constexpr int64_t kMostCompared = int64_t(256) << 20; ///< nothing larger is compared

static Dims withoutOnes(Dims d) {
  llvm::erase_if(d, [](int64_t n) { return n == 1; });
  return d;
}

/// Nothing if they cannot be had.
static std::optional<std::string> bytesOf(const OnnxFile &file, const Initializer &t) {
  auto bytes = file.read(t);
  if (bytes)
    return std::move(*bytes);
  llvm::consumeError(bytes.takeError());
  return std::nullopt;
}

/// The axis along which a slice of `whole` can be `part`, axes of 1 aside, and its extent there; calls `visit` with each.
static void forEachSliceAxis(const Initializer &part, const Initializer &whole, llvm::function_ref<void(size_t, int64_t)> visit) {
  for (size_t axis = whole.dims.size(); axis-- > 0;) {
    Dims d = whole.dims;
    int64_t extent = d[axis], taken = part.count() * extent / whole.count();
    d[axis] = taken;
    if (taken >= 1 && taken < extent && withoutOnes(d) == withoutOnes(part.dims))
      visit(axis, taken);
  }
}

static void findSlices(const Initializer &part, const Initializer &whole, const std::string &p, const std::string &w,
                       std::vector<Arrangement> &found) {
  forEachSliceAxis(part, whole, [&](size_t axis, int64_t taken) {
    int64_t extent = whole.dims[axis], inner = elemBytes(*whole.elem);
    for (size_t a = axis + 1; a < whole.dims.size(); ++a)
      inner *= whole.dims[a];
    int64_t outer = int64_t(w.size()) / (extent * inner), piece = taken * inner;
    for (int64_t first = 0; first + taken <= extent && found.size() < 2; ++first) {
      bool isEqual = true;
      for (int64_t o = 0; isEqual && o < outer; ++o)
        isEqual = !memcmp(&p[size_t(o * piece)], &w[size_t((o * extent + first) * inner)], size_t(piece));
      if (isEqual)
        found.push_back({/*isTransposed=*/false, int64_t(axis), first, taken});
    }
  });
}

/// Whether `whole` with its last two axes swapped can be `part`, axes of 1 aside.
static bool couldBeTransposed(const Initializer &part, const Initializer &whole) {
  Dims d = whole.dims;
  if (d.size() < 2)
    return false;
  std::swap(d[d.size() - 1], d[d.size() - 2]);
  return withoutOnes(d) == withoutOnes(part.dims);
}

std::vector<Arrangement> Part::arrangementsIn(const Initializer &whole) {
  const Initializer &part = part_;
  std::vector<Arrangement> found;
  if (part.elem != whole.elem || !part.count() || part.count() > whole.count() || part.bytes > kMostCompared ||
      whole.bytes > kMostCompared || part.place == Initializer::Missing || whole.place == Initializer::Missing)
    return found;
  bool isSlice = part.count() < whole.count(), fits = !isSlice;
  forEachSliceAxis(part, whole, [&](size_t, int64_t) { fits = true; });
  if (fits && !bytes_)
    bytes_ = bytesOf(file_, part);
  auto read = fits && bytes_ ? bytesOf(file_, whole) : std::nullopt;
  if (!read)
    return found;
  const std::string &p = *bytes_, &w = *read;
  if (isSlice)
    findSlices(part, whole, p, w, found);
  else if (p == w)
    found.push_back({});
  else if (couldBeTransposed(part, whole) && p == transposedBytes(w, whole.dims, elemBytes(*whole.elem)))
    found.push_back({/*isTransposed=*/true});
  return found;
}

bool zcc::isCalledMoved(StringRef initializer) {
  static const llvm::StringSet<> moving{"slice", "select",  "narrow",  "index", "getitem",   "split",   "unsqueeze", "squeeze",
                                        "view",  "reshape", "flatten", "t",     "transpose", "permute", "clone",     "alias"};
  StringRef base = initializer.rtrim("0123456789");
  base.consume_back("_");
  return moving.contains(base);
}

/// Whether the exporter computed it by moving elements, as far as its name says.
static bool couldBeMoved(const Initializer &t) {
  constexpr int64_t kTellingBytes = 32;                // on which weights agree by chance in no file
  bool isStep = StringRef(t.name).starts_with("val_"); // of the exporter's decomposition of an operator
  return t.elem && isFloat(*t.elem) && t.count() > 1 && (isCalledMoved(t.name) || (isStep && t.bytes >= kTellingBytes));
}

namespace {
/// Finds what was folded in one file, and puts nodes in its place.
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
  bool isOriginal(const Initializer &t) const;
  void replace(const Initializer &t, const Initializer &whole, const Arrangement &as);
  std::string fresh(const std::string &name);
  std::string integers(const std::string &name, llvm::ArrayRef<int64_t> values);
  onnx_pb::NodeProto &add(const char *op, const std::string &output);

  const OnnxFile &file_;
  onnx_pb::GraphProto &graph_;
  Evidence evidence_;
  llvm::StringSet<> taken_, inputs_;
};
} // namespace

/// Whether it could be of a parameter, and is no parameter or buffer by its own name or by what its uses say.
bool Unfolding::mayBePart(const Initializer &t) const {
  auto &uses = evidence_.uses(t.name);
  if (!couldBeMoved(t) || evidence_.kindOf(t.name) != Placeholder::Other || inputs_.contains(t.name) || uses.empty())
    return false;
  return llvm::all_of(uses, [&](auto &u) {
    auto fx = fxNodeOf(*u.node);
    bool isNamed = !fx || !isCalledMoved(t.name) || llvm::is_contained(fx->names, t.name);
    return isNamed && roleOf(u) != InputRole::Setting && roleOf(u) != InputRole::Statistic && !evidence_.parameterOf(t, u);
  });
}

/// Whether it is a tensor of the program itself.
bool Unfolding::isOriginal(const Initializer &t) const {
  return evidence_.kindOf(t.name) != Placeholder::Other && t.elem && isFloat(*t.elem);
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

void Unfolding::replace(const Initializer &t, const Initializer &whole, const Arrangement &as) {
  std::string value = whole.name;
  Dims dims = whole.dims;
  onnx_pb::NodeProto *last = nullptr;
  auto apply = [&](const char *op, std::initializer_list<std::string> more) {
    last = &add(op, fresh(t.name + ".part"));
    last->add_input(value);
    for (const std::string &input : more)
      last->add_input(input);
    value = last->output(0);
  };
  if (as.isTransposed) {
    Dims perm = allAxes(0, int64_t(dims.size()));
    std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
    std::swap(dims[dims.size() - 1], dims[dims.size() - 2]);
    apply("Transpose", {});
    auto &a = *last->add_attribute();
    a.set_name("perm");
    a.set_type(onnx_pb::AttributeProto::INTS);
    for (int64_t axis : perm)
      a.add_ints(axis);
  }
  if (as.axis >= 0) {
    dims[size_t(as.axis)] = as.taken;
    apply("Slice", {integers(t.name + ".starts", as.first), integers(t.name + ".ends", as.first + as.taken),
                    integers(t.name + ".axes", as.axis)});
  }
  if (dims != t.dims)
    apply("Reshape", {integers(t.name + ".shape", t.dims)});
  if (!last)
    apply("Identity", {});
  last->set_name(t.name);
  last->set_output(0, t.name);
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
    std::vector<Arrangement> found;
    Part part(file_, t);
    for (const Initializer &whole : file_.initializers) {
      if (found.size() > 1 || !isOriginal(whole))
        continue;
      for (const Arrangement &a : part.arrangementsIn(whole)) {
        found.push_back(a);
        of = &whole;
      }
    }
    if (found.size() != 1 || evidence_.kindOf(of->name) != Placeholder::Parameter || evidence_.uses(of->name).empty())
      continue;
    replace(t, *of, found[0]);
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
  if (training || opset("") < kSliceByInputs || llvm::none_of(initializers, couldBeMoved))
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
