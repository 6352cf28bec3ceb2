// Reads the exporter's metadata: which argument of the FX node an ONNX input stands for, and which parameters are gone.
#include "frontend/parameters/Evidence.h"
#include "onnx.pb.h"
#include "llvm/ADT/StringExtras.h"

using namespace zcc;
using llvm::StringRef;

Evidence::Evidence(const OnnxFile &f) : file(f) {
  auto &g = f.graph();
  placeholders_ = placeholdersOf(g);
  liftsParameters = takeLifted(g);
  for (auto &p : placeholders_)
    kinds_[p.second.target] = p.second.kind;
  llvm::StringSet<> aliases;
  collect(g, /*hidden=*/{}, aliases);
  std::vector<std::string> targets;
  for (auto &p : placeholders_)
    if (p.second.kind == Placeholder::Parameter && !mentioned_.contains(p.second.target) && !aliases.contains(p.second.target) &&
        !f.initializer(p.second.target))
      targets.push_back(p.second.target);
  for (auto &a : aliases_) // what is used under its own name is another parameter
    llvm::erase_if(a.second, [&](const std::string &alias) { return mentioned_.contains(alias); });
  llvm::sort(targets);
  lost_ = std::move(targets);
}

/// Whether a program that has parameters reads none of them, but tensors that were lifted out of it: Keras' variables are
/// neither parameters nor buffers of what it hands to PyTorch's exporter. The tensors are the parameters then.
bool Evidence::takeLifted(const onnx_pb::GraphProto &g) {
  auto has = [&](Placeholder::Kind kind) { return llvm::any_of(placeholders_, [&](auto &p) { return p.second.kind == kind; }); };
  if (!has(Placeholder::Parameter) || !has(Placeholder::Tensor))
    return false;
  bool readsTensors = false;
  for (auto &n : g.node())
    if (auto fx = fxNodeOf(n))
      for (const std::string &name : fx->names) {
        auto p = placeholders_.find(name);
        if (p == placeholders_.end())
          continue;
        if (p->second.kind == Placeholder::Parameter)
          return false;
        readsTensors |= p->second.kind == Placeholder::Tensor;
      }
  if (!readsTensors)
    return false;
  for (auto &p : placeholders_) {
    Placeholder::Kind &kind = p.second.kind;
    if (kind == Placeholder::Parameter)
      kind = Placeholder::Other;
    else if (kind == Placeholder::Tensor)
      kind = Placeholder::Parameter;
  }
  return true;
}

/// Adds what the nodes of a graph and of its subgraphs read. `hidden`: names that are not the main graph's there;
/// `aliases`: a module's own names for parameters that it shares with others.
void Evidence::collect(const onnx_pb::GraphProto &g, const llvm::StringSet<> &hidden, llvm::StringSet<> &aliases) {
  for (auto &n : g.node()) {
    for (int i = 0; i < n.input_size(); ++i)
      if (!hidden.contains(n.input(i)) && file.initializer(n.input(i)))
        uses_[n.input(i)].push_back({&n, unsigned(i)});
    for (auto &a : n.attribute())
      if (a.has_g())
        collectBody(n, a.g(), hidden, aliases);
    auto fx = fxNodeOf(n);
    if (!fx)
      continue;
    hasFx = true;
    std::string scope = scopeOf(n).value_or("");
    for (const std::string &name : fx->names)
      if (std::string t = targetOf(name); !t.empty()) {
        mentioned_.insert(t);
        std::string alias = scope + "." + StringRef(t).rsplit('.').second.str();
        aliases.insert(alias);
        // Only a name of the program: a module may also compute with another's parameter.
        if (alias != t && kindOf(alias) == Placeholder::Parameter && !llvm::is_contained(aliases_[t], alias))
          aliases_[t].push_back(alias);
      }
  }
}

/// The same for the subgraph of `owner`, whose own names hide the main graph's.
void Evidence::collectBody(const onnx_pb::NodeProto &owner, const onnx_pb::GraphProto &g, llvm::StringSet<> hidden,
                           llvm::StringSet<> &aliases) {
  for (auto &i : g.input())
    hidden.insert(i.name());
  for (auto &t : g.initializer())
    hidden.insert(t.name());
  for (auto &n : g.node())
    for (auto &o : n.output())
      hidden.insert(o);
  collect(g, hidden, aliases);
  for (auto &o : g.output()) // may be an initializer of the main graph itself
    if (!hidden.contains(o.name()) && file.initializer(o.name()))
      uses_[o.name()].push_back({&owner, unsigned(owner.input_size())});
}

const std::vector<InitializerUse> &Evidence::uses(StringRef initializer) const {
  static const std::vector<InitializerUse> none;
  auto i = uses_.find(initializer);
  return i == uses_.end() ? none : i->second;
}

