// What training adds to the messages of a file, before anything is imported.
#include "frontend/onnx/TrainingGraph.h"
#include "frontend/onnx/OnnxFile.h"
#include "onnx.pb.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSet.h"

using namespace zcc;
using llvm::StringRef;

bool TrainingAlgorithm::updatesInitializer(StringRef name) const {
  return llvm::any_of(updates, [&](auto &u) { return u.first == name; });
}

// ---- TrainingInfoProto

static std::vector<std::string> strings(const onnx_pb::NodeProto &n, StringRef name) {
  for (auto &a : n.attribute())
    if (a.name() == name)
      return {a.strings().begin(), a.strings().end()};
  return {};
}

static std::string string(const onnx_pb::NodeProto &n, StringRef name) {
  for (auto &a : n.attribute())
    if (a.name() == name)
      return a.s();
  return "";
}

/// What the Gradient node and the bindings say.
static llvm::Error readAlgorithm(const onnx_pb::ModelProto &model, TrainingAlgorithm &t) {
  auto &g = model.graph();
  for (auto &n : g.node()) {
    if (n.op_type() != "Gradient" || n.domain() != "ai.onnx.preview.training")
      continue;
    if (t.gradient)
      return error("the training algorithm has several Gradient nodes, which is not supported; "
                   "--optimizer=NAME trains without it");
    t.gradient = &n;
    t.loss = string(n, "y");
    t.trained = strings(n, "xs");
    if (int(t.trained.size()) > n.output_size() || int(t.trained.size()) > n.input_size())
      return error("Gradient has " + llvm::Twine(t.trained.size()) + " xs, " + llvm::Twine(n.input_size()) + " inputs and " +
                   llvm::Twine(n.output_size()) + " outputs");
  }
  if (!t.gradient)
    return error("the training algorithm has no Gradient node; --optimizer=NAME trains without it");
  llvm::StringSet<> initializers;
  for (auto &i : g.initializer())
    initializers.insert(i.name());
  for (auto &b : model.training_info(0).update_binding()) {
    if (!initializers.contains(b.key()))
      return error("the training algorithm updates '" + b.key() + "', which is no initializer");
    if (t.updatesInitializer(b.key()))
      return error("the training algorithm updates '" + b.key() + "' twice");
    t.updates.emplace_back(b.key(), b.value());
  }
  for (const std::string &x : t.trained)
    if (!t.updatesInitializer(x))
      return error("the training algorithm differentiates by '" + x + "', which it does not update; that is not supported");
  return llvm::Error::success();
}

llvm::Expected<std::optional<TrainingAlgorithm>> zcc::appendAlgorithm(onnx_pb::ModelProto &model) {
  if (!model.training_info_size())
    return std::nullopt;
  if (model.training_info_size() > 1)
    return error("the model has " + llvm::Twine(model.training_info_size()) +
                 " training stages, one is supported; --optimizer=NAME trains without them");
  auto &from = model.training_info(0).algorithm();
  auto &g = *model.mutable_graph();
  if (!from.node_size() && !model.training_info(0).update_binding_size())
    return std::nullopt;
  TrainingAlgorithm t;
  t.firstNode = g.node_size();
  t.firstInput = g.input_size();
  t.firstOutput = g.output_size();
  t.firstInitializer = g.initializer_size();
  g.mutable_node()->MergeFrom(from.node());
  g.mutable_input()->MergeFrom(from.input());
  g.mutable_initializer()->MergeFrom(from.initializer());
  if (auto e = readAlgorithm(model, t))
    return e;
  if (llvm::none_of(g.output(), [&](auto &o) { return o.name() == t.loss; }))
    g.add_output()->set_name(t.loss);
  return t;
}

// ---- ONNX Runtime's training graphs

/// Operators of com.microsoft that take part in a step behind the backward.
static bool endsStep(const onnx_pb::NodeProto &n) {
  static const llvm::StringSet<> names{"InPlaceAccumulator", "InPlaceAccumulatorV2", "GradientAccumulator", "ZeroGradient",
                                       "AdamOptimizer",      "AdamWOptimizer",       "SGDOptimizer",        "SGDOptimizerV2",
                                       "LambOptimizer",      "ReduceAllL2",          "MixedPrecisionScale", "GroupAccumulator"};
  return n.domain() == "com.microsoft" && names.contains(n.op_type());
}

/// Operators that compute gradients: SoftmaxCrossEntropyLossGrad, LayerNormalizationGrad...
static bool isGradient(const onnx_pb::NodeProto &n) {
  return n.domain() == "com.microsoft" && StringRef(n.op_type()).ends_with("Grad");
}

std::vector<std::string> zcc::keepForward(onnx_pb::ModelProto &model) {
  auto &g = *model.mutable_graph();
  if (llvm::none_of(g.node(), [](auto &n) { return endsStep(n) || isGradient(n); }))
    return {};
  // Everything behind a gradient operator is backward; before the first one is forward.
  llvm::StringSet<> backward;
  for (auto &n : g.node()) {
    bool behind = endsStep(n) || isGradient(n) || llvm::any_of(n.input(), [&](auto &i) { return backward.contains(i); });
    if (behind)
      for (auto &o : n.output())
        backward.insert(o);
  }
  auto *outputs = g.mutable_output();
  for (int i = outputs->size() - 1; i >= 0; --i)
    if (backward.contains(outputs->Get(i).name()))
      outputs->DeleteSubrange(i, 1);
  // A parameter is an input whose gradient has a buffer among the inputs.
  llvm::StringSet<> names;
  for (auto &i : g.input())
    names.insert(i.name());
  std::vector<std::string> parameters;
  auto *inputs = g.mutable_input();
  for (int i = inputs->size() - 1; i >= 0; --i) {
    auto &input = inputs->Get(i);
    StringRef name = input.name();
    bool isBuffer = name.ends_with("_grad.accumulation.buffer") || name == "lazy_reset_grad";
    bool isParameter = names.contains((name + "_grad.accumulation.buffer").str());
    if (isParameter) {
      auto *t = g.add_initializer();
      t->set_name(name.str());
      t->set_data_type(input.type().tensor_type().elem_type());
      for (auto &d : input.type().tensor_type().shape().dim())
        t->add_dims(d.dim_value());
      t->set_data_location(onnx_pb::TensorProto::EXTERNAL);
      auto *where = t->add_external_data();
      where->set_key("location");
      where->set_value("checkpoint of ONNX Runtime");
      parameters.push_back(name.str());
    }
    if (isParameter || isBuffer)
      inputs->DeleteSubrange(i, 1);
  }
  std::reverse(parameters.begin(), parameters.end());
  return parameters;
}
