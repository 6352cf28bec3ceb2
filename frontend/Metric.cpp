// Parses --metric and builds what it measures from values of the graph.
#include "frontend/Metric.h"
#include "frontend/CallText.h"
#include "onnx.pb.h"
#include "llvm/ADT/StringExtras.h"
#include <map>

using namespace zcc;
using llvm::StringRef;

// ---- the option

namespace {
struct MetricName {
  const char *name;
  MetricSpec::Kind kind;
  std::vector<std::string> options;
};
} // namespace

static const std::vector<MetricName> &knownMetrics() {
  static const std::vector<std::string> classes{"axis", "ignore_index", "shift"};
  static const std::vector<std::string> ranked{"top", "axis", "ignore_index", "shift"};
  static const std::vector<MetricName> known{{"accuracy", MetricSpec::Accuracy, ranked},
                                             {"topk", MetricSpec::Accuracy, classes},
                                             {"perplexity", MetricSpec::Perplexity, classes},
                                             {"mae", MetricSpec::AbsoluteError, {}},
                                             {"mse", MetricSpec::SquareError, {}}};
  return known;
}

/// topK and topk(K, ...) are accuracy(..., top=K).
static llvm::Error readTop(MetricSpec &m, CallText &call) {
  StringRef digits = call.name;
  if (call.name == "topk") {
    digits = call.arguments.empty() ? "" : StringRef(call.arguments[0]);
    if (digits.getAsInteger(10, m.top))
      return error("--metric=" + m.text + ": say how many: topk(5, logits, labels)");
    call.arguments.erase(call.arguments.begin());
  } else if (digits.consume_front("top") && !digits.getAsInteger(10, m.top)) {
    call.name = "topk";
  }
  return llvm::Error::success();
}

static llvm::Error readOption(MetricSpec &m, const MetricName &metric, StringRef key, StringRef value) {
  if (!llvm::is_contained(metric.options, key))
    return error("--metric=" + m.text + ": '" + llvm::Twine(metric.name) + "' has no argument '" + key + "'" +
                 (metric.options.empty() ? "" : suggestionOf(key, metric.options)));
  int64_t n;
  if (value.getAsInteger(10, n) || (key == "shift" && n < 0))
    return error("--metric=" + m.text + ": bad value '" + value + "' of '" + key + "'");
  if (key == "top")
    m.top = n;
  else
    (key == "axis" ? m.axis : key == "shift" ? m.shift : m.ignore) = n;
  return llvm::Error::success();
}

static llvm::Expected<MetricSpec> parseMetric(StringRef text) {
  MetricSpec m;
  m.text = text.trim().str();
  auto call = parseCall("--metric", text);
  if (!call)
    return call.takeError();
  if (auto e = readTop(m, *call))
    return e;
  std::vector<std::string> names;
  const MetricName *metric = nullptr;
  for (const MetricName &k : knownMetrics()) {
    names.push_back(k.name);
    if (call->name == k.name)
      metric = &k;
  }
  if (!metric)
    return error("--metric=" + m.text + ": unknown metric '" + call->name + "'" + suggestionOf(call->name, names));
  m.kind = metric->kind;
  for (auto &[key, value] : call->options)
    if (auto e = readOption(m, *metric, key, value))
      return e;
  if (m.top < 1)
    return error("--metric=" + m.text + ": it counts the label among the first " + llvm::Twine(m.top) +
                 " classes; give 1 or more");
  bool isOfLoss = m.kind == MetricSpec::Perplexity && call->arguments.empty() && call->options.empty();
  if (!isOfLoss && call->arguments.size() != 2)
    return error("--metric=" + m.text + ": '" + metric->name + "' takes two values of the model, such as " +
                 (metric->options.empty() ? "(output, target)" : "(logits, labels)"));
  if (!isOfLoss) {
    m.output = call->arguments[0];
    m.target = call->arguments[1];
  }
  m.name = m.top > 1 ? "top" + std::to_string(m.top) : m.kind == MetricSpec::Accuracy ? "accuracy" : metric->name;
  return m;
}

llvm::Expected<std::vector<MetricSpec>> zcc::parseMetrics(llvm::ArrayRef<std::string> texts) {
  constexpr size_t kMost = 16; // a line of the log has room for them
  std::vector<MetricSpec> specs;
  for (StringRef text : texts) {
    auto m = parseMetric(text);
    if (!m)
      return m.takeError();
    specs.push_back(std::move(*m));
  }
  if (specs.size() > kMost)
    return error("--metric is given " + llvm::Twine(specs.size()) + " times, which is more than " + llvm::Twine(kMost));
  std::map<std::string, int> uses;
  for (const MetricSpec &m : specs)
    ++uses[m.name];
  for (MetricSpec &m : specs)
    if (uses[m.name] > 1) {
      m.name = m.text;
      llvm::erase_if(m.name, [](char c) { return llvm::isSpace(c); });
    }
  for (size_t i = 0; i < specs.size(); ++i)
    for (size_t k = 0; k < i; ++k)
      if (specs[k].name == specs[i].name)
        return error("--metric=" + specs[i].text + " is given twice");
  return specs;
}

