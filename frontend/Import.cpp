// The frontend's top: file -> decisions about parameters -> @micro and @eval -> what is exported.
#include "frontend/Import.h"
#include "frontend/KeepAll.h"
#include "frontend/Loss.h"
#include "frontend/Metric.h"
#include "frontend/ops/ImportTraining.h"
#include "frontend/parameters/Decision.h"
#include "frontend/parameters/Draw.h"
#include "frontend/parameters/TakeWeights.h"
#include "ir/Control.h"
#include "ir/Verifier.h"
#include "onnx.pb.h"
#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Path.h"

using namespace zcc;
using llvm::StringRef;

// ---- symbolic dimensions

/// Refuses dimensions that are not fixed, all at once, and --dim names that the model has not.
static llvm::Error checkDims(const OnnxFile &file, const ImportOptions &options) {
  std::vector<std::string> open, all;
  for (auto &input : file.graph().input()) {
    if (file.initializer(input.name()))
      continue;
    auto &shape = input.type().tensor_type().shape();
    for (int i = 0; i < shape.dim_size(); ++i) {
      auto &d = shape.dim(i);
      if (d.has_dim_value() && d.dim_value() >= 0)
        continue;
      std::string symbol = d.dim_param().empty() ? input.name() + "." + std::to_string(i) : d.dim_param();
      if (llvm::is_contained(all, symbol))
        continue;
      all.push_back(symbol);
      if (!options.dims.count(symbol))
        open.push_back(symbol);
    }
  }
  for (auto &[name, n] : options.dims) {
    if (n < 1)
      return error("--dim=" + name + "=" + llvm::Twine(n) + ": a dimension is 1 or more");
    if (llvm::is_contained(all, name))
      continue;
    std::string near = nearest(name, all);
    return error("--dim=" + name + "=" + llvm::Twine(n) + ": the model's inputs have no dimension '" + name + "'" +
                 (!near.empty() ? "; did you mean '" + near + "'?"
                  : all.empty() ? "; all of its dimensions are fixed"
                                : "; they have " + llvm::join(all, ", ")));
  }
  if (open.empty())
    return llvm::Error::success();
  std::string flags;
  for (const std::string &s : open)
    flags += " --dim=" + s + "=N";
  return error((open.size() == 1 ? "dimension '" : "dimensions '") + llvm::join(open, "', '") +
               (open.size() == 1 ? "' is not fixed" : "' are not fixed") + "; give" + flags);
}

/// Fixes the symbolic first axis of the inputs, where there is one, --dim does not (`isGiven`) and there is a batch to take.
/// Several of them stay open, for --dim to decide.
static void bindBatch(const OnnxFile &file, ImportOptions &options, bool &isGiven) {
  std::string batch;
  for (auto &input : file.graph().input()) {
    auto &shape = input.type().tensor_type().shape();
    if (file.initializer(input.name()) || !shape.dim_size() || shape.dim(0).has_dim_value())
      continue;
    std::string symbol = shape.dim(0).dim_param();
    if (symbol.empty())
      symbol = input.name() + ".0";
    isGiven |= options.dims.count(symbol) > 0;
    if (options.dims.count(symbol) || symbol == batch)
      continue;
    if (!batch.empty())
      return;
    batch = symbol;
  }
  if (!batch.empty() && options.batch)
    options.dims[batch] = options.batch;
}

// ---- one function

namespace {
struct Built {
  Val loss;
  std::string lossName;
};
} // namespace

/// Adds the results of @eval that are not the loss.
static void addOutputs(GraphImporter &g, std::vector<std::pair<std::string, Val>> &results, bool lossIsAdded) {
  for (auto &o : g.file.graph().output()) {
    if (!results.empty() && o.name() == results[0].first && !lossIsAdded)
      continue;
    try {
      results.emplace_back(o.name(), g.lookup(o.name(), g.main, nullptr, 0));
      if (results.back().second.list)
        unsupported("a sequence, which is not supported");
    } catch (const NodeError &e) {
      g.problems.add(error("output '" + o.name() + "': " + e.what));
    }
  }
}

/// Imports the graph into a function and puts its results in place. What is wrong is among the
/// problems.
static void buildFunction(GraphImporter &g, const LossSpec &spec, llvm::ArrayRef<MetricSpec> metrics, Built &built) {
  g.run();
  bool hasAll = llvm::all_of(g.file.graph().output(), [&](auto &o) { return g.main.find(o.name()) != nullptr; });
  if (g.problems.any() && !hasAll)
    return;
  std::vector<std::pair<std::string, Val>> results;
  if (!g.options.inference) {
    auto loss = buildLoss(g, spec, built.lossName);
    if (!loss)
      return g.problems.add(loss.takeError());
    built.loss = *loss;
    results.emplace_back(built.lossName, *loss);
  }
  if (g.problems.any())
    return;
  if (g.mode == Mode::Eval)
    addOutputs(g, results, spec.isAdded());
  if (auto e = buildMetrics(g, metrics, spec, results))
    return g.problems.add(std::move(e));
  if (g.problems.any())
    return;
  try {
    for (auto &[name, v] : results) {
      g.e.loc = makeLoc(name);
      g.e.fn.results.push_back(g.e.materialize(v));
      g.e.fn.resultNames.push_back(name);
    }
  } catch (const NodeError &e) {
    g.problems.add(error(e.what));
  }
}

