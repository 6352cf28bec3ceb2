// The model's state_dict: the names that its tensors have there, whatever the exporter made of them. Sources of names, in this
// order: initializers with names of their own; the parameter that each use means; modules that use another's parameter under a
// name of their own; buffers.
#include "frontend/parameters/Decision.h"
#include "onnx.pb.h"
#include "llvm/ADT/StringExtras.h"

using namespace zcc;
using llvm::StringRef;

/// "net.1.fc" of "/net/net.1/fc/MatMul", as PyTorch's TorchScript exporter names nodes; "" if it is
/// none. What lies in a list or a Sequential has its name, too.
static std::string modulePath(const onnx_pb::NodeProto &n) {
  llvm::SmallVector<StringRef, 16> parts;
  StringRef(n.name()).split(parts, '/');
  if (parts.size() < 3 || !parts[0].empty())
    return "";
  std::string path;
  StringRef before;
  for (StringRef part : llvm::ArrayRef(parts).drop_front().drop_back()) {
    if (!before.empty() && part.starts_with((before + ".").str()))
      path.resize(path.size() - before.size());
    else if (!path.empty())
      path += ".";
    path += part;
    before = part;
  }
  return path;
}

static bool isBelow(StringRef path, StringRef module) { return path.starts_with((module + ".").str()); }

/// Whether TorchScript's path is that of a later call of the same module: "net.fc_1" of "net.fc".
static bool isLaterCall(StringRef path, StringRef module) {
  llvm::SmallVector<StringRef, 16> parts, of;
  path.split(parts, '.');
  module.split(of, '.');
  return parts.size() == of.size() && llvm::all_of(llvm::zip(parts, of), [](auto both) {
           auto [part, name] = both;
           bool begins = part.consume_front(name);
           return begins && (part.empty() || (part.consume_front("_") && !part.empty() && llvm::all_of(part, llvm::isDigit)));
         });
}

/// Whether Gemm's second operand is taken as it is.
static bool isPlainGemm(const onnx_pb::NodeProto &n) {
  return llvm::none_of(n.attribute(), [](auto &a) { return a.name() == "transB" && a.i(); });
}

Decision::Layout Decision::layoutOf(const Fact &f, const InitializerUse &use) const {
  auto &dims = f.source->dims;
  if (!f.isAnonymous || dims.size() < 2)
    return Layout::Same;
  StringRef base = StringRef(f.source->name).rtrim("0123456789");
  base.consume_back("_");
  if (dims.size() == 2 && (base == "t" || base == "transpose" || base == "permute"))
    return Layout::Transposed;
  auto fx = fxNodeOf(*use.node);
  if (!fx)
    return Layout::Same;
  StringRef target = fx->target, op = use.node->op_type();
  if (target.starts_with("aten.linear.") && dims.size() == 2 && use.index == 1 &&
      (op == "MatMul" || (op == "Gemm" && isPlainGemm(*use.node))))
    return Layout::Transposed;
  bool isPerChannel = target.contains("group_norm") || target.contains("batch_norm") || target.contains("instance_norm") ||
                      target.starts_with("aten.prelu.");
  return isPerChannel ? Layout::Flat : Layout::Same;
}

/// Gives a tensor a name of the state_dict, unless the name is taken.
void Decision::addName(const std::string &name, Fact &f, Parameter *p, Layout layout) {
  auto [i, isNew] = stateIndex_.try_emplace(name, out_.state_.size());
  if (!isNew) {
    const StateName &other = out_.state_[i->second];
    if (other.parameter != p && name != f.source->name)
      addName(f.source->name, f, p, Layout::Same);
    return;
  }
  StateName s{name, f.source->dims, f.source, p};
  if (p && p->pieces > 1)
    s.dims[0] = 1;
  s.transposed = p && p->source != f.source && out_.uses_[f.source->name].transposed;
  if (layout == Layout::Transposed) {
    std::swap(s.dims[s.dims.size() - 2], s.dims.back());
    s.transposed = !s.transposed;
  } else if (layout == Layout::Flat) {
    s.dims = {elementCount(s.dims)};
  }
  s.isAnother = !hasName_.insert(p ? static_cast<const void *>(p) : f.source).second;
  out_.state_.push_back(std::move(s));
}

/// The parameter whose value an initializer has in the end; nullptr: its own, always.
Parameter *Decision::writtenParameter(const Fact &f) const {
  Parameter *p = out_.use(f.source->name).parameter;
  return p->role == Parameter::Constant ? nullptr : p;
}

/// Whether the name of an initializer is one of the state_dict.
bool Decision::isInState(const Fact &f) const {
  if (!f.source->elem)
    return false;
  StringRef name = f.source->name;
  if (evidence_.hasSignature())
    return stateTargets_.contains(name) ||
           (writtenParameter(f) && writtenParameter(f)->role == Parameter::Trained && !f.isAnonymous);
  if (writtenParameter(f))
    return !f.isAnonymous && !name.starts_with("onnx::");
  // TorchScript's initializers are the state_dict, but for results of its own folding.
  return !evidence_.hasFx && file_.isFromPyTorch() && isAttributeName(name) && !name.starts_with("/") && !name.contains("::");
}

/// The names that the uses of an initializer mean.
void Decision::nameByUses(Fact &f) {
  if (!writtenParameter(f))
    return;
  auto &uses = evidence_.uses(f.source->name);
  for (size_t i = 0; i < f.meanings.size() && i < uses.size(); ++i) {
    const std::string &m = f.meanings[i];
    if (m.empty() || (isBuffer(m) && !stateTargets_.contains(m)))
      continue;
    Parameter *p = out_.use(f.source->name, uses[i].node, uses[i].index).parameter;
    addName(m, f, p->role == Parameter::Constant ? nullptr : p, m == f.source->name ? Layout::Same : layoutOf(f, uses[i]));
  }
  bool isNamed = llvm::any_of(f.meanings, [](const std::string &m) { return !m.empty(); });
  if (!isNamed && !f.meaning.empty() && !uses.empty()) // what its module lacks
    addName(f.meaning, f, out_.use(f.source->name).parameter, layoutOf(f, uses[0]));
}