// ---- building

namespace {
/// A batch's part of a metric.
struct Measured {
  Val sum, weight; ///< without weight: the mean
};

class MetricBuilder {
public:
  MetricBuilder(GraphImporter &g, const MetricSpec &m, const LossSpec &loss) : g(g), e(g.e), m(m), loss(loss) {}
  Measured build();

private:
  Val find(const std::string &name);
  int64_t classAxis(const Val &logits, const Val &labels) const;
  Measured ofClasses();
  Measured ofElements();
  Val countRight(const Val &logits, const Val &labels, const Val &valid);

  GraphImporter &g;
  Emitter &e;
  const MetricSpec &m;
  const LossSpec &loss;
};
} // namespace

/// A value of the model, or the first output of a node, by name.
Val MetricBuilder::find(const std::string &name) {
  const Val *v = g.main.find(name);
  for (auto &node : g.file.graph().node())
    if (!v && node.name() == name && node.output_size())
      v = g.main.find(node.output(0));
  if (v && !v->list)
    return *v;
  std::vector<std::string> all, outputs, inputs;
  for (auto &entry : g.main.values)
    all.push_back(entry.first().str());
  llvm::sort(all); // a hash table's order
  for (auto &o : g.file.graph().output())
    outputs.push_back("'" + o.name() + "'");
  for (auto &a : e.fn.args)
    inputs.push_back("'" + a->name + "'");
  std::string near = nearest(name, all);
  invalid("the model has no value '" + name + "'; its outputs are " + llvm::join(outputs, ", ") + ", its inputs " +
          llvm::join(inputs, ", ") + (near.empty() ? "" : "; did you mean '" + near + "'?"));
}

/// The axis without which the logits have the shape of the labels.
int64_t MetricBuilder::classAxis(const Val &logits, const Val &labels) const {
  auto without = [&](int64_t axis) {
    Dims d(logits.dims().begin(), logits.dims().end());
    d.erase(d.begin() + axis);
    return d;
  };
  std::vector<int64_t> fits;
  for (int64_t a = 0; a < logits.rank(); ++a)
    if (llvm::ArrayRef<int64_t>(without(a)) == labels.dims())
      fits.push_back(a);
  if (m.axis && llvm::is_contained(fits, normalAxis(*m.axis, logits.rank())))
    return normalAxis(*m.axis, logits.rank());
  if (!m.axis && fits.size() == 1)
    return fits[0];
  bool areRows = !m.axis && fits.empty() && logits.rank() > 0 && labels.count() * logits.dim(-1) == logits.count();
  if (areRows) // one of them is flattened
    return logits.rank() - 1;
  std::string types = "'" + m.output + "' is " + logits.type.str() + ", '" + m.target + "' is " + labels.type.str();
  if (fits.empty() || m.axis)
    invalid(types + ": without the axis of the classes" + (m.axis ? ", " + std::to_string(*m.axis) + "," : "") +
            " the logits must have the shape of the labels");
  invalid(types + "; say which axis holds the classes: axis=1 or axis=-1");
}

/// 0, 1, ... as a row; counted where it is read, however long.
static Val numbersOf(Emitter &e, int64_t classes) {
  Builder b(e.current(), nullptr, e.loc);
  return Emitter::of(b.make(ops::iota, {}, {{"dims", std::vector<int64_t>{1, classes}}, {"axis", int64_t(1)}, {"elem", "i64"}}));
}

/// How many labels are among the first classes: in front of a label's class are those that score more, and those before it that
/// score as much. What is not a number is in front of all.
Val MetricBuilder::countRight(const Val &logits, const Val &labels, const Val &valid) {
  int64_t classes = logits.dim(-1);
  if (m.top > classes)
    invalid("'" + m.output + "' has only " + llvm::Twine(classes) + " classes");
  Val x = e.cast(logits, Elem::F32), column = e.reshape(labels, {labels.count(), 1}), number = numbersOf(e, classes);
  Val own = e.sum(e.select(e(ops::eq, number, column), x, e.like(0, x)), {1});
  Val ties = e(ops::and_, e(ops::eq, x, own), e(ops::ge, number, column));
  Val isBehind = e(ops::or_, e(ops::lt, x, own), ties);
  Val inFront = e.sum(e.select(isBehind, e.like(0, x), e.like(1, x)), {1}, Emitter::Keep::Nothing);
  Val right = e(ops::and_, e(ops::lt, inFront, e.like(double(m.top), inFront)), valid);
  return e.sum(e.cast(right, Elem::F32), {0}, Emitter::Keep::Nothing);
}