/// For the exported graph.
static GraphValues valuesOf(const GraphImporter &g, const LossSpec &spec, const std::string &loss) {
  GraphValues v;
  for (auto &entry : g.main.values)
    if (!entry.second.list)
      v.types[entry.first()] = entry.second.type;
  for (auto &input : g.file.graph().input())
    for (auto &d : input.type().tensor_type().shape().dim())
      v.hasOpenDims |= !d.has_dim_value();
  (spec.isAdded() ? v.lossOf : v.loss) = spec.isAdded() ? spec.output : loss;
  return v;
}

/// Bodies of nodes that went, and of loops that were unrolled in the end.
static void dropUnusedBodies(Module &m) {
  for (bool again = true; again;) {
    again = false;
    for (size_t i = m.functions.size(); i-- > 0;)
      if (Function *f = m.functions[i].get(); f->isBody && callersOf(*f).empty()) {
        m.eraseFunction(f);
        again = true;
      }
  }
}

/// Inputs that neither function reads need not be given.
static void dropUnusedInputs(Module &m, ImportReport &report) {
  Function *first = m.functions[0].get();
  std::vector<std::string> unused;
  for (auto &a : first->args) {
    bool used = false;
    for (auto &f : m.functions)
      if (Value *v = f->isEntry() ? f->arg(a->name) : nullptr)
        used |= v->hasUses() || llvm::is_contained(f->results, v);
    if (!used)
      unused.push_back(a->name);
  }
  for (const std::string &name : unused) {
    report.remarks.push_back("input '" + name + "' is not used and need not be given");
    for (auto &f : m.functions) {
      if (!f->isEntry())
        continue;
      llvm::erase_if(f->args, [&](auto &a) { return a->name == name; });
      for (unsigned i = 0; i < f->args.size(); ++i)
        f->args[i]->index = i;
    }
  }
}

/// Constants that only folding looked at.
static void dropUnusedGlobals(Module &m, Parameters &parameters) {
  std::vector<GlobalValue *> unused;
  for (auto &p : parameters.all()) {
    GlobalValue *g = p->global;
    if (!g || g->hasUses() || p->role == Parameter::Trained)
      continue;
    bool isResult = llvm::any_of(m.functions, [&](auto &f) { return llvm::is_contained(f->results, g); });
    if (isResult || p->role == Parameter::Statistic)
      continue;
    p->global = nullptr;
    unused.push_back(g);
  }
  m.eraseGlobals(unused);
}

/// The initialization that the file brings is evaluated, and sets the initializers.
static llvm::Error initialize(OnnxFile &file, const ImportOptions &options, ImportReport &report) {
  Module scratch;
  Parameters none;
  Problems problems;
  GraphImporter g(file, options, none, scratch, *scratch.addFunction("init"), Mode::Training, problems, report);
  auto values = initialValues(g);
  if (!values)
    return values.takeError();
  for (InitialValue &v : *values)
    file.initialize(std::move(v));
  return llvm::Error::success();
}

/// What contradicts a training algorithm in the file.
static llvm::Error checkAlgorithm(const TrainingAlgorithm &t, const ImportOptions &options) {
  auto refuse = [&](StringRef flag) {
    return error(flag + ": the model brings its own training algorithm, which minimises '" + t.loss +
                 "' and says what is trained; --optimizer=NAME trains without it");
  };
  if (!options.loss.empty() && options.loss != t.loss)
    return refuse("--loss=" + options.loss);
  if (!options.train.empty())
    return refuse("--train");
  if (!options.freeze.empty())
    return refuse("--freeze");
  return llvm::Error::success();
}

/// The file's training step as `@algorithm`.
static llvm::Error addAlgorithm(const OnnxFile &file, const ImportOptions &options, Parameters &parameters, Module &module,
                                Problems &problems, ImportReport &report) {
  Function *f = module.addFunction("algorithm");
  GraphImporter g(file, options, parameters, module, *f, Mode::Training, problems, report);
  if (auto e = importAlgorithm(g, *file.training))
    return e;
  eraseDeadNodes(*f); // what no result needs
  report.remarks.push_back("the model's own training algorithm updates " + std::to_string(file.training->updates.size()) +
                           " initializers (--optimizer=NAME trains without it)");
  return llvm::Error::success();
}

/// What the operators' importers let through although the IR has no meaning for it: said here, about the model's nodes,
/// and not by whatever pass comes first.
static llvm::Error verifyImport(const Module &m, StringRef file) {
  Problems problems;
  for (const Violation &v : violations(m)) {
    Loc loc = v.node ? v.node->loc : v.global ? v.global->loc : nullptr;
    problems.invalid(withoutRule(v.text).str(), loc);
  }
  return problems.take(file);
}

