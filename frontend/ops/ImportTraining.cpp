// Operators of ai.onnx.preview.training, and the algorithm of a file that brings one as a function:
//
//   func @algorithm(%d.w : f32[4], %T : i64[]) -> ("w" : f32[4], "T" : i64[])
//
// takes the gradients of the trained parameters, each "d." and its name, and the model's inputs it reads, and returns what the
// named globals become. append-optimizer puts it behind the backward.
#include "frontend/ops/ImportTraining.h"
#include "onnx.pb.h"
#include "llvm/ADT/StringSet.h"

using namespace zcc;
using llvm::StringRef;

namespace {
namespace preview_training_ops {

/// Rate, step and `count` operands in groups that all optimizers take.
struct Step {
  NodeImport &n;
  Val rate, step;
  unsigned count, groups;
  Step(NodeImport &node, unsigned g) : n(node), rate(node.in(0)), step(node.in(1)), groups(g) {
    if (n.inputs() < 2 + groups || (n.inputs() - 2) % groups)
      invalid("a rate, a step and groups of " + llvm::Twine(groups) + " inputs are needed, got " + llvm::Twine(n.inputs()));
    count = (n.inputs() - 2) / groups;
    rate = n.e.reshape(rate, {});
    step = n.e.reshape(step, {});
  }
  const Val &in(unsigned group, unsigned i) const { return n.in(2 + group * count + i); }
  void out(unsigned group, unsigned i, const Val &v) const { n.out(group * count + i, v); }
  /// Whether this is not the first step.
  Val later() const { return n.e(ops::gt, step, n.e.like(0, step)); }
  Val stepAs(const Val &x) const { return n.e.cast(step, x.elem()); }
  Val rateAs(const Val &x) const { return n.e.cast(rate, x.elem()); }
};

Val regularized(Emitter &e, const Val &g, const Val &x, double norm) { return norm == 0 ? g : e.add(e.mul(x, norm), g); }

void adam(NodeImport &n) {
  Emitter &e = n.e;
  Step s(n, 4); // X, G, V, H
  double alpha = n.f("alpha", 0.9), beta = n.f("beta", 0.999), eps = n.f("epsilon", 0), norm = n.f("norm_coefficient", 0),
         post = n.f("norm_coefficient_post", 0);
  for (unsigned i = 0; i < s.count; ++i) {
    Val x = s.in(0, i), g = regularized(e, s.in(1, i), x, norm), r = s.rateAs(x), t = s.stepAs(x);
    Val v = e.add(e.mul(s.in(2, i), alpha), e.mul(g, 1 - alpha));
    Val h = e.add(e.mul(s.in(3, i), beta), e.mul(e.mul(g, g), 1 - beta));
    Val one = e.like(1, x);
    Val decay = e(ops::pow, e.like(alpha, x), t), decay2 = e(ops::pow, e.like(beta, x), t);
    Val corrected = e.div(e.mul(r, e(ops::sqrt, e.sub(one, decay2))), e.sub(one, decay));
    r = e.select(s.later(), corrected, r);
    Val y = e.sub(x, e.div(e.mul(r, v), e.add(e(ops::sqrt, h), eps)));
    s.out(0, i, e.mul(y, 1 - post));
    s.out(1, i, v);
    s.out(2, i, h);
  }
}

void adagrad(NodeImport &n) {
  Emitter &e = n.e;
  Step s(n, 3); // X, G, H
  double decay = n.f("decay_factor", 0), eps = n.f("epsilon", 0), norm = n.f("norm_coefficient", 0);
  for (unsigned i = 0; i < s.count; ++i) {
    const Val &x = s.in(0, i);
    Val g = regularized(e, s.in(1, i), x, norm);
    Val r = e.div(s.rateAs(x), e.add(e.mul(s.stepAs(x), decay), 1));
    Val h = e.add(s.in(2, i), e.mul(g, g));
    s.out(0, i, e.sub(x, e.div(e.mul(r, g), e.add(e(ops::sqrt, h), eps))));
    s.out(1, i, h);
  }
}

void momentum(NodeImport &n) {
  Emitter &e = n.e;
  Step s(n, 3); // X, G, V
  double alpha = n.f("alpha", 0), beta = n.f("beta", 0), norm = n.f("norm_coefficient", 0);
  std::string mode = n.s("mode");
  if (mode != "standard" && mode != "nesterov")
    invalid("mode '" + mode + "' is neither standard nor nesterov");
  for (unsigned i = 0; i < s.count; ++i) {
    const Val &x = s.in(0, i);
    Val g = regularized(e, s.in(1, i), x, norm);
    Val weight = e.select(s.later(), e.like(beta, x), e.like(1, x));
    Val v = e.add(e.mul(s.in(2, i), alpha), e.mul(weight, g));
    Val direction = mode == "nesterov" ? e.add(g, e.mul(v, alpha)) : v;
    s.out(0, i, e.sub(x, e.mul(s.rateAs(x), direction)));
    s.out(1, i, v);
  }
}

void gradient(NodeImport &) { unsupported("a place outside of a training algorithm"); }

const OnnxOp kOps[] = {{"Adam", adam}, {"Adagrad", adagrad}, {"Momentum", momentum}, {"Gradient", gradient}};

} // namespace preview_training_ops
} // namespace

