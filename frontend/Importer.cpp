// The import loop: values by name, one node after the other, local functions and subgraphs in place.
#include "frontend/Importer.h"
#include "frontend/onnx/SourceLoc.h"
#include "ir/StateNames.h"
#include "ir/Verifier.h"
#include "onnx.pb.h"
#include "llvm/ADT/StringExtras.h"

using namespace zcc;
using llvm::ArrayRef;
using llvm::StringRef;

using Importers = llvm::StringMap<void (*)(NodeImport &)>;

static Importers tableOf(std::initializer_list<ArrayRef<OnnxOp>> families) {
  Importers t;
  for (auto family : families)
    for (const OnnxOp &o : family)
      t[o.name] = o.import;
  return t;
}

/// An operator that a record names: its operands are the node's.
static void importOneToOne(NodeImport &n) {
  const OpDef &op = **llvm::find_if(allOps(), [&](auto *o) { return o->onnx && n.op == o->onnx; });
  std::vector<Val> operands;
  for (unsigned i = 0; i < op.numOperandDefs(); ++i)
    operands.push_back(n.in(i));
  n.out(n.e.emit(op, operands));
}

static Importers standardOps() {
  Importers t = tableOf({elementwiseOps(), shapeOps(),  indexOps(),  reduceOps(),    linearOps(),    convOps(),   poolOps(),
                         normalizeOps(),   lossOps(),   randomOps(), recurrentOps(), attentionOps(), resizeOps(), sampleOps(),
                         regionOps(),      searchOps(), signalOps(), sequenceOps(),  quantizeOps(),  controlOps()});
  for (const OpDef *op : allOps())
    if (op->onnx)
      t[op->onnx] = importOneToOne;
  return t;
}

/// The importers of a domain, or nullptr.
static const Importers *importersOf(StringRef domain) {
  static const Importers standard = standardOps();
  static const Importers microsoft = tableOf({microsoftOps(), microsoftAttentionOps()});
  static const Importers training = tableOf({previewTrainingOps()});
  if (domain.empty() || domain == "ai.onnx" || domain == "ai.onnx.preview")
    return &standard;
  return domain == "com.microsoft" ? &microsoft : domain == "ai.onnx.preview.training" ? &training : nullptr;
}

void (*zcc::findOnnxOp(StringRef name, StringRef domain))(NodeImport &) {
  const Importers *of = importersOf(domain);
  return of ? of->lookup(name) : nullptr;
}

void zcc::printOnnxOps(llvm::raw_ostream &os) {
  for (StringRef domain : {"ai.onnx", "com.microsoft", "ai.onnx.preview.training"}) {
    std::vector<std::string> names;
    for (auto &entry : *importersOf(domain))
      names.push_back(entry.getKey().str());
    llvm::sort(names);
    os << "imported from " << domain << ": " << llvm::join(names, " ") << '\n';
  }
}

GraphImporter::GraphImporter(const OnnxFile &f, const ImportOptions &o, Parameters &p, Module &m, Function &fn, Mode md,
                             Problems &pr, ImportReport &r)
    : file(f), options(o), parameters(p), module(m), mode(md), problems(pr), report(r), e(m, fn) {
  main.opset = f.opset("");
  main.isMain = true;
  main.declare(f.graph().value_info());
  main.declare(f.graph().output());
}

// ---- values

/// Constants up to this many bytes take part in folding; larger ones stay in their file.
constexpr int64_t kMostKnownBytes = int64_t(64) << 20;

static std::shared_ptr<Known> lazily(const OnnxFile &file, const Initializer &t, GlobalValue *global) {
  auto k = std::make_shared<Known>();
  k->global = global;
  k->load = [&file, &t] {
    auto bytes = file.read(t);
    if (!bytes)
      invalid(llvm::toString(bytes.takeError()));
    return tensorFromBytes(t.type(), *bytes);
  };
  return k;
}