/// The file, with external data from where --weights may say they are.
static llvm::Expected<std::unique_ptr<OnnxFile>> openModel(StringRef path, const ImportOptions &options, bool &goesByName) {
  auto dataFolder = dataFolderOf(options);
  if (!dataFolder)
    return dataFolder.takeError();
  goesByName = !options.weights.empty() && dataFolder->empty();
  auto missing = options.init.empty() && !goesByName ? MissingData::Refuse : MissingData::Allow;
  auto use = options.inference ? UseAlgorithm::No : options.ownOptimizer ? UseAlgorithm::Loss : UseAlgorithm::Yes;
  return OnnxFile::open(path, missing, use, *dataFolder);
}

static void warnUntrained(const Module &m, const ImportOptions &options, ImportReport &report) {
  if (options.inference || llvm::any_of(m.globals, [](auto &g) { return g->trained; }))
    return;
  report.warnings.push_back(options.freeze.empty()
                                ? "nothing is trained: the model has no initializer that looks like a weight; "
                                  "name some with --train=REGEX"
                                : "nothing is trained: --freeze leaves no initializer that looks like a weight");
}

/// Of @eval.
static void dropNothing(Function &f, ImportReport &report) {
  if (keepAll(f))
    report.warnings.push_back(
        "Dropout of channels or stochastic depth is written out in the file: evaluation keeps all, but an ONNX "
        "graph that is exported drops as in training");
}

llvm::Expected<std::unique_ptr<Module>> zcc::importOnnx(StringRef path, const ImportOptions &given, ImportReport &report) {
  ImportOptions options = given;
  bool goesByName = false;
  auto file = openModel(path, options, goesByName);
  if (!file)
    return file.takeError();
  report.warnings = (*file)->warnings;
  bindBatch(**file, options, report.isBatchGiven);
  Problems problems;
  if (auto e = checkDims(**file, options)) { // without them only names of operators can be looked at
    problems.add(std::move(e));
    findUnknown(**file, problems);
    return problems.take((*file)->name);
  }
  auto &training = (*file)->training;
  bool runsAlgorithm = training && !options.ownOptimizer;
  if (runsAlgorithm)
    if (auto e = checkAlgorithm(*training, options))
      return e;
  if ((*file)->model().training_info_size())
    if (auto e = initialize(**file, options, report))
      return e;
  if (!(*file)->runtimeParameters.empty())
    report.remarks.push_back("a training graph of ONNX Runtime: its forward is used");
  auto spec = parseLoss(options.inference ? "" : training && options.loss.empty() ? training->loss : options.loss);
  if (!spec)
    return spec.takeError();
  auto metrics = parseMetrics(options.metrics);
  if (!metrics)
    return metrics.takeError();
  if (options.inference && !metrics->empty())
    return error("--metric=" + (*metrics)[0].text + " is reported beside the loss; with --loss=none there is none");
  auto parameters = Parameters::decide(**file, options, report);
  if (!parameters)
    return parameters.takeError();
  if (goesByName)
    if (auto e = takeWeights(**file, options, **parameters, report))
      return e;

  auto module = std::make_unique<Module>();
  module->name = llvm::sys::path::stem(path).str();
  module->folder = (*file)->folder;
  Built built;
  GraphValues values;
  for (Mode mode : {Mode::Training, Mode::Eval}) {
    if (mode == Mode::Training && options.inference)
      continue;
    Function *f = module->addFunction(mode == Mode::Training ? "micro" : "eval");
    GraphImporter g(**file, options, **parameters, *module, *f, mode, problems, report);
    buildFunction(g, *spec, *metrics, built);
    if (mode == Mode::Eval && !problems.any())
      dropNothing(*f, report);
    eraseDeadNodes(*f); // what no result needs
    if (mode == Mode::Eval)
      values = valuesOf(g, *spec, built.lossName);
  }
  if (runsAlgorithm && !problems.any())
    problems.add(addAlgorithm(**file, options, **parameters, *module, problems, report));
  if (problems.any())
    return problems.take((*file)->name);
  dropUnusedBodies(*module);
  module->attrs.set("loss", built.lossName);
  noteMetrics(*module, *metrics);
  dropUnusedInputs(*module, report);
  dropUnusedGlobals(*module, **parameters);
  if (auto e = drawMissing(**file, options, **parameters, *module))
    return e;
  warnUntrained(*module, options, report);
  if (auto e = verifyImport(*module, (*file)->name))
    return e;
  auto state = exportedState(**file, **parameters);
  if (!state)
    return state.takeError();
  report.state = std::move(*state);
  report.absent = listed((*parameters)->absent());
  report.inferenceForm = makeExportTemplate(**file, **parameters, values, ExportForm::Inference);
  report.trainingForm = makeExportTemplate(**file, **parameters, values, ExportForm::Training);
  return module;
}