llvm::ArrayRef<std::string> Evidence::aliasesOf(StringRef parameter) const {
  auto i = aliases_.find(parameter);
  if (i == aliases_.end())
    return {};
  return i->second;
}

Placeholder::Kind Evidence::kindOf(StringRef initializer) const {
  auto i = kinds_.find(initializer);
  return i == kinds_.end() ? Placeholder::Other : i->second;
}

/// The parameter behind "p_model_fc_weight"; without a signature, the initializer whose name reads
/// so.
std::string Evidence::targetOf(StringRef placeholder) const {
  auto i = placeholders_.find(placeholder);
  if (i != placeholders_.end())
    return i->second.kind == Placeholder::Parameter ? i->second.target : "";
  if (!placeholders_.empty() || !placeholder.starts_with("p_"))
    return "";
  for (const Initializer &t : file.initializers) {
    std::string flat = "p_" + t.name;
    std::replace(flat.begin(), flat.end(), '.', '_');
    if (flat == placeholder)
      return t.name;
  }
  return placeholder.drop_front(2).str();
}

// ---- which argument an input stands for

namespace {
/// Where an FX operator takes its weight and bias, and the ONNX operators that its decomposition
/// reads them with.
struct Signature {
  const char *target; ///< prefix
  int weight, bias;   ///< argument numbers; -1: none
  const char *weightOps, *biasOps;
};
const Signature kSignatures[] = {
    {"aten.linear.", 1, 2, "MatMul Gemm Transpose", "Add Gemm"},
    {"aten.addmm.", 2, 0, "Gemm MatMul Transpose", "Gemm Add"},
    {"aten.conv", 1, 2, "Conv ConvTranspose", "Conv ConvTranspose"},
    {"aten.layer_norm.", 2, 3, "LayerNormalization Mul", "LayerNormalization Add"},
    {"aten.native_layer_norm.", 2, 3, "LayerNormalization Mul", "LayerNormalization Add"},
    {"aten.rms_norm.", 2, -1, "RMSNormalization Mul", ""},
    {"aten.group_norm.", 2, 3, "Mul GroupNormalization", "Add GroupNormalization"},
    {"aten.native_group_norm.", 1, 2, "Mul GroupNormalization", "Add GroupNormalization"},
    {"aten.instance_norm.", 1, 2, "InstanceNormalization Mul", "InstanceNormalization Add"},
    {"aten._native_batch_norm", 1, 2, "BatchNormalization", "BatchNormalization"},
    {"aten.native_batch_norm", 1, 2, "BatchNormalization", "BatchNormalization"},
    {"aten.batch_norm.", 1, 2, "BatchNormalization", "BatchNormalization"},
    {"aten.embedding.", 0, -1, "Gather", ""},
    {"aten.prelu.", 1, -1, "PRelu", ""},
};

bool isAmong(const char *ops, StringRef op) {
  llvm::SmallVector<StringRef, 4> words;
  StringRef(ops).split(words, ' ');
  return llvm::is_contained(words, op);
}

/// Of an operator's arguments the weight or the bias that a use stands for; -1: neither.
int argumentOf(const Signature &s, const InitializerUse &use) {
  StringRef op = use.node->op_type();
  // The place comes before the name: of a weight and a bias that began equal the file has one.
  bool isBias = isAmong(s.biasOps, op) && (use.index == 2 || !isAmong(s.weightOps, op));
  return isBias ? s.bias : isAmong(s.weightOps, op) ? s.weight : -1;
}

} // namespace

/// Whether an initializer could be this parameter: if the file has the parameter too, the values
/// must have its shape, transposed or with axes of 1.
static bool couldBe(const OnnxFile &file, const Initializer &t, const std::string &parameter) {
  const Initializer *own = file.initializer(parameter);
  return !own || own == &t || own->count() == t.count();
}

std::vector<std::string> Evidence::parametersOf(const FxNode &fx) const {
  std::vector<std::string> r;
  for (const std::string &name : fx.names)
    if (std::string p = targetOf(name); !p.empty() && !llvm::is_contained(r, p))
      r.push_back(p);
  return r;
}