Val GraphImporter::valueOf(Parameter &p) {
  const Initializer &t = *p.source;
  if (!t.elem)
    unsupported("element type " + onnxTypeName(t.dataType) + " (of '" + t.name + "')");
  if (!p.global) {
    Init init;
    init.kind = Init::File;
    init.file = t.file;
    init.offset = t.offset;
    init.bytes = t.bytes / p.pieces;
    if (t.place == Initializer::Inline) {
      module.constData.resize((module.constData.size() + 63) / 64 * 64);
      init.file.clear();
      init.offset = int64_t(module.constData.size());
      module.constData += t.data.substr(0, init.bytes);
    } else if (t.place == Initializer::Missing) {
      init = Init(); // Parameters say later how it is drawn
    }
    auto role = p.role == Parameter::Statistic  ? GlobalValue::State
                : p.role == Parameter::Constant ? GlobalValue::Const
                                                : GlobalValue::Param;
    p.global = module.addGlobal(role, p.name, p.type(), init);
    p.global->trained = p.role == Parameter::Trained && !options.inference;
    p.global->exported = p.role != Parameter::Constant;
    p.global->onnxName = t.name;
    p.global->loc = makeLoc(t.name);
  }
  Val v = Emitter::of(p.global);
  if (t.place == Initializer::Missing || p.given || t.bytes > kMostKnownBytes || p.pieces > 1)
    return v;
  if (p.role == Parameter::Constant) {
    v.known = lazily(file, t, p.global);
    v.value = nullptr;
  } else if (p.role == Parameter::Frozen || options.inference) {
    v.peek = lazily(file, t, p.global);
  }
  return v;
}

Val GraphImporter::valueOf(const onnx_pb::TensorProto &proto) {
  auto t = file.tensor(proto);
  if (!t)
    invalid(llvm::toString(t.takeError()));
  if (!t->elem)
    unsupported("element type " + onnxTypeName(t->dataType));
  auto bytes = file.read(*t);
  if (!bytes)
    invalid(llvm::toString(bytes.takeError()));
  return Emitter::known(tensorFromBytes(t->type(), *bytes));
}

Val GraphImporter::lookup(StringRef name, Scope &scope, const onnx_pb::NodeProto *node, unsigned index) {
  if (const Val *v = scope.find(name))
    return *v;
  bool sees = false; // the main graph's initializers
  for (Scope *s = &scope; s; s = s->parent)
    sees |= s->isMain;
  ParameterUse u = sees ? parameters.use(name, node, index) : ParameterUse();
  if (!u.parameter) {
    for (auto &n : file.graph().node())
      if (llvm::is_contained(n.output(), name))
        invalid("input '" + name + "' is made by a later node, '" + n.name() + "' (" + n.op_type() +
                "): the nodes are out of order, or depend on one another in a circle");
    invalid("input '" + name + "' does not exist");
  }
  Val v = valueOf(*u.parameter);
  if (u.parameter->pieces > 1)
    return e.expand(v, u.parameter->source->dims);
  return u.transposed ? e.swapAxes(v, -1, -2) : v;
}

Val GraphImporter::random(const OpDef &op, ArrayRef<int64_t> dims) {
  Val seed = Emitter::of(runtimeState("seed", Elem::I64));
  double apart = 1000003; // each iteration of a loop draws from a seed of its own, and of each loop that it is in
  for (const Val &k : iterations) {
    seed = e.add(seed, e.mul(e.add(k, 1), apart));
    apart *= 1000003;
  }
  Vals states{seed, Emitter::of(runtimeState("step", Elem::I64)), Emitter::of(runtimeState("micro", Elem::I64))};
  const int64_t id = randoms_++;
  if (&op != &ops::random_uniform)
    return e.emit(op, states, {{"dims", dims.vec()}, {"id", id}});
  const Type t(Elem::I64, {});
  states.push_back(
      Emitter::of(module.addConst("draw." + std::to_string(id), t, StringRef(reinterpret_cast<const char *>(&id), sizeof id))));
  states.push_back(e.numbers(dims));
  return e.emit(op, states);
}

GlobalValue *GraphImporter::runtimeState(StringRef name, Elem elem) {
  if (GlobalValue *g = module.global(name))
    return g;
  return module.addGlobal(GlobalValue::State, name, Type(elem, {}), Init());
}

/// Whether a cast leaves integers what they are, but for numbers that no index or class has.
static bool keepsIntegers(const Node &cast) {
  const Elem from = cast.operand(0)->type.elem, to = cast.result()->type.elem;
  if (isFloat(from) || isFloat(to) || from == to)
    return true;
  const int64_t has = elemBytes(to), needs = std::min<int64_t>(elemBytes(from), 4);
  return to != Elem::Bool && (has > needs || (has == needs && needs == 4));
}

