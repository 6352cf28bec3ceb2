// What the exporter lost or changed: warnings by name, with the export line that avoids it.
#include "frontend/parameters/Decision.h"
#include "frontend/parameters/InputRoles.h"
#include "frontend/parameters/Parts.h"
#include "onnx.pb.h"
#include "llvm/ADT/StringExtras.h"
#include <functional>
#include <memory>

using namespace zcc;
using llvm::StringRef;

std::string zcc::exportHint() {
  return "export with torch.onnx.export(..., dynamo=True, optimize=False), or with dynamo=False, "
         "do_constant_folding=False, training=torch.onnx.TrainingMode.TRAINING";
}

/// "3 parameters of the model are".
static std::string parametersAre(size_t n) {
  return n == 1 ? "1 parameter of the model is" : std::to_string(n) + " parameters of the model are";
}

/// Whether a submodule of its module has a parameter of the same last name: "head.bias" beside
/// "head.decoder.bias".
bool Decision::isAliasOf(StringRef parameter) const {
  auto [module, leaf] = parameter.rsplit('.');
  for (const Fact &f : facts_) {
    StringRef name = f.source->name;
    if (name.starts_with((module + ".").str()) && name.ends_with(("." + leaf).str()) && name != parameter)
      return true;
  }
  return false;
}

/// Warns of Tensor.detach that the exporter's optimiser dropped as an identity: other nodes' metadata still name it.
void Decision::warnAboutDetach() {
  llvm::StringSet<> made, dropped;
  for (auto &n : file_.graph().node())
    for (auto &o : n.output())
      made.insert(o);
  auto isDropped = [&](StringRef name) {
    StringRef rest = name;
    return rest.consume_front("detach") && (rest.empty() || rest.front() == '_') &&
           llvm::all_of(rest.ltrim('_'), llvm::isDigit) && !made.contains(name);
  };
  std::string first;
  for (auto &n : file_.graph().node())
    if (auto fx = fxNodeOf(n))
      for (const std::string &name : fx->names)
        if (isDropped(name) && dropped.insert(name).second && first.empty())
          first = n.name();
  if (!dropped.empty())
    warn("the exporter dropped " + std::to_string(dropped.size()) + " Tensor.detach (first before '" + first +
         "'), so that gradients flow where PyTorch stops them; export with "
         "torch.onnx.export(..., dynamo=True, optimize=False)");
}

/// What the exporter's optimizer folded of parameters that are used elsewhere, too, and of which several places in parameters
/// hold the values.
void Decision::findParts() {
  for (Fact &f : facts_) {
    bool mayBePart = f.isOpen || (f.isAnonymous && f.source->count() > 1 && isCalledMoved(f.source->name));
    if (!mayBePart || f.role != Parameter::Constant)
      continue;
    Part part(file_, *f.source);
    auto whole = llvm::find_if(facts_, [&](const Fact &g) {
      return g.role == Parameter::Trained && !g.isAnonymous && !part.arrangementsIn(*g.source).empty();
    });
    if (whole == facts_.end())
      continue;
    f.isOpen = false; // stands for nothing else
    f.evidence = "values of " + whole->source->name;
    parts_.push_back({f.source, whole->source});
  }
}

void Decision::warnAboutParts() {
  for (auto [part, whole] : parts_)
    if (out_.use(part->name).parameter->role == Parameter::Constant &&
        out_.use(whole->name).parameter->role == Parameter::Trained)
      warn(part->described() + " has values of '" + whole->name + "', and stays as it is while that is trained; " + exportHint());
}

/// Whether the exporter computed the number from a parameter of the module that uses it: exp(logit_scale).
bool Decision::isFoldedNumber(const Fact &f) const {
  StringRef base = StringRef(f.source->name).rtrim("0123456789");
  base.consume_back("_");
  static const llvm::StringSet<> made{"zeros", "ones",       "full",      "arange",   "scalar_tensor",
                                      "empty", "zeros_like", "ones_like", "full_like"};
  if (f.role != Parameter::Constant || !f.isAnonymous || f.source->count() != 1 || !f.source->elem || !isFloat(*f.source->elem) ||
      made.contains(base))
    return false;
  return llvm::any_of(evidence_.uses(f.source->name), [&](auto &u) {
    auto fx = fxNodeOf(*u.node);
    return fx && llvm::is_contained(fx->names, f.source->name) && // a result of the program's
           !evidence_.lostNear(u, Evidence::Near::SameModule).empty();
  });
}