Measured MetricBuilder::ofClasses() {
  Val logits = find(m.output), labels = find(m.target);
  if (!logits.isFloat() || !isInteger(labels.elem()))
    invalid("'" + m.output + "' is " + logits.type.str() + ", '" + m.target + "' is " + labels.type.str() +
            "; it compares floating-point logits with integer labels");
  int64_t axis = classAxis(logits, labels);
  if (logits.dim(axis) < 1)
    invalid("'" + m.output + "' is " + logits.type.str() + ", which has no classes along axis " + llvm::Twine(axis));
  const int64_t ignore = m.ignore.value_or(g.ignored.lookup(m.target).value_or(-100));
  Dims perm = allAxes(0, logits.rank());
  perm.erase(perm.begin() + axis);
  perm.push_back(axis);
  logits = e.transpose(logits, perm); // classes last
  bool lossShifts = loss.kind == LossSpec::CrossEntropyShifted && loss.target == m.target;
  if (int64_t shift = m.shift.value_or(lossShifts)) {
    int64_t time = logits.rank() - 2;
    if (time < 0 || logits.dim(time) <= shift || labels.rank() != time + 1)
      invalid("'" + m.output + "' is " + logits.type.str() + ", '" + m.target + "' is " + labels.type.str() +
              ", which have no axis to shift along by " + llvm::Twine(shift));
    logits = e.slice(logits, time, 0, logits.dim(time) - shift);
    labels = e.slice(labels, time, shift, labels.dim(time));
  }
  CrossEntropy c;
  c.logits = e.reshape(logits, {logits.count() / logits.dim(-1), logits.dim(-1)});
  c.labels = e.cast(e.reshape(labels, {labels.count()}), Elem::I64);
  c.hasIgnore = true;
  c.ignore = ignore;
  Val valid = e(ops::ne, c.labels, e.like(double(ignore), c.labels));
  Measured r;
  r.weight = e.sum(e.cast(valid, Elem::F32), {0}, Emitter::Keep::Nothing);
  r.sum = m.kind == MetricSpec::Perplexity ? e.sum(crossEntropyRows(e, c), {0}, Emitter::Keep::Nothing)
                                           : countRight(c.logits, c.labels, valid);
  return r;
}

Measured MetricBuilder::ofElements() {
  Val y = find(m.output), t = find(m.target);
  if (y.dims() != t.dims() || (!y.isFloat() && !isInteger(y.elem())) || (!t.isFloat() && !isInteger(t.elem())))
    invalid("'" + m.output + "' is " + y.type.str() + ", '" + m.target + "' is " + t.type.str() +
            "; it compares numbers of the same shape");
  Elem wide = y.elem() == Elem::F64 ? Elem::F64 : Elem::F32;
  Val d = e.sub(e.cast(y, wide), e.cast(t, wide));
  d = m.kind == MetricSpec::AbsoluteError ? e(ops::abs, d) : e.mul(d, d);
  return {e.mean(d, allAxes(0, d.rank()), Emitter::Keep::Nothing), Val()};
}

Measured MetricBuilder::build() {
  Loc outer = e.loc;
  e.loc = makeLoc("--metric=" + m.text, m.name);
  bool isOfElements = m.kind == MetricSpec::AbsoluteError || m.kind == MetricSpec::SquareError;
  Measured r = isOfElements ? ofElements() : ofClasses();
  for (Val *v : {&r.sum, &r.weight})
    if (*v)
      *v = e.cast(*v, Elem::F32);
  e.loc = outer;
  return r;
}

llvm::Error zcc::buildMetrics(GraphImporter &g, llvm::ArrayRef<MetricSpec> specs, const LossSpec &loss,
                              std::vector<std::pair<std::string, Val>> &results) {
  Loc outer = g.e.loc;
  for (const MetricSpec &m : specs) {
    if (m.output.empty())
      continue;
    try {
      Measured r = MetricBuilder(g, m, loss).build();
      results.emplace_back("metric." + m.name, r.sum);
      if (r.weight)
        results.emplace_back("metric." + m.name + ".weight", r.weight);
    } catch (const NodeError &err) {
      g.e.loc = outer;
      return error("--metric=" + m.text + ": " + err.what);
    }
  }
  return llvm::Error::success();
}

void zcc::noteMetrics(Module &m, llvm::ArrayRef<MetricSpec> specs) {
  if (specs.empty())
    return;
  std::vector<std::string> names;
  std::vector<int64_t> exponentials;
  for (const MetricSpec &s : specs) {
    if (s.kind == MetricSpec::Perplexity)
      exponentials.push_back(int64_t(names.size()));
    names.push_back(s.name);
  }
  m.attrs.set("metrics", llvm::join(names, " "));
  if (!exponentials.empty())
    m.attrs.set("metrics_exp", exponentials);
}