bool GraphImporter::noteRange(const Val &index, int64_t lo, int64_t hi, std::optional<int64_t> ignore) {
  if (!e.runsAlways()) // another branch may be there for others
    return false;
  Value *v = index.value;
  while (v && (v->def || e.origin(v))) { // whatever only moves or widens elements
    if (!v->def) {
      v = e.origin(v);
      continue;
    }
    const OpDef *op = v->def->op;
    Value *from = v->def->numOperands() ? v->def->operand(0) : nullptr;
    // A column of a table says nothing about the others; labels shifted by one position are still
    // labels.
    bool isPart = v->def->is(ops::slice) && 2 * v->type.count() <= from->type.count();
    bool moves = op->view || op->converts() || op->isIdentity() || v->def->is(ops::pad);
    if (!moves || isPart || (op->converts() && !keepsIntegers(*v->def)))
      return false;
    v = from;
  }
  const bool isInput = v && v->kind == Value::Argument && v->index < e.fn.args.size() && e.fn.args[v->index].get() == v;
  if (!isInput || !isInteger(v->type.elem)) // an argument of a body may be called as an input is
    return false;
  if (ignore)
    if (auto [known, isNew] = ignored.try_emplace(v->name, ignore); !isNew && known->second != ignore)
      known->second.reset();
  std::string key = "range." + v->name;
  std::vector<int64_t> range{lo, hi, ignore.value_or(lo)}, before = module.attrs.ints(key);
  if (before.size() == 3) { // both hold
    bool narrower = lo > before[0] || hi < before[1];
    range = {std::max(lo, before[0]), std::min(hi, before[1]), before[2]};
    if (!ignore || before[2] != *ignore || (before[2] >= before[0] && before[2] <= before[1]))
      range[2] = range[0];
    module.attrs.set(key, range);
    if (!narrower)
      return true;
  }
  module.attrs.set(key, range);
  module.attrs.set("range_node." + v->name, e.loc && !e.loc->nodes.empty() ? e.loc->nodes[0] : "");
  return true;
}

void GraphImporter::remarkOnce(const std::string &text) {
  if (!llvm::is_contained(report.remarks, text))
    report.remarks.push_back(text);
}

void GraphImporter::warnOnce(const std::string &text) {
  if (!llvm::is_contained(report.warnings, text))
    report.warnings.push_back(text);
}

// ---- inputs

/// The type that the file states, with its symbolic dimensions as the options fix them.
llvm::Expected<Type> GraphImporter::typeOf(const onnx_pb::ValueInfoProto &info) const {
  const std::string &name = info.name();
  if (!info.type().has_tensor_type())
    return error("input '" + name + "' is not a tensor, which is not supported");
  auto &type = info.type().tensor_type();
  auto elem = elemFromOnnx(type.elem_type());
  if (!elem)
    return error("input '" + name + "' has element type " + onnxTypeName(type.elem_type()) + ", which is not supported");
  if (!type.has_shape())
    return error("input '" + name + "' has no shape in the model");
  Type t(*elem, {});
  for (int i = 0; i < type.shape().dim_size(); ++i) {
    auto &d = type.shape().dim(i);
    if (d.has_dim_value() && d.dim_value() >= 0) {
      t.dims.push_back(d.dim_value());
      continue;
    }
    std::string symbol = d.dim_param().empty() ? name + "." + std::to_string(i) : d.dim_param();
    auto fixed = options.dims.find(symbol);
    if (fixed == options.dims.end())
      return error("dimension '" + symbol + "' is not fixed"); // importOnnx has listed them all before
    t.dims.push_back(fixed->second);
  }
  if (auto broken = checkSize(t))
    return error("input '" + name + "': " + llvm::toString(std::move(broken)));
  return t;
}

llvm::Error GraphImporter::addInput(const onnx_pb::ValueInfoProto &input) {
  const std::string &name = input.name();
  auto t = typeOf(input);
  if (!t)
    return t.takeError();
  if (main.values.count(name))
    return error("two inputs are called '" + name + "'");
  Value *arg = e.fn.addArg(isStateName(name) ? name + ".input" : name, *t);
  if (arg->name != name) // by which the data go on to be called
    module.attrs.set("input." + arg->name, name);
  main.values[name] = Emitter::of(arg);
  return llvm::Error::success();
}

// ---- nodes