/// Whether a node of a lost parameter's module reads a sum or a product that is not in the file: the exporter drops factors
/// that are 1 and addends that are 0, as exp(-w) and w are where w starts with zeros.
bool Decision::readsDropped(const onnx_pb::NodeProto &n) const {
  auto fx = fxNodeOf(n);
  return fx && !evidence_.lostNear({&n, 0}, Evidence::Near::SameModule).empty() && llvm::any_of(fx->names, [&](StringRef name) {
           StringRef base = name.rtrim("0123456789");
           base.consume_back("_");
           return llvm::is_contained({"mul", "div", "add", "sub"}, base) &&
                  llvm::none_of(file_.graph().node(), [&](auto &m) { return llvm::is_contained(m.output(), name.str()); });
         });
}

/// "'node_conv2d_3' in 'layer1.0.conv1'".
static std::string quoted(const onnx_pb::NodeProto &n) {
  auto scope = scopeOf(n);
  return "'" + n.name() + (scope && !scope->empty() ? "' in '" + *scope + "'" : "'");
}

void Decision::warnAboutFolded(llvm::ArrayRef<std::string> layers, const std::string &more) {
  if (!layers.empty())
    warn("BatchNormalization is folded into " + std::to_string(layers.size()) +
         (layers.size() == 1 ? " layer (" : " layers (first ") + layers[0] +
         "): the batch's statistics cannot be used and its own parameters are gone" + more + "; " + exportHint());
}

/// Results and lifted tensors that stand for parameters, as far as they are trained, and numbers that may be made of the
/// same parameters.
void Decision::warnAboutComputed() {
  auto isTrained = [&](const Initializer &t) { return out_.use(t.name).parameter->role == Parameter::Trained; };
  std::vector<std::string> computed, numbers, lifted;
  for (auto &[source, what] : computed_)
    if (isTrained(*source))
      computed.push_back(source->described() + " from " + what);
  for (const Fact &f : facts_) {
    if (isFoldedNumber(f) && !isTrained(*f.source)) {
      std::vector<std::string> from = evidence_.lostNear(evidence_.uses(f.source->name)[0], Evidence::Near::SameModule);
      llvm::erase_if(from, [&](const std::string &p) { return !claimed_.contains(p); });
      if (!from.empty())
        numbers.push_back(f.source->described() + " from " + listed(from));
    }
    if (evidence_.liftsParameters && train_.empty() && isTrained(*f.source))
      lifted.push_back(f.source->described());
  }
  if (!lifted.empty())
    warn("the file's parameters are tensors that the exporter lifted out of the program; which of them it trains is not told, "
         "and these are trained: " +
         listed(lifted) + "; --freeze=REGEX keeps what is not (averages of a normalization)");
  if (!computed.empty())
    warn("what the exporter computed from parameters is trained and exported in their place: " + listed(computed) + "; " +
         exportHint());
  if (!numbers.empty())
    warn("numbers that may be computed from parameters stay as they are: " + listed(numbers) + "; " + exportHint());
}

namespace {
/// What nodes and the graphs in them multiply by and hold as Constant nodes or, where they are not the main graph's, as
/// initializers.
struct HiddenWeights {
  using Tensors = llvm::StringMap<std::shared_ptr<const Initializer>>;
  const OnnxFile &file;
  std::function<bool(const Initializer &, const InitializerUse &)> isLikeWeight;
  std::vector<std::string> found;

  /// `tensors`: those of the graphs around the nodes.
  void find(const google::protobuf::RepeatedPtrField<onnx_pb::NodeProto> &nodes, const std::string &where, Tensors tensors) {
    for (auto &n : nodes) {
      for (auto &a : n.attribute()) {
        if (n.op_type() == "Constant" && a.has_t() && n.output_size() == 1)
          add(tensors, a.t(), n.output(0));
        if (!a.has_g())
          continue;
        auto inner = tensors;
        for (auto &t : a.g().initializer())
          add(inner, t, t.name());
        find(a.g().node(), " in a body of " + n.op_type() + (n.name().empty() ? "" : " '" + n.name() + "'"), inner);
      }
      for (int i = 0; i < n.input_size(); ++i)
        if (auto t = tensors.lookup(n.input(i)); t && isLikeWeight(*t, {&n, unsigned(i)}))
          if (std::string text = t->described() + where; !llvm::is_contained(found, text))
            found.push_back(text);
    }
  }

  void add(Tensors &to, const onnx_pb::TensorProto &proto, const std::string &name) const {
    auto t = file.tensor(proto);
    if (!t)
      return llvm::consumeError(t.takeError()); // reported where the node is imported
    t->name = name;                             // a Constant node's tensor has none
    to[name] = std::make_shared<const Initializer>(std::move(*t));
  }
};
} // namespace

