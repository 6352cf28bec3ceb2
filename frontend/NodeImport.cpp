// What an operator's importer sees of its node: operands, attributes, results; and the collected problems.
#include "frontend/Importer.h"
#include "onnx.pb.h"
#include "llvm/ADT/StringExtras.h"

using namespace zcc;
using llvm::StringRef;

// ---- problems

void Problems::unsupported(const std::string &what, const Loc &where) {
  auto at = llvm::find_if(seen_, [&](const Seen &s) { return s.what == what; });
  if (at == seen_.end())
    at = seen_.insert(seen_.end(), {what, {}});
  std::string name;
  if (where && !where->nodes.empty())
    name = "'" + where->nodes[0] + "'" + (where->scope.empty() ? "" : " in '" + where->scope + "'");
  if (!llvm::is_contained(at->nodes,
                          name)) // the same node is imported for training and for evaluation
    at->nodes.push_back(name);
}

void Problems::invalid(const std::string &what, const Loc &where) { add(errorAt(where, what)); }

void Problems::add(llvm::Error e) {
  if (!e)
    return;
  std::string text = llvm::toString(std::move(e));
  if (!llvm::is_contained(wrong_, text)) // of training and of evaluation
    wrong_.push_back(text);
}

llvm::Error Problems::take(StringRef file) const {
  llvm::Error rest = llvm::Error::success();
  for (const std::string &w : wrong_)
    rest = llvm::joinErrors(std::move(rest), error(w));
  if (seen_.empty())
    return rest;
  bool one = seen_.size() == 1;
  bool operators = llvm::all_of(seen_, [](const Seen &s) { return !StringRef(s.what).contains(" with "); });
  std::string s = std::to_string(seen_.size());
  s += operators ? (one ? " operator is" : " operators are") : (one ? " thing is" : " things are");
  s += " not supported";
  for (const Seen &x : seen_) {
    s += "\n" + file.str() + ": note: " + x.what + " (" + std::to_string(x.nodes.size()) +
         (x.nodes.size() == 1 ? " node" : " nodes");
    s += x.nodes[0].empty() ? ")" : ", first " + x.nodes[0] + ")";
  }
  return llvm::joinErrors(error(s), std::move(rest));
}

// ---- scopes

const Val *Scope::find(StringRef name) const {
  for (const Scope *s = this; s; s = s->parent) {
    auto i = s->values.find(name);
    if (i != s->values.end())
      return &i->second;
  }
  return nullptr;
}

bool Scope::hasFailed(StringRef name) const {
  for (const Scope *s = this; s; s = s->parent) {
    if (s->failed.contains(name))
      return true;
    if (s->values.count(name))
      return false;
  }
  return false;
}

// ---- nodes

NodeImport::NodeImport(GraphImporter &g, Scope &s, const onnx_pb::NodeProto &n)
    : graph(g), scope(s), e(g.e), node(n), op(n.op_type()), opset(s.opset), results_(n.output_size()) {
  for (auto &a : n.attribute()) {
    if (a.ref_attr_name().empty()) {
      attributes_[a.name()] = &a;
      continue;
    }
    auto i = s.attributes.find(a.ref_attr_name());
    if (i != s.attributes.end())
      attributes_[a.name()] = i->second;
  }
  for (int i = 0; i < n.input_size(); ++i)
    operands_.push_back(n.input(i).empty() ? Val() : g.lookup(n.input(i), s, &n, unsigned(i)));
}

const Val &NodeImport::in(unsigned i) const {
  if (!has(i))
    invalid("input " + llvm::Twine(i) + " is missing");
  return operands_[i];
}

void NodeImport::setInput(unsigned i, Val v) {
  if (operands_.size() <= i)
    operands_.resize(i + 1);
  operands_[i] = std::move(v);
}

unsigned NodeImport::outputs() const { return unsigned(node.output_size()); }
bool NodeImport::wants(unsigned i) const { return int(i) < node.output_size() && !node.output(int(i)).empty(); }

void NodeImport::out(unsigned i, Val v) {
  if (results_.size() > i)
    results_[i] = std::move(v);
}

void zcc::importAsOneElement(NodeImport &n, void (*import)(NodeImport &)) {
  for (unsigned i = 0; i < n.inputs(); ++i)
    if (n.has(i) && n.in(i).rank() == 0)
      n.setInput(i, n.e.reshape(n.in(i), {1}));
  import(n);
  for (Val &r : n.results())
    if (r && r.count() == 1)
      r = n.e.reshape(r, {});
}