/// TorchScript's folding leaves "onnx::MatMul_12", transposed, and the module's path in the node's name.
void Decision::nameByModules(Fact &f) {
  if (!writtenParameter(f) || evidence_.hasFx || !StringRef(f.source->name).starts_with("onnx::MatMul_") ||
      f.source->dims.size() != 2)
    return;
  std::string first;
  for (auto &u : evidence_.uses(f.source->name)) {
    std::string path = modulePath(*u.node);
    if (first.empty())
      first = path;
    bool isNamed = path != first && isLaterCall(path, first);
    if (!path.empty() && u.index == 1 && !isNamed && !factIndex_.count(path + ".weight"))
      addName(path + ".weight", f, writtenParameter(f), Layout::Transposed);
  }
}

void Decision::nameBuffer(Fact &f) {
  bool mayBeTurned = f.isAnonymous && f.source->dims.size() > 1;
  if (writtenParameter(f) || mayBeTurned || !f.source->elem)
    return;
  for (auto &u : evidence_.uses(f.source->name)) {
    std::string buffer = evidence_.bufferOf(u);
    if (stateTargets_.contains(buffer))
      addName(buffer, f, nullptr, Layout::Same);
  }
}

/// Modules that consist of one matrix product or table look-up and read another module's weight have it as theirs, by the
/// paths in TorchScript's names of nodes.
static std::vector<std::pair<std::string, std::string>> sharedByModules(const OnnxFile &file) {
  llvm::StringMap<std::string> weightOf;
  llvm::StringSet<> others; // modules that do more
  for (auto &n : file.graph().node()) {
    std::string path = modulePath(n);
    for (StringRef p = parentOf(path); !p.empty(); p = parentOf(p))
      others.insert(p);
    StringRef op = n.op_type();
    if (path.empty() || op == "Constant")
      continue;
    if (op != "Transpose" && op != "MatMul" && op != "Gemm" && op != "Add" && op != "Gather")
      others.insert(path);
    for (auto &i : n.input())
      if (file.initializer(i) && StringRef(i).ends_with(".weight") && op != "Add")
        weightOf[path] = i;
  }
  std::vector<std::pair<std::string, std::string>> sharing, names;
  for (auto &w : weightOf) {
    StringRef path = w.first(), module = parentOf(w.second);
    if (!others.contains(path) && !isLaterCall(path, module) && !isBelow(module, path) && !isBelow(path, module))
      sharing.push_back({path.str(), w.second});
  }
  for (auto &[path, weight] : sharing)
    if (llvm::none_of(sharing, [&, path = StringRef(path), weight = StringRef(weight)](auto &other) {
          return other.second == weight && other.first != path && isLaterCall(path, other.first);
        }))
      names.push_back({path + ".weight", weight});
  return names;
}

/// Further names of what has one.
void Decision::nameTied() {
  std::vector<std::pair<std::string, std::string>> found;
  for (auto &s : out_.state_)
    for (const std::string &alias : evidence_.aliasesOf(s.name))
      found.push_back({alias, s.name});
  if (!evidence_.hasFx)
    for (auto &s : sharedByModules(file_))
      found.push_back(s);
  for (const std::string &lost : evidence_.lost()) { // "head.bias" beside "head.decoder.bias"
    std::vector<std::string> of;
    for (auto &s : out_.state_)
      if (parentOf(parentOf(s.name)) == parentOf(lost) && !parentOf(lost).empty() &&
          StringRef(s.name).rsplit('.').second == StringRef(lost).rsplit('.').second)
        of.push_back(s.name);
    if (of.size() == 1 && !claimed_.contains(lost))
      found.push_back({lost, of[0]});
  }
  llvm::sort(found);
  for (auto &[name, of] : found) {
    auto i = stateIndex_.find(of);
    if (i == stateIndex_.end() || stateIndex_.count(name))
      continue;
    StateName s = out_.state_[i->second];
    s.name = name;
    s.isAnother = true;
    stateIndex_[name] = out_.state_.size();
    out_.state_.push_back(std::move(s));
    remark("'" + name + "' is another name of '" + of + "'");
  }
}

void Decision::nameState() {
  for (auto &p : evidence_.placeholders())
    if (p.second.kind != Placeholder::Other && p.second.isPersistent)
      stateTargets_.insert(p.second.target);
  for (Fact &f : facts_)
    if (isInState(f))
      addName(f.source->name, f, writtenParameter(f), Layout::Same);
  for (Fact &f : facts_)
    nameByUses(f);
  for (Fact &f : facts_)
    nameByModules(f);
  for (Fact &f : facts_)
    nameBuffer(f);
  nameTied();
  for (Fact &f : facts_) { // trained, and of no known name
    Parameter *p = out_.use(f.source->name).parameter;
    if (p->role == Parameter::Trained && !hasName_.contains(p))
      addName(f.source->name, f, p, Layout::Same);
  }
  for (auto &t : stateTargets_)
    if (!stateIndex_.count(t.getKey()) && !t.getKey().ends_with("num_batches_tracked")) // load_state_dict does without
      out_.absent_.push_back(t.getKey().str());
  llvm::sort(out_.absent_);
  if (!out_.absent_.empty())
    remark("safetensors files of --export lack what this file does not hold: " + llvm::join(out_.absent_, ", "));
}