std::optional<std::string> Evidence::parameterOf(const Initializer &t, const InitializerUse &use) const {
  auto fx = fxNodeOf(*use.node);
  if (!fx)
    return std::nullopt;
  std::vector<std::string> parameters = parametersOf(*fx);
  std::optional<std::string> own;
  if (llvm::is_contained(parameters, t.name))
    own = t.name;
  auto argument = [&](int i) -> std::optional<std::string> {
    if (i < 0 || size_t(i) >= fx->args.size() || !StringRef(fx->args[i]).starts_with("%"))
      return std::nullopt;
    std::string p = targetOf(StringRef(fx->args[i]).drop_front());
    return !p.empty() && couldBe(file, t, p) ? std::optional(p) : std::nullopt;
  };
  StringRef op = use.node->op_type();
  if (op == "BatchNormalization" && use.index >= 3)
    return std::nullopt; // statistics, whatever was merged with them
  bool isData = use.index == 0 && op != "Mul" && op != "Add" && op != "Transpose" && op != "Gather";
  for (const Signature &s : kSignatures) {
    if (!StringRef(fx->target).starts_with(s.target))
      continue;
    if (own && isData)
      return own;
    auto p = argument(argumentOf(s, use));
    return own && (!p || file.initializer(*p)) ? own : p;
  }
  if (own)
    return own;
  // What the node reads beside a parameter, such as a mask that was computed while exporting.
  if (llvm::is_contained(fx->names, t.name) && targetOf(t.name).empty())
    return std::nullopt;
  // Another operator: if it reads one parameter, that one, unless it is only a number.
  bool reads = op == "GatherND" || op == "Gather" || op == "MatMul" || op == "Mul" || op == "Add" || op == "Sub" || op == "Div" ||
               op == "Reshape" || op == "Transpose" || op == "Einsum" || op == "Expand";
  if (parameters.size() == 1 && reads && t.count() > 1 && couldBe(file, t, parameters[0]))
    return parameters[0];
  return std::nullopt;
}

/// Whether an FX value is a tensor of equal numbers, by what its name says made it.
static bool isFilled(StringRef name) {
  StringRef base = name.rtrim("0123456789");
  base.consume_back("_");
  base.consume_front("new_");
  base.consume_back("_like");
  return base == "ones" || base == "zeros" || base == "full";
}

bool Evidence::isNumbers(const InitializerUse &use) const {
  auto fx = fxNodeOf(*use.node);
  if (!fx || !parametersOf(*fx).empty())
    return false;
  for (const Signature &s : kSignatures)
    if (StringRef(fx->target).starts_with(s.target)) {
      const int i = StringRef(fx->target).contains("_norm") && use.index > 0 ? argumentOf(s, use) : -1;
      return i >= 0 && (size_t(i) >= fx->args.size() || fx->args[i] == "None");
    }
  return llvm::any_of(fx->names, isFilled);
}

/// The buffer that is argument `i`; "" if it is none.
std::string Evidence::bufferAt(const FxNode &fx, size_t i) const {
  StringRef argument = i < fx.args.size() ? StringRef(fx.args[i]) : StringRef();
  if (!argument.consume_front("%"))
    return "";
  auto p = placeholders_.find(argument);
  return p != placeholders_.end() && p->second.kind == Placeholder::Buffer ? p->second.target : "";
}

std::string Evidence::bufferOf(const InitializerUse &use) const {
  auto fx = fxNodeOf(*use.node);
  StringRef op = use.node->op_type();
  if (fx && op == "BatchNormalization")
    return use.index >= 3 && StringRef(fx->target).contains("batch_norm") ? bufferAt(*fx, use.index) : "";
  bool readsRows = use.index == 0 && (op == "Gather" || op == "GatherND");
  if (!fx || !(readsRows || op == "Mul" || op == "Add" || op == "Sub" || op == "Div"))
    return "";
  std::string buffer;
  for (const std::string &name : fx->names) {
    auto i = placeholders_.find(name);
    if (i == placeholders_.end() || i->second.kind == Placeholder::Other)
      continue;
    if (i->second.kind != Placeholder::Buffer || !buffer.empty())
      return ""; // which of them?
    buffer = i->second.target;
  }
  return buffer;
}

bool Evidence::isResult(StringRef initializer) const {
  return llvm::any_of(uses(initializer), [&](const InitializerUse &u) {
    auto fx = fxNodeOf(*u.node);
    return fx && llvm::is_contained(fx->names, initializer);
  });
}

/// The module of a parameter: "net.fc" of "net.fc.weight", and of what a parametrization computes its weight from
/// (torch.nn.utils.parametrize): "net.fc.parametrizations.weight.original0".
static StringRef moduleOf(StringRef parameter) {
  if (parameter.starts_with("parametrizations."))
    return "";
  if (size_t at = parameter.find(".parametrizations."); at != StringRef::npos)
    return parameter.take_front(at);
  return parentOf(parameter);
}

std::vector<std::string> Evidence::lostNear(const InitializerUse &use, Near near) const {
  auto scope = scopeOf(*use.node);
  if (!scope)
    return {};
  auto isNear = [&](StringRef module) {
    switch (near) {
    case Near::SameModule:
      return module == *scope;
    case Near::Parent:
      return !module.empty() && parentOf(module) == *scope;
    case Near::Within:
      return scope->empty() || module.starts_with(*scope + ".");
    }
    llvm_unreachable("all are listed");
  };
  std::vector<std::string> r;
  llvm::copy_if(lost_, std::back_inserter(r), [&](StringRef p) { return isNear(moduleOf(p)); });
  return r;
}