llvm::ArrayRef<OnnxOp> zcc::previewTrainingOps() { return preview_training_ops::kOps; }

// ---- the algorithm

/// Nodes that the updates depend on, in order; not what only the gradients do.
static std::vector<const onnx_pb::NodeProto *> neededBy(const onnx_pb::GraphProto &g, const TrainingAlgorithm &t) {
  llvm::StringSet<> needed;
  for (auto &u : t.updates)
    needed.insert(u.second);
  std::vector<const onnx_pb::NodeProto *> r;
  for (int i = g.node_size() - 1; i >= 0; --i) {
    auto &n = g.node(i);
    if (&n == t.gradient || llvm::none_of(n.output(), [&](auto &o) { return needed.contains(o); }))
      continue;
    for (auto &input : n.input())
      needed.insert(input);
    r.push_back(&n);
  }
  std::reverse(r.begin(), r.end());
  return r;
}

llvm::Error zcc::importAlgorithm(GraphImporter &g, const TrainingAlgorithm &t) {
  for (size_t i = 0; i < t.trained.size(); ++i) {
    ParameterUse u = g.parameters.use(t.trained[i]);
    if (!u.parameter)
      return error("the training algorithm differentiates by '" + t.trained[i] + "', which is no initializer");
    Val p;
    try {
      p = g.valueOf(*u.parameter);
    } catch (const NodeError &e) {
      return error("the training algorithm differentiates by '" + t.trained[i] + "': " + e.what +
                   (e.kind == NodeError::Unsupported ? ", which is not supported" : ""));
    }
    std::string name = "d." + u.parameter->name;
    Value *arg = g.e.fn.addArg(name, p.type);
    if (arg->name != name)
      return error("an input has the name '" + name + "', which zcc needs for itself");
    g.main.values[t.gradient->output(int(i))] = Emitter::of(arg);
  }
  g.addInputs();
  g.importNodes(neededBy(g.file.graph(), t), g.main);
  if (g.problems.any())
    return llvm::Error::success(); // reported for all functions together
  try {
    for (auto &[initializer, result] : t.updates) {
      g.e.loc = makeLoc(initializer);
      ParameterUse u = g.parameters.use(initializer);
      Val was = g.valueOf(*u.parameter), v = g.lookup(result, g.main, nullptr, 0);
      if (v.type != was.type)
        return error("the training algorithm updates '" + initializer + "', which is " + was.type.str() + ", by '" + result +
                     "', which is " + v.type.str());
      g.e.fn.results.push_back(g.e.materialize(v));
      g.e.fn.resultNames.push_back(u.parameter->name);
    }
  } catch (const NodeError &e) {
    return error(e.what);
  }
  llvm::erase_if(g.e.fn.args, [](auto &a) { return !a->hasUses() && !StringRef(a->name).starts_with("d."); });
  for (unsigned i = 0; i < g.e.fn.args.size(); ++i)
    g.e.fn.args[i]->index = i;
  return llvm::Error::success();
}

// ---- the initialization

/// The numbers that a node draws, if it is one that only draws.
static std::optional<Init> drawnBy(const onnx_pb::NodeProto &n) {
  StringRef op = n.op_type();
  auto attr = [&](StringRef name, double otherwise) {
    for (auto &a : n.attribute())
      if (a.name() == name)
        return double(a.f());
    return otherwise;
  };
  Init init;
  if (op == "RandomNormal" || op == "RandomNormalLike") {
    init.kind = Init::Normal;
    init.a = attr("mean", 0);
    init.b = attr("scale", 1);
  } else if (op == "RandomUniform" || op == "RandomUniformLike") {
    init.kind = Init::Uniform;
    init.a = attr("low", 0);
    init.b = attr("high", 1);
  } else {
    return std::nullopt;
  }
  return init;
}

llvm::Expected<std::vector<InitialValue>> zcc::initialValues(GraphImporter &g) {
  std::vector<InitialValue> r;
  auto &info = g.file.model().training_info(0);
  if (!info.initialization_binding_size())
    return r;
  try {
    Scope scope;
    scope.opset = g.main.opset;
    Vals outputs = g.importSubgraph(info.initialization(), {}, scope);
    for (auto &b : info.initialization_binding()) {
      const Initializer *target = g.file.initializer(b.key());
      if (!target)
        return error("the initialization sets '" + b.key() + "', which is no initializer");
      InitialValue v;
      v.initializer = b.key();
      for (auto &n : info.initialization().node())
        if (llvm::is_contained(n.output(), b.value()))
          v.drawn = drawnBy(n);
      Val known;
      for (int i = 0; i < info.initialization().output_size(); ++i)
        if (info.initialization().output(i).name() == b.value())
          known = outputs[i];
      if (!known)
        return error("the initialization has no output '" + b.value() + "'");
      if (known.type != target->type())
        return error("the initialization gives '" + b.key() + "', which is " + target->type().str() + ", " + known.type.str());
      if (const Tensor *t = Emitter::tensorOf(known))
        v.bytes = tensorToBytes(*t);
      else if (!v.drawn)
        return error("the initialization computes '" + b.key() +
                     "' from random numbers, which is not supported; draws themselves are");
      r.push_back(std::move(v));
    }
  } catch (const NodeError &e) {
    if (g.problems.any())
      return g.problems.take(g.file.name);
    return error(e.what);
  }
  return r;
}