/// Names that a node reads, those its subgraphs capture included.
static void readNames(const onnx_pb::NodeProto &n, llvm::function_ref<void(const std::string &)> f) {
  for (auto &i : n.input())
    f(i);
  for (auto &a : n.attribute()) {
    if (!a.has_g())
      continue;
    llvm::StringSet<> own;
    for (auto &i : a.g().input())
      own.insert(i.name());
    for (auto &t : a.g().initializer())
      own.insert(t.name());
    for (auto &m : a.g().node())
      for (auto &o : m.output())
        own.insert(o);
    auto captured = [&](const std::string &s) {
      if (!own.contains(s))
        f(s);
    };
    for (auto &m : a.g().node())
      readNames(m, captured);
    for (auto &o : a.g().output()) // may name an outer value directly
      captured(o.name());
  }
}

/// The nodes that the outputs depend on, in order.
static std::vector<const onnx_pb::NodeProto *> reachable(const onnx_pb::GraphProto &g) {
  llvm::StringSet<> needed;
  for (auto &o : g.output())
    needed.insert(o.name());
  std::vector<const onnx_pb::NodeProto *> r;
  for (int i = g.node_size() - 1; i >= 0; --i) {
    auto &n = g.node(i);
    if (llvm::none_of(n.output(), [&](auto &o) { return !o.empty() && needed.contains(o); }))
      continue;
    readNames(n, [&](const std::string &s) { needed.insert(s); });
    r.push_back(&n);
  }
  std::reverse(r.begin(), r.end());
  return r;
}

void GraphImporter::addInputs() {
  for (auto &input : file.graph().input()) {
    if (file.initializer(input.name())) // before IR version 4 initializers are listed as inputs
      continue;
    if (auto err = addInput(input)) {
      problems.add(std::move(err));
      main.failed.insert(input.name());
    }
  }
}

void GraphImporter::run() {
  addInputs();
  importNodes(reachable(file.graph()), main);
  if (llvm::any_of(quantized, [](auto &q) { return !q.second.isPassedOn; }))
    warnOnce(
        "QuantizeLinear passes a gradient only where DequantizeLinear reads what it makes: what is in front of others is not "
        "trained through them");
}

const GraphImporter::Quantized *GraphImporter::passOn(const Val &integers) {
  auto at = integers.value ? quantized.find(integers.value) : quantized.end();
  if (at == quantized.end())
    return nullptr;
  at->second.isPassedOn = true;
  return &at->second;
}

void GraphImporter::importNodes(ArrayRef<const onnx_pb::NodeProto *> nodes, Scope &scope) {
  for (size_t i = 0; i < nodes.size(); ++i)
    importNode(*nodes[i], scope, int64_t(i));
}

static std::string qualified(const onnx_pb::NodeProto &n) { return "'" + qualifiedName(n.domain(), n.op_type()) + "'"; }

static bool isUnknown(const OnnxFile &file, const onnx_pb::NodeProto &n) {
  return !findOnnxOp(n.op_type(), n.domain()) && !isRenamed(n.op_type()) && !file.functions.calledBy(n);
}

void zcc::findUnknown(const OnnxFile &file, Problems &problems) {
  int64_t index = 0;
  for (const onnx_pb::NodeProto *n : reachable(file.graph())) {
    if (isUnknown(file, *n))
      problems.unsupported(qualified(*n), locOf(*n, index));
    ++index;
  }
}

/// What could not be computed, by the type that the file declares for it, where it does.
void GraphImporter::standIn(const std::string &name, Scope &scope) {
  const onnx_pb::ValueInfoProto *info = scope.declared.lookup(name);
  if (!info)
    return;
  auto t = typeOf(*info);
  if (!t)
    return llvm::consumeError(t.takeError());
  scope.values[name] = Emitter::of(e.materialize(e.expand(Emitter::number(0, t->elem), t->dims)));
}

bool GraphImporter::isTooMany(const Scope &scope) {
  if (scope.isMain || ++copies_ <= kMostExpanded)
    return false;
  problems.add(error("calls of local functions and iterations of loops become more than " + llvm::Twine(kMostExpanded) +
                     " nodes, which is the most that zcc takes"));
  return true;
}