bool NodeImport::hasAttr(const char *name) const { return attributes_.count(name); }

/// The attribute, if the node has it. Files of the first IR versions say no types.
const onnx_pb::AttributeProto *NodeImport::attr(const char *name, int type) {
  using onnx_pb::AttributeProto;
  read_.insert(name);
  auto i = attributes_.find(name);
  if (i == attributes_.end())
    return nullptr;
  const AttributeProto &a = *i->second;
  auto nameOf = [](int t) { return AttributeProto::AttributeType_Name(AttributeProto::AttributeType(t)); };
  if (a.type() != AttributeProto::UNDEFINED && a.type() != type)
    invalid("attribute '" + llvm::Twine(name) + "' is of type " + nameOf(a.type()) + ", not " + nameOf(type));
  return &a;
}

int64_t NodeImport::i(const char *name, int64_t otherwise) {
  auto *a = attr(name, onnx_pb::AttributeProto::INT);
  return a ? a->i() : otherwise;
}

/// The double nearest to the shortest decimal that reads as this float: 1e-5 in the file is 1e-5,
/// not 9.99999975e-06.
static double decimal(float x) {
  char text[32];
  for (int digits = 6; digits <= 9; ++digits) {
    snprintf(text, sizeof text, "%.*g", digits, double(x));
    if (strtof(text, nullptr) == x)
      return strtod(text, nullptr);
  }
  return x;
}

double NodeImport::f(const char *name, double otherwise) {
  auto *a = attr(name, onnx_pb::AttributeProto::FLOAT);
  return a ? decimal(a->f()) : otherwise;
}

std::string NodeImport::s(const char *name, StringRef otherwise) {
  auto *a = attr(name, onnx_pb::AttributeProto::STRING);
  return a ? a->s() : otherwise.str();
}

std::string NodeImport::oneOf(const char *name, std::initializer_list<StringRef> words, StringRef otherwise) {
  const std::string word = s(name, otherwise);
  if (llvm::is_contained(words, StringRef(word)))
    return word;
  const llvm::ArrayRef<StringRef> all(words.begin(), words.size());
  const std::string before = llvm::join(all.drop_back(), ", ");
  invalid("attribute '" + llvm::Twine(name) + "' is '" + word + "'; it may be " + before + (all.size() > 2 ? ", or " : " or ") +
          all.back());
}

std::vector<int64_t> NodeImport::ints(const char *name) {
  auto *a = attr(name, onnx_pb::AttributeProto::INTS);
  return a ? std::vector<int64_t>(a->ints().begin(), a->ints().end()) : std::vector<int64_t>();
}

std::vector<double> NodeImport::floats(const char *name) {
  auto *a = attr(name, onnx_pb::AttributeProto::FLOATS);
  std::vector<double> r;
  if (a)
    for (float x : a->floats())
      r.push_back(decimal(x));
  return r;
}

std::vector<std::string> NodeImport::strings(const char *name) {
  auto *a = attr(name, onnx_pb::AttributeProto::STRINGS);
  return a ? std::vector<std::string>(a->strings().begin(), a->strings().end()) : std::vector<std::string>();
}

Elem NodeImport::elemOf(const char *name, std::optional<Elem> otherwise) {
  if (!hasAttr(name) && otherwise)
    return *otherwise;
  const int type = int(i(name));
  auto elem = elemFromOnnx(type);
  if (!elem)
    unsupported("element type " + onnxTypeName(type));
  return *elem;
}

const onnx_pb::TensorProto *NodeImport::tensor(const char *name) {
  auto *a = attr(name, onnx_pb::AttributeProto::TENSOR);
  return a && a->has_t() ? &a->t() : nullptr;
}

const onnx_pb::GraphProto *NodeImport::subgraph(const char *name) {
  auto *a = attr(name, onnx_pb::AttributeProto::GRAPH);
  return a && a->has_g() ? &a->g() : nullptr;
}

void NodeImport::ignore(std::initializer_list<const char *> names) {
  for (const char *n : names)
    read_.insert(n);
}

std::vector<std::string> NodeImport::unread() const {
  std::vector<std::string> r;
  for (auto &[name, a] : attributes_)
    if (!read_.contains(name))
      r.push_back(name);
  return r;
}

std::optional<std::vector<int64_t>> NodeImport::intsOf(unsigned index, const char *what) const {
  if (!has(index))
    return std::nullopt;
  return Emitter::asInts(in(index), what);
}
