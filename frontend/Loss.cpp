// Parses --loss and builds the loss on the model's outputs.
#include "frontend/Loss.h"
#include "frontend/CallText.h"
#include "onnx.pb.h"
#include "llvm/ADT/StringExtras.h"

using namespace zcc;
using llvm::StringRef;

// ---- the option

namespace {
struct LossName {
  const char *name;
  LossSpec::Kind kind;
  std::vector<std::string> options;
};
} // namespace

static const std::vector<LossName> &knownLosses() {
  static const std::vector<std::string> classes{"axis", "ignore_index", "label_smoothing", "reduction"};
  static const std::vector<LossName> known{{"cross_entropy", LossSpec::CrossEntropy, classes},
                                           {"cross_entropy_shifted", LossSpec::CrossEntropyShifted, classes},
                                           {"mse", LossSpec::MeanSquare, {"reduction"}},
                                           {"bce_with_logits", LossSpec::BinaryCrossEntropy, {"reduction"}}};
  return known;
}

static llvm::Error readOption(LossSpec &spec, const LossName &loss, StringRef key, StringRef value) {
  auto bad = [&] { return error("--loss: bad value '" + value + "' of '" + key + "'"); };
  if (!llvm::is_contained(loss.options, key))
    return error("--loss: '" + llvm::Twine(loss.name) + "' has no argument '" + key + "'" + suggestionOf(key, loss.options));
  if (key == "axis") {
    int64_t axis;
    if (value.getAsInteger(10, axis))
      return bad();
    spec.axis = axis;
  } else if (key == "ignore_index") {
    if (value.getAsInteger(10, spec.ignore))
      return bad();
  } else if (key == "label_smoothing") {
    if (value.getAsDouble(spec.smoothing) || !(spec.smoothing >= 0 && spec.smoothing <= 1))
      return bad();
  } else {
    spec.reduction = value.str();
    if (value != "mean" && value != "sum")
      return bad();
  }
  return llvm::Error::success();
}

llvm::Expected<LossSpec> zcc::parseLoss(StringRef text) {
  LossSpec spec;
  text = text.trim();
  if (text.empty())
    return spec;
  if (!text.contains('(')) {
    spec.kind = LossSpec::Output;
    spec.output = text.str();
    return spec;
  }
  auto call = parseCall("--loss", text);
  if (!call)
    return call.takeError();
  const LossName *loss = nullptr;
  std::vector<std::string> names;
  for (const LossName &k : knownLosses()) {
    names.push_back(k.name);
    if (call->name == k.name)
      loss = &k;
  }
  if (!loss)
    return error("--loss: unknown loss '" + call->name + "'" + suggestionOf(call->name, names));
  spec.kind = loss->kind;
  for (auto &[key, value] : call->options)
    if (auto e = readOption(spec, *loss, key, value))
      return e;
  if (call->arguments.size() != 2)
    return error("--loss: '" + call->name + "' takes an output and an input, got '" + llvm::join(call->arguments, ", ") + "'");
  spec.output = call->arguments[0];
  spec.target = call->arguments[1];
  return spec;
}

// ---- building

static std::vector<std::string> outputNames(const GraphImporter &g) {
  std::vector<std::string> names;
  for (auto &o : g.file.graph().output())
    names.push_back(o.name());
  return names;
}

static llvm::Expected<Val> outputNamed(GraphImporter &g, const std::string &name) {
  auto names = outputNames(g);
  if (!llvm::is_contained(names, name)) {
    std::string n = nearest(name, names);
    return error("--loss: the model has no output '" + name + "'" +
                 (n.empty() ? "; it has " + llvm::join(names, ", ") : "; did you mean '" + n + "'?"));
  }
  const Val *v = g.main.find(name);
  if (!v)
    return error("--loss: output '" + name + "' is not computed");
  if (v->list)
    return error("output '" + name + "': a sequence, which is not supported");
  return *v;
}

static llvm::Expected<Val> scalarLoss(const Val &v, const std::string &name) {
  if (!v.isFloat() || v.count() != 1)
    return error("output '" + name + "' is " + v.type.str() +
                 ", a loss must be one floating-point number; add one with --loss=\"cross_entropy(" + name + ", labels)\"");
  return v;
}

static llvm::Expected<Val> defaultLoss(GraphImporter &g, std::string &name) {
  std::vector<std::string> found;
  for (const std::string &o : outputNames(g))
    if (const Val *v = g.main.find(o); v && !v->list && v->isFloat() && v->rank() == 0)
      found.push_back(o);
  if (found.size() == 1) {
    name = found[0];
    return *g.main.find(name);
  }
  if (found.empty()) {
    auto names = outputNames(g);
    std::string first = names.empty() ? "y" : names[0], single;
    for (std::string &n : names)
      if (const Val *v = g.main.find(n); v && !v->list) {
        if (v->isFloat() && v->count() == 1 && single.empty())
          single = "--loss=" + n + " if that is it, ";
        n += " " + v->type.str();
      }
    return error("no output of the model is a scalar that could be the loss (outputs: " + llvm::join(names, ", ") + "); " +
                 single + "add one with --loss=\"cross_entropy(" + first + ", labels)\", \"mse(" + first +
                 ", target)\" or \"bce_with_logits(" + first + ", target)\", or compile for inference with --loss=none");
  }
  return error("several outputs could be the loss: " + llvm::join(found, ", ") + "; choose one with --loss=" + found[0]);
}