void GraphImporter::importNode(const onnx_pb::NodeProto &n, Scope &scope, int64_t index) {
  if (n.output().empty()) // for nobody
    return;
  Loc outer = e.loc;
  e.loc = scope.isMain || !outer ? locOf(n, index) : outer; // inside a function, the call tells more
  auto fail = [&] {
    for (auto &o : n.output()) {
      scope.failed.insert(o);
      standIn(o, scope);
    }
    e.loc = outer;
  };
  bool isBehind = false;  // reads what could not be imported
  bool isBlocked = false; // of which not even the type is known
  readNames(n, [&](const std::string &s) {
    bool failed = scope.hasFailed(s);
    isBehind |= failed;
    bool decides = n.op_type() == "If" && n.input_size() && s == n.input(0); // which branch is open
    isBlocked |= failed && (decides || !scope.find(s));
  });
  if (isTooMany(scope))
    return fail();
  if (isBlocked) {
    if (isUnknown(file, n))
      problems.unsupported(qualified(n), e.loc);
    return fail();
  }
  try {
    NodeImport node(*this, scope, n);
    if (!importCall(node)) {
      bool standard = n.domain().empty() || n.domain() == "ai.onnx" || n.domain() == "ai.onnx.preview";
      if (standard)
        upgrade(node);
      auto *import = findOnnxOp(node.op, n.domain());
      if (!import) {
        problems.unsupported(qualified(n), e.loc);
        return fail();
      }
      import(node);
      for (const std::string &a : node.unread())
        unsupported("attribute '" + a + "'");
    }
    for (int i = 0; i < n.output_size(); ++i) {
      if (n.output(i).empty())
        continue;
      Val &v = node.results()[i];
      if (!v)
        unsupported("output " + llvm::Twine(i));
      bool isFresh = v.value && v.value->def && v.value->def->loc == e.loc;
      if (isFresh && named_.insert(v.value).second)
        v.value->name = e.current().unique(n.output(i));
      scope.values[n.output(i)] = v;
      if (isBehind)
        scope.failed.insert(n.output(i));
    }
  } catch (const NodeError &err) {
    // A stand-in is no constant, and its type is but declared.
    if (err.kind == NodeError::Unsupported || (err.kind == NodeError::NotConstant && !isBehind))
      problems.unsupported(qualified(n) + " with " + err.what, e.loc);
    else if (err.kind == NodeError::Invalid && !isBehind)
      problems.invalid(err.what, e.loc);
    return fail();
  }
  e.loc = outer;
}

bool GraphImporter::importCall(NodeImport &call) {
  const onnx_pb::FunctionProto *f = file.functions.calledBy(call.node);
  if (!f)
    return false;
  Scope body;
  body.opset = file.opset("");
  for (auto &o : f->opset_import())
    if (o.domain().empty() || o.domain() == "ai.onnx")
      body.opset = o.version();
  for (auto &a : f->attribute_proto()) // defaults
    body.attributes[a.name()] = &a;
  for (auto &a : call.node.attribute()) {
    if (a.ref_attr_name().empty())
      body.attributes[a.name()] = &a;
    else if (auto i = call.scope.attributes.find(a.ref_attr_name()); i != call.scope.attributes.end())
      body.attributes[a.name()] = i->second;
  }
  body.declare(f->value_info());
  for (int i = 0; i < f->input_size(); ++i)
    body.values[f->input(i)] = call.optional(unsigned(i));
  std::vector<const onnx_pb::NodeProto *> nodes;
  for (auto &n : f->node())
    nodes.push_back(&n);
  importNodes(nodes, body);
  for (int i = 0; i < f->output_size() && i < call.node.output_size(); ++i) {
    if (body.hasFailed(f->output(i))) // reported where it failed
      throw NodeError{NodeError::Failed, ""};
    if (const Val *v = body.find(f->output(i)))
      call.out(unsigned(i), *v);
  }
  return true;
}

Vals GraphImporter::importSubgraph(const onnx_pb::GraphProto &g, ArrayRef<Val> inputs, Scope &parent) {
  Scope scope;
  scope.parent = &parent;
  scope.opset = parent.opset;
  scope.attributes = parent.attributes;
  scope.declare(g.value_info());
  scope.declare(g.output());
  for (int i = 0; i < g.input_size() && i < int(inputs.size()); ++i)
    scope.values[g.input(i).name()] = inputs[i];
  for (auto &t : g.initializer())
    scope.values[t.name()] = valueOf(t);
  std::vector<const onnx_pb::NodeProto *> nodes;
  for (auto &n : g.node())
    nodes.push_back(&n);
  importNodes(nodes, scope);
  Vals r;
  for (auto &o : g.output()) {
    if (scope.hasFailed(o.name()))
      throw NodeError{NodeError::Failed, ""};
    r.push_back(lookup(o.name(), scope, nullptr, 0));
  }
  return r;
}
