// Sequences and optionals: lists of values while compiling; their positions and lengths must be constant.
#include "frontend/Importer.h"
#include "onnx.pb.h"

using namespace zcc;

namespace {
namespace sequence_ops {

Val listOf(std::vector<Val> v) {
  Val r;
  r.list = std::make_shared<std::vector<Val>>(std::move(v));
  return r;
}

const std::vector<Val> &elements(const Val &v) {
  if (!v.list)
    invalid("a sequence is needed");
  return *v.list;
}

/// A position, counted from the end if negative.
int64_t position(NodeImport &n, unsigned input, int64_t count, int64_t otherwise) {
  int64_t at = n.has(input) ? Emitter::asInt(n.in(input), "positions") : otherwise;
  at = at < 0 ? at + count : at;
  if (at < 0 || at > count)
    invalid("position " + llvm::Twine(at) + " of a sequence of " + llvm::Twine(count));
  return at;
}

void construct(NodeImport &n) {
  std::vector<Val> v;
  for (unsigned i = 0; i < n.inputs(); ++i)
    v.push_back(n.in(i));
  n.out(listOf(std::move(v)));
}

void empty(NodeImport &n) {
  n.ignore({"dtype"});
  n.out(listOf({}));
}

void at(NodeImport &n) {
  auto &v = elements(n.in(0));
  int64_t i = position(n, 1, int64_t(v.size()), 0);
  if (i >= int64_t(v.size()))
    invalid("position " + llvm::Twine(i) + " of a sequence of " + llvm::Twine(v.size()));
  n.out(v[i]);
}

void insert(NodeImport &n) {
  std::vector<Val> v = elements(n.in(0));
  int64_t i = position(n, 2, int64_t(v.size()), int64_t(v.size()));
  v.insert(v.begin() + i, n.in(1));
  n.out(listOf(std::move(v)));
}

void erase(NodeImport &n) {
  std::vector<Val> v = elements(n.in(0));
  int64_t i = position(n, 1, int64_t(v.size()), int64_t(v.size()) - 1);
  if (i >= int64_t(v.size()))
    invalid("nothing to erase at " + llvm::Twine(i));
  v.erase(v.begin() + i);
  n.out(listOf(std::move(v)));
}

void length(NodeImport &n) { n.out(Emitter::integers({int64_t(elements(n.in(0)).size())}, {})); }

void splitToSequence(NodeImport &n) {
  Val x = n.in(0);
  int64_t axis = normalAxis(n.i("axis", 0), x.rank()), d = x.dim(axis);
  std::vector<int64_t> sizes;
  bool drop = false;
  auto checkPieces = [](int64_t pieces) {
    constexpr int64_t kMost = 1 << 14;
    if (pieces > kMost)
      unsupported("a sequence of more than 2^14 tensors");
  };
  if (!n.has(1)) {
    checkPieces(d);
    sizes.assign(d, 1);
    drop = n.i("keepdims", 1) == 0;
  } else if (n.in(1).rank() == 0) {
    int64_t each = Emitter::asInt(n.in(1), "sizes");
    if (each < 1)
      invalid("pieces of " + llvm::Twine(each));
    checkPieces(d / each);
    for (int64_t at = 0; at < d; at += each)
      sizes.push_back(std::min(each, d - at));
  } else {
    sizes = Emitter::asInts(n.in(1), "sizes");
  }
  n.ignore({"keepdims"});
  std::vector<Val> parts;
  int64_t at = 0;
  for (int64_t s : sizes) {
    if (s < 0 || s > d - at)
      invalid("the pieces are longer than the axis of " + x.type.str());
    Val p = n.e.slice(x, axis, at, at + s);
    parts.push_back(drop ? n.e.squeeze(p, {axis}) : p);
    at += s;
  }
  n.out(listOf(std::move(parts)));
}

void concatFromSequence(NodeImport &n) {
  std::vector<Val> v = elements(n.in(0));
  if (v.empty())
    invalid("an empty sequence");
  int64_t axis = n.i("axis");
  if (n.i("new_axis") != 0) {
    axis = normalAxis(axis, v[0].rank() + 1);
    for (Val &x : v)
      x = n.e.unsqueeze(x, {axis});
  }
  n.out(n.e.concat(v, axis));
}

/// The body once for each element; tensors among the inputs are the same every time.
void sequenceMap(NodeImport &n) {
  auto *body = n.subgraph("body");
  if (!body)
    invalid("the body is missing");
  size_t count = elements(n.in(0)).size();
  for (unsigned i = 1; i < n.inputs(); ++i)
    if (n.in(i).list && n.in(i).list->size() != count)
      invalid("sequences of " + llvm::Twine(count) + " and " + llvm::Twine(n.in(i).list->size()));
  std::vector<std::vector<Val>> results(size_t(body->output_size()));
  for (size_t k = 0; k < count; ++k) {
    Vals in;
    for (unsigned i = 0; i < n.inputs(); ++i)
      in.push_back(n.in(i).list ? (*n.in(i).list)[k] : n.in(i));
    Vals out = n.graph.importSubgraph(*body, in, n.scope);
    for (size_t i = 0; i < results.size(); ++i)
      results[i].push_back(out[i]);
  }
  for (size_t i = 0; i < results.size(); ++i)
    n.out(unsigned(i), listOf(std::move(results[i])));
}

// ---- optionals: the value itself, or nothing

void optional(NodeImport &n) {
  n.ignore({"type"});
  if (n.has(0))
    n.out(n.in(0));
}

void getElement(NodeImport &n) { n.out(n.in(0)); }

void hasElement(NodeImport &n) { n.out(Emitter::number(n.has(0), Elem::Bool)); }

const OnnxOp kOps[] = {
    {"SequenceConstruct", construct},
    {"SequenceEmpty", empty},
    {"SequenceAt", at},
    {"SequenceInsert", insert},
    {"SequenceErase", erase},
    {"SequenceLength", length},
    {"SplitToSequence", splitToSequence},
    {"ConcatFromSequence", concatFromSequence},
    {"SequenceMap", sequenceMap},
    {"Optional", optional},
    {"OptionalGetElement", getElement},
    {"OptionalHasElement", hasElement},
};

} // namespace sequence_ops
} // namespace

llvm::ArrayRef<OnnxOp> zcc::sequenceOps() { return sequence_ops::kOps; }