/// Whether a use multiplies by a tensor as layers do by their weights, and its values are no mask's.
bool Decision::isLikeWeight(const Initializer &t, const InitializerUse &use) const {
  StringRef op = use.node->op_type();
  bool isMatrix = llvm::count_if(t.dims, [](int64_t d) { return d > 1; }) > 1;
  bool multiplies = roleOf(use) == InputRole::Weight || (use.index == 1 && (op == "MatMul" || op == "Gemm"));
  return isMatrix && multiplies && t.elem && isFloat(*t.elem) && !isMask(t) && !hasFewValues(t) &&
         sinusoidal(t) == Likeness::None;
}

void Decision::warnAboutHidden() {
  HiddenWeights hidden{file_, [&](const Initializer &t, const InitializerUse &u) { return isLikeWeight(t, u); }, {}};
  hidden.find(file_.graph().node(), /*where=*/"", {});
  for (auto &f : file_.model().functions())
    hidden.find(f.node(), " in function '" + f.name() + "'", {});
  const size_t n = hidden.found.size();
  if (n > 0)
    warn(listed(hidden.found) +
         (n == 1 ? " multiplies as a weight does and stays as it is" : " multiply as weights do and stay as they are") +
         ": only initializers of the main graph are trained, neither Constant nodes nor what bodies and functions hold");
}

void Decision::warnAboutLosses() {
  warnAboutHidden();
  warnAboutTorchScript();
  if (!evidence_.hasFx)
    return;
  warnAboutDetach();
  if (!file_.unfolded.empty())
    remark("the exporter folded slices and other forms of parameters; they are computed from them again: " +
           listed(file_.unfolded));
  warnAboutParts();
  warnAboutComputed();
  llvm::StringSet<> have;
  for (auto &p : out_.all_)
    have.insert(p->name);
  for (Fact &f : facts_)
    for (const std::string &m : f.meanings)
      have.insert(m);
  std::vector<std::string> folded, dropped;
  for (auto &n : file_.graph().node()) {
    auto fx = fxNodeOf(n);
    if (!fx)
      continue;
    bool isLayer = StringRef(n.op_type()).starts_with("Conv") || n.op_type() == "Gemm";
    bool isFold = isLayer && StringRef(fx->target).contains("batch_norm");
    if (isFold && !llvm::is_contained(folded, quoted(n)))
      folded.push_back(quoted(n));
    if (isFold)
      continue;
    for (const std::string &p : evidence_.parametersOf(*fx))
      if (!have.contains(p) && !llvm::is_contained(dropped, p))
        dropped.push_back(p);
  }
  warnAboutFolded(folded);
  // What was merged with an equal computation leaves no trace but its name among the program's
  // inputs.
  std::vector<std::string> merged;
  for (const std::string &p : evidence_.lost())
    if (!claimed_.contains(p) && !have.contains(p) && !isAliasOf(p))
      merged.push_back(p);
  std::vector<std::string> fixed, matrices; // that may be computed from them, or from what is still there
  for (const Fact &f : facts_)
    if (f.isOpen && evidence_.isResult(f.source->name) && out_.use(f.source->name).parameter->role == Parameter::Constant) {
      fixed.push_back(f.source->described());
      if (isComputedMatrix(f))
        matrices.push_back(f.source->described());
    }
  if (merged.empty() && !matrices.empty())
    warn(listed(matrices) +
         (matrices.size() == 1 ? " is multiplied by as weights are, and was" : " are multiplied by as weights are, and were") +
         " computed by the exporter; of parameters that went in, this part of the gradient is lost; " + exportHint());
  bool mayBeMissed = !out_.splits_.empty() || !dropped.empty() || !fixed.empty() || evidence_.liftsParameters ||
                     llvm::any_of(facts_, [&](const Fact &f) { return isFoldedNumber(f); }) ||
                     llvm::any_of(file_.graph().node(), [&](auto &n) { return readsDropped(n); });
  if (!merged.empty() && mayBeMissed)
    warn(parametersAre(merged.size()) +
         " not in the file, unused, folded into a constant or merged with "
         "equal ones: " +
         listed(merged) + (fixed.empty() ? "" : "; what is computed from them stays as it is, if it is " + listed(fixed)) + "; " +
         exportHint());
  else if (!merged.empty())
    remark("not in the file, unused or another name of a shared one: " + llvm::join(merged, ", "));
  // Weights that went into LSTM's packed form are still there, under other names.
  bool packed = llvm::any_of(file_.graph().node(),
                             [](auto &n) { return n.op_type() == "LSTM" || n.op_type() == "GRU" || n.op_type() == "RNN"; });
  if (!dropped.empty() && !packed)
    warn(parametersAre(dropped.size()) +
         " not in the file (the exporter drops what is all "
         "zeros, for example) and are not trained: " +
         listed(dropped) + "; " + exportHint());
}