/// The target: an input of the model, or a new one.
static Val targetInput(GraphImporter &g, const std::string &name, const Type &type) {
  if (const Val *v = g.main.find(name)) {
    if (!v->value || v->value->kind != Value::Argument)
      invalid("--loss: '" + name + "' is not an input of the model");
    return *v;
  }
  if (g.file.initializer(name))
    invalid("--loss: '" + name + "' is an initializer of the model, not an input");
  Value *arg = g.e.fn.addArg(name, type);
  if (arg->name != name)
    invalid("--loss: the input name '" + name + "' is taken; choose another");
  g.main.values[name] = Emitter::of(arg);
  return Emitter::of(arg);
}

static Val elementLoss(GraphImporter &g, const LossSpec &spec, const Val &y) {
  Emitter &e = g.e;
  Val t = targetInput(g, spec.target, y.type);
  if (t.dims() != y.dims())
    invalid("--loss: '" + spec.output + "' is " + y.type.str() + ", '" + spec.target + "' is " + t.type.str());
  t = e.cast(t, y.elem());
  Val each;
  if (spec.kind == LossSpec::MeanSquare) {
    Val d = e.sub(y, t);
    each = e.mul(d, d);
  } else { // as PyTorch has it: (1 - t) * y + log(1 + exp(-y))
    each = e.add(e.mul(e.sub(e.like(1, t), t), y), e(ops::softplus, e(ops::neg, y)));
  }
  Dims all = allAxes(0, each.rank());
  return spec.reduction == "sum" ? e.sum(each, all, Emitter::Keep::Nothing) : e.mean(each, all, Emitter::Keep::Nothing);
}

static Val classLoss(GraphImporter &g, const LossSpec &spec, Val logits) {
  Emitter &e = g.e;
  if (logits.rank() < 1 || (logits.rank() == 4 && !spec.axis))
    invalid("--loss: '" + spec.output + "' is " + logits.type.str() + "; say which axis holds the classes: axis=1 or axis=-1");
  int64_t axis = normalAxis(spec.axis.value_or(-1), logits.rank());
  if (logits.dim(axis) < 1)
    invalid("--loss: '" + spec.output + "' is " + logits.type.str() + ", which has no classes along axis " + llvm::Twine(axis));
  Dims d(logits.dims().begin(), logits.dims().end());
  d.erase(d.begin() + axis);
  Val labels = targetInput(g, spec.target, Type(Elem::I64, d));
  if (labels.dims() != llvm::ArrayRef<int64_t>(d) || !isInteger(labels.elem()))
    invalid("--loss: '" + spec.target + "' is " + labels.type.str() + ", labels of " + logits.type.str() + " are " +
            Type(Elem::I64, d).str());
  const bool isChecked = g.noteRange(labels, 0, logits.dim(axis) - 1, spec.ignore);
  labels = e.cast(labels, Elem::I64);
  Dims perm = allAxes(0, logits.rank());
  perm.erase(perm.begin() + axis);
  perm.push_back(axis);
  logits = e.transpose(logits, perm); // classes last
  if (spec.kind == LossSpec::CrossEntropyShifted) {
    int64_t time = logits.rank() - 2;
    if (time < 0 || logits.dim(time) < 2)
      invalid("--loss: '" + spec.output + "' is " + logits.type.str() + ", which has no axis to shift along");
    logits = e.slice(logits, time, 0, logits.dim(time) - 1);
    labels = e.slice(labels, time, 1, labels.dim(time));
  }
  CrossEntropy c;
  c.logits = e.reshape(logits, {logits.count() / logits.dim(-1), logits.dim(-1)});
  c.labels = e.reshape(labels, {labels.count()});
  c.hasIgnore = true;
  c.ignore = spec.ignore;
  c.smoothing = spec.smoothing;
  c.isChecked = isChecked;
  Val rows = crossEntropyRows(e, c);
  return spec.reduction == "sum" ? e.sum(rows, {0}, Emitter::Keep::Nothing) : meanOverValid(e, rows, c.labels, c);
}

llvm::Expected<Val> zcc::buildLoss(GraphImporter &g, const LossSpec &spec, std::string &name) {
  auto asScalar = [&](llvm::Expected<Val> v) -> llvm::Expected<Val> {
    if (!v)
      return v;
    auto ok = scalarLoss(*v, name);
    if (!ok || ok->rank() == 0)
      return ok;
    Loc outer = g.e.loc;
    g.e.loc = makeLoc(name);
    Val scalar = g.e.reshape(*ok, {});
    g.e.loc = outer;
    return scalar;
  };
  name = "loss";
  if (spec.kind == LossSpec::Default)
    return asScalar(defaultLoss(g, name));
  auto y = outputNamed(g, spec.output);
  if (!y)
    return y;
  if (!spec.isAdded()) {
    name = spec.output;
    return asScalar(std::move(y));
  }
  if (!y->isFloat())
    return error("--loss: output '" + spec.output + "' is " + y->type.str() + ", not floating point");
  Loc outer = g.e.loc;
  g.e.loc = makeLoc("loss", spec.kind == LossSpec::MeanSquare           ? "mse"
                            : spec.kind == LossSpec::BinaryCrossEntropy ? "bce_with_logits"
                                                                        : "cross_entropy");
  try {
    Val v = spec.kind >= LossSpec::MeanSquare ? elementLoss(g, spec, *y) : classLoss(g, spec, *y);
    g.e.loc = outer;
    return v;
  } catch (const NodeError &err) {
    g.e.loc = outer;
    return error(err.what);
  }
}
