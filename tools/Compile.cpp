// Sequences what zcc does with a model: reads it, runs the passes, plans, emits, links.
#include "tools/Compile.h"
#include "codegen/CpuTarget.h"
#include "codegen/Link.h"
#include "codegen/Plan.h"
#include "codegen/PlanPage.h"
#include "codegen/cuda/CudaTarget.h"
#include "codegen/cuda/Toolkit.h"
#include "ir/Files.h"
#include "ir/Text.h"
#include "passes/Pipeline.h"
#include "passes/memory/Budget.h"
#include "passes/memory/Liveness.h"
#include "passes/train/Optimizer.h"
#include "passes/train/RaisePrecision.h"
#include "tools/Calibrate.h"
#include "tools/Exports.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

using namespace zcc;
using llvm::StringRef;

namespace {
/// One run of zcc; each phase leaves what the next ones need.
class Compilation {
public:
  explicit Compilation(const Request &r) : r(r), tool(r.tool), output(r.tool.output) {}
  llvm::Error run();

private:
  llvm::Error readOptions();
  llvm::Error checkOverwrites() const;
  llvm::Error checkSources() const;
  void takePlanned();
  llvm::Error checkOutput();
  llvm::Error checkTarget();
  void makeTarget();
  llvm::Error nameProgram();
  llvm::Error readModel();
  llvm::Error runPasses();
  llvm::Error runTiled(const Module &whole, llvm::ArrayRef<Options::TileRule> asked, int64_t count);
  llvm::Error runPipeline();
  llvm::Error makePlan();
  llvm::Error showPlan();
  llvm::Error writeReport();
  llvm::Error emit();
  void noteOptimizer() const;
  void noteElement() const;
  llvm::Error writeZir() const;
  llvm::Error writeOrPrint(StringRef text) const;
  bool isZir() const { return StringRef(r.model).ends_with(".zir") || r.model == "-"; }
  bool printsOutput() const { return output.empty() || output == "-"; }
  StringRef modelName() const { return llvm::sys::path::filename(r.model); }

  const Request &r;
  const ToolOptions &tool;
  std::string output; ///< "": none
  ImportOptions importing;
  Options options;
  DumpOptions dump;
  bool isExe = false, isBundle = false, isCuda = false;
  std::string march, isa, gpu; ///< the former two of the CPU
  std::optional<Profile> profile;
  std::unique_ptr<Target> target;
  std::optional<Config> config;
  ImportReport imported;
  std::unique_ptr<Module> module;
  std::vector<std::string> remarks; ///< of the passes
  std::shared_ptr<const PlanReport> search;
  Plan plan;
};
} // namespace

// ---- what is asked for

/// The profile that is asked for; without --profile that of this machine, if the program is for it and there is one.
static llvm::Expected<std::optional<Profile>> machineProfile(const ToolOptions &tool) {
  std::string path = tool.profile;
  if (path.empty() && tool.march == "native" && tool.target == "cpu")
    path = ownProfilePath();
  if (path.empty() || (tool.profile.empty() && !llvm::sys::fs::exists(path)))
    return std::nullopt;
  auto profile = readProfile(path);
  if (profile)
    return std::move(*profile);
  std::string why = llvm::toString(profile.takeError());
  return error(tool.profile.empty() ? why + "\nnote: zcc --calibrate makes it anew" : why);
}

llvm::Error Compilation::readOptions() {
  auto import = importOptions(r);
  if (!import)
    return import.takeError();
  importing = std::move(*import);
  auto chosen = readPassOptions(r);
  if (!chosen)
    return chosen.takeError();
  options = std::move(*chosen);
  options.inference = importing.inference;
  isCuda = tool.target == "cuda";
  auto dumps = dumpOptions();
  if (!dumps)
    return dumps.takeError();
  dump = std::move(*dumps);
  isExe = tool.emit == "exe" && dump.stopAfter.empty() && !tool.plan && !tool.check && !tool.memory;
  isBundle = tool.bundle && isExe;
  if (tool.bundle && tool.emit != "exe")
    return error("--bundle makes a program, and --emit=" + tool.emit + " does not");
  const std::pair<const char *, bool> shown[] = {{"--plan", tool.plan.has_value()},
                                                 {"--check", tool.check},
                                                 {"--print-memory", tool.memory},
                                                 {"--report", !tool.report.empty()}};
  for (auto [option, isGiven] : shown)
    if (isGiven && !dump.stopAfter.empty())
      return error(llvm::Twine(option) + " shows what is known behind the last pass: leave out --stop-after");
  if (!dump.stopAfter.empty() && (tool.bundle || tool.emit == "cpp"))
    return error(llvm::Twine(tool.bundle ? "--bundle" : "--emit=cpp") +
                 " makes what is behind the last pass: leave out --stop-after");
  if (tool.emit != "exe" && (tool.plan || tool.check))
    return error(llvm::Twine(tool.plan ? "--plan" : "--check") + " makes no file: leave out --emit=" + tool.emit);
  config = r.config;
  return llvm::Error::success();
}

/// Without -o the program is named after the model, in the current folder.
llvm::Error Compilation::nameProgram() {
  std::string name = llvm::sys::path::stem(r.model).str();
  auto refuse = [&](StringRef what) { return error("name the program: -o OUT; '" + name + "' is " + what); };
  if (r.model == "-")
    return error("name the program: -o OUT");
  if (llvm::sys::fs::equivalent(name, r.model))
    return refuse("the model");
  if (llvm::sys::fs::is_directory(name))
    return refuse("a folder");
  if (llvm::sys::fs::exists(name) && !llvm::sys::fs::can_execute(name))
    return refuse("a file that is no program");
  output = name;
  llvm::errs() << "zcc: note: the program is './" << name << "' (-o OUT names it)\n";
  return llvm::Error::success();
}

/// What is written takes the place of nothing that is read, nor of one another.
llvm::Error Compilation::checkOverwrites() const {
  std::vector<std::pair<std::string, std::string>> known = {
      {"the model", r.model}, {"the configuration", configFile()}, {"the profile", tool.profile}};
  for (const std::string &file : textsOf("weights"))
    known.push_back({"the weights", file});
  if (isZir())
    known.push_back({"the module's data", r.model + ".data"});
  const std::string made = printsOutput() || tool.plan ? "" : output;
  for (const auto &[option, file] : {std::pair("-o", &made), std::pair("--report", &tool.report)}) {
    if (file->empty())
      continue;
    for (const auto &[what, other] : known)
      if (llvm::sys::fs::equivalent(*file, other) || *file == other)
        return error(llvm::Twine(option) + " would overwrite " + what);
    known.push_back({llvm::Twine("what " + llvm::Twine(option) + " makes").str(), *file});
  }
  return llvm::Error::success();
}

/// What is read of a folder that --weights names.
static bool isWeightsFile(StringRef file) { return file.ends_with(".safetensors") || file.ends_with(".safetensors.index.json"); }

static std::string folderOf(StringRef file) {
  StringRef folder = llvm::sys::path::parent_path(file);
  return folder.empty() ? "." : folder.str();
}

/// Nor of the files that the module's weights are in, or of what is in a folder that --weights names.
llvm::Error Compilation::checkSources() const {
  const std::string made = printsOutput() || tool.plan || isExe ? "" : output; // a program is looked at when it is linked
  for (const std::string &file : {made, tool.report}) {
    if (file.empty() || !llvm::sys::fs::exists(file))
      continue;
    for (const std::string &folder : textsOf("weights"))
      if (llvm::sys::fs::is_directory(folder) && llvm::sys::fs::equivalent(folder, folderOf(file)) && isWeightsFile(file))
        return error("'" + file + "' would overwrite what --weights names");
    if (auto e = module->expectNotRead(file))
      return e;
  }
  return llvm::Error::success();
}

llvm::Error Compilation::checkOutput() {
  if (isExe && output.empty())
    if (auto e = nameProgram())
      return e;
  if (auto e = checkOverwrites())
    return e;
  if (!printsOutput() && !tool.plan) {
    if (auto e = checkWritable(output, isBundle ? Output::Folder : isExe ? Output::Program : Output::Text))
      return e;
  }
  if (!tool.report.empty())
    return checkWritable(tool.report, Output::Text);
  return llvm::Error::success();
}

llvm::Error Compilation::checkTarget() {
  if (isCuda) {
    march = tool.hostMarch;
    auto found = gpuOf(textsOf("march").empty() ? "" : tool.march);
    if (!found)
      return found.takeError();
    gpu = std::move(*found);
    if (isExe && !tool.emulate)
      if (auto e = checkToolkit())
        return e;
    if (isExe && tool.checkKernels && !hasCheckedKernels())
      return error("--check-kernels: this zcc was built with a sanitizer, whose place it would take");
  } else {
    march = tool.march;
  }
  auto known = isaOf(march, isCuda ? "--host-march" : "--march");
  if (!known)
    return known.takeError();
  isa = std::move(*known);
  auto found = machineProfile(tool);
  if (!found)
    return found.takeError();
  profile = std::move(*found);
  return llvm::Error::success();
}

/// A module in text says itself for how many ranks it is, which share the cores.
void Compilation::makeTarget() {
  if (!options.threads)
    options.threads = std::max(1, ownCores() / options.ranks);
  if (isCuda) {
    CudaDevice device = tool.checkKernels ? CudaDevice::Checked : tool.emulate ? CudaDevice::Emulated : CudaDevice::Gpu;
    target = cudaTarget(gpu, device, cpuTarget(isa, options.threads), std::move(profile), tool.tf32);
  } else {
    target = cpuTarget(isa, options.threads, std::move(profile), options.ranks);
  }
}

// ---- the model

/// What changes how a model is imported.
static constexpr const char *kImportOptions[] = {
#define ZCC_IMPORT_OPTION(NAME, ...) NAME,
#include "passes/options/Options.def"
};

/// The samples of a micro-batch: the first axis of the first input that has one.
static int64_t batchOf(const Module &m) {
  const Function *f = m.function("micro") ? m.function("micro") : m.function("eval");
  if (f)
    for (auto &a : f->args)
      if (a->type.ndim())
        return a->type.dims[0];
  return 1;
}

static llvm::Expected<std::unique_ptr<Module>> readZir(StringRef path) {
  auto text = llvm::MemoryBuffer::getFileOrSTDIN(path);
  if (!text)
    return error("cannot read '" + path + "': " + text.getError().message());
  return parse((*text)->getBuffer(), path, llvm::sys::path::parent_path(path));
}

/// Which optimizer trains where nobody has said.
void Compilation::noteOptimizer() const {
  if (importing.ownOptimizer || !module->function("micro") || module->function("algorithm"))
    return;
  double decay = options.weightDecay >= 0 ? options.weightDecay : findOptimizer(options.optimizer)->weightDecay;
  llvm::errs() << modelName() << ": note: without --optimizer it is trained by " << options.optimizer
               << llvm::format(", --lr=%g --weight-decay=%g\n", baseLr(options), decay);
}

/// Weights of 16 bits take twice as much as in the file.
void Compilation::noteElement() const {
  const GlobalValue *weight = options.isLow() ? nullptr : narrowWeight(*module);
  if (weight)
    llvm::errs() << modelName() << ": note: the file's weights are " << elemName(weight->type.elem)
                 << " and are trained in f32; --dtype=bf16 and --dtype=fp16 compute in 16 bits\n";
}

/// A module that passes have made is a program already: what it was made with stays, but for the rate that the runtime sets, and
/// budgets that the plan is held against.
void Compilation::takePlanned() {
  constexpr StringRef kStillRead[] = {"lr", "ranks", "threads", "memory", "host-memory", "nvme"};
#define ZCC_PASS_OPTION(NAME, ...)                                                                                               \
  if (r.given.count(NAME) && !llvm::is_contained(kStillRead, NAME))                                                              \
    llvm::errs() << "zcc: warning: --" NAME " has no effect: the module has been through the passes, which read it\n";
#include "passes/options/Options.def"
  options.gradAccum = module->attrs.i("grad_accum", 1);
  options.zero = int(module->attrs.i("zero", 0));
  if (const GlobalValue *rate = module->global("lr")) {
    options.optimizer = rate->attrs.s("optimizer", options.optimizer);
    options.lr = r.given.count("lr") ? options.lr : rate->init.a;
  }
}

llvm::Error Compilation::readModel() {
  if (isZir() && !importing.weights.empty())
    return error("--weights: a module in text says itself where its weights are; give --weights to the program");
  for (const char *option : kImportOptions)
    if (isZir() && !textsOf(option).empty() && !(importing.inference && option == StringRef("loss")))
      return error("--" + llvm::Twine(option) + " is for models that are imported; a module in text is what an import made");
  auto read = isZir() ? readZir(r.model) : importOnnx(r.model, importing, imported);
  for (const std::string &w : imported.warnings)
    llvm::errs() << modelName() << ": warning: " << w << '\n';
  if (!read)
    return read.takeError();
  module = std::move(*read);
  if (config)
    if (auto e = checkBatch(*config, batchOf(*module), imported.isBatchGiven))
      return e;
  const bool isParted = module->has(Property::Planned) || module->has(Property::Partitioned);
  if (isZir() && isParted && !textsOf("ranks").empty() && module->ranks != options.ranks)
    return error("--ranks=" + llvm::Twine(options.ranks) + ": the module is partitioned for " + llvm::Twine(module->ranks) +
                 (module->ranks == 1 ? " rank" : " ranks"));
  if (!isZir() || !textsOf("ranks").empty())
    module->ranks = options.ranks;
  options.ranks = module->ranks;
  options.inference |= !module->function("micro");
  if (auto e = checkSources())
    return e;
  if (isZir() && module->has(Property::Planned)) {
    takePlanned();
    return llvm::Error::success();
  }
  for (const std::string &text : idleOptions(options, r.given))
    llvm::errs() << "zcc: warning: " << text << '\n';
  if (isExe) {
    noteOptimizer();
    noteElement();
  }
  return llvm::Error::success();
}

/// A plan has room for the workspaces of the threads and the processor that it was made for.
static llvm::Error checkWorkspaces(const Module &m, const Target &target) {
  for (auto &f : m.functions)
    for (auto &n : f->nodes)
      if (!f->isKernel && target.of(computeSpace(*n)).workspaceBytes(*n) > n->attrs.i("scratch_bytes"))
        return errorAt(n->loc, "the module is planned for others than --threads=" + llvm::Twine(target.threads()) +
                                   " or another --march: '" + n->op->name + "' has too little workspace");
  return llvm::Error::success();
}

/// With --tile=auto, and by default with a budget, as few tiles as fit, and none where all fits whole: they change the last bits.
/// Where nothing fits, what is said is of those with which least is needed.
llvm::Error Compilation::runPasses() {
  if (module->has(Property::Planned)) {
    if (auto e = verifyPlan(*module))
      return e;
    return checkWorkspaces(*module, *target);
  }
  if (module->has(Property::Optimized))
    return error("the module has been through a part of the passes: zcc takes what is in front of append-optimizer or behind "
                 "plan-memory, and zcc-opt runs passes by name (--help-passes)");
  if (!options.seeksTiles())
    return runPipeline();
  const std::unique_ptr<Module> whole = std::move(module);
  const std::vector<Options::TileRule> asked = options.tileRules;
  constexpr int64_t kMost = 64;
  std::pair<int64_t, int64_t> least = {INT64_MAX, 0}; // bytes above the budgets, tiles
  for (int64_t count : {int64_t(0), int64_t(8), kMost}) {
    options.triesMoreTiles = count != kMost;
    if (auto e = runTiled(*whole, asked, count))
      return e;
    const Needs needs = needsOf(*module, options, target.get());
    if (fits(needs, options))
      return llvm::Error::success();
    const Needs over = excessOf(needs, options);
    least = std::min(least, {over.memory + over.host + over.disk, count});
  }
  return least.second == kMost ? llvm::Error::success() : runTiled(*whole, asked, least.second);
}

/// All passes on a copy, where no rule says into how many pieces, into so many.
llvm::Error Compilation::runTiled(const Module &whole, llvm::ArrayRef<Options::TileRule> asked, int64_t count) {
  module = whole.clone();
  options.tileRules = asked.vec();
  if (asked.empty() && count)
    options.tileRules.push_back({"", count});
  for (Options::TileRule &r : options.tileRules)
    r.count = r.count == Options::kAuto ? count : r.count;
  if (auto e = runPipeline())
    return e;
  if (count)
    remarks.push_back("nothing fits --memory whole: what is large is in " + std::to_string(count) +
                      " tiles, which changes the last bits of losses");
  return llvm::Error::success();
}

llvm::Error Compilation::runPipeline() {
  dump.flags = flagsOf(options);
  PassManager passes(options, dump, target.get());
  buildPipeline(passes, options);
  if (auto e = passes.run(*module))
    return e;
  remarks = passes.remarks().vec();
  search = passes.search();
  return llvm::Error::success();
}

// ---- what is shown

llvm::Error Compilation::writeOrPrint(StringRef text) const {
  if (printsOutput()) {
    llvm::outs() << text;
    return llvm::Error::success();
  }
  return writeWhole(output, text);
}

llvm::Error Compilation::writeZir() const {
  PrintOptions o;
  o.locs = dump.locs;
  if (!printsOutput())
    return writeText(*module, output, o);
  print(*module, llvm::outs(), o);
  return llvm::Error::success();
}

/// What the frontend decided, for --plan: the obvious only where it is asked for.
static std::vector<std::string> decisionsOf(const ImportReport &imported, const ImportOptions &o, bool isFull) {
  std::vector<std::string> r = imported.remarks;
  bool anyTrained = llvm::any_of(imported.parameters, [](auto &p) { return p.decision == "trained"; });
  if (anyTrained && o.train.empty() && o.freeze.empty())
    r.push_back("no file says what PyTorch keeps fixed (requires_grad=False): --freeze=REGEX names it");
  size_t obvious = 0;
  for (const ParameterRemark &p : imported.parameters) {
    if (p.isObvious && !isFull) {
      ++obvious;
      continue;
    }
    r.push_back(p.name + " (" + p.initializer + "): " + p.decision + ", " + p.evidence);
  }
  if (obvious)
    r.push_back(std::to_string(obvious) + (obvious == 1 ? " more tensor is" : " more tensors are") +
                " what the name says; --plan=full lists all");
  return r;
}

llvm::Error Compilation::makePlan() {
  auto made = zcc::makePlan(*module, options, *target);
  if (!made)
    return made.takeError();
  plan = std::move(*made);
  plan.decisions = decisionsOf(imported, importing, tool.plan == "full");
  plan.remarks = remarks;
  plan.search = search;
  if (config)
    plan.settings.insert(plan.settings.begin(), config->settings.begin(), config->settings.end());
  addFlags(plan.settings, r.given);
  return checkBudget(plan, options);
}

llvm::Error Compilation::showPlan() {
  if (tool.memory)
    if (auto e = printMemory(*module, llvm::outs()))
      return e;
  if (tool.plan == "json")
    llvm::outs() << toJson(plan) << '\n';
  else if (tool.plan)
    print(plan, llvm::outs());
  return llvm::Error::success();
}

llvm::Error Compilation::writeReport() {
  if (tool.report.empty())
    return llvm::Error::success();
  auto page = planPage(plan, *module, options);
  if (!page)
    return page.takeError();
  return writeWhole(tool.report, *page);
}

// ---- the program

llvm::Error Compilation::emit() {
  ProgramInfo info;
  info.isBundle = isBundle;
  info.options = &options;
  info.target = target.get();
  info.compileLine = r.compileLine;
  info.isa = isa;
  info.planJson = toJson(plan, JsonDetail::WithoutSchedule);
  info.timed = &plan.schedule;
  info.libraryBytes = plan.libraryBytes;
  if (config) {
    info.schedule = config->schedule;
    info.scheduleParams = config->scheduleParams;
    info.nvmePath = config->nvmePath;
  }
  info.outputFolder = folderOf(output);
  if (auto e = addExports(*module, imported, info))
    return e;
  auto program = emitProgram(*module, info);
  if (!program)
    return program.takeError();
  if (tool.check) {
    llvm::outs() << modelName() << ": everything can be compiled\n";
    return llvm::Error::success();
  }
  if (tool.emit == "cpp")
    return writeOrPrint(program->program + "\n" + llvm::join(program->kernels, "\n") + llvm::join(program->hostKernels, "\n"));
  program->optLevel = tool.optLevel;
  return isBundle ? bundle(*program, march, output) : link(*program, march, output);
}

llvm::Error Compilation::run() {
  if (auto e = readOptions())
    return e;
  if (auto e = checkOutput())
    return e;
  if (auto e = checkTarget())
    return e;
  if (auto e = readModel())
    return e;
  makeTarget();
  if (auto e = runPasses())
    return e;
  if (!dump.stopAfter.empty() || (tool.emit == "zir" && tool.report.empty() && !tool.memory))
    return writeZir();
  if (auto e = makePlan())
    return e;
  if (auto e = showPlan())
    return e;
  if (auto e = writeReport())
    return e;
  if (tool.emit == "zir")
    return writeZir();
  if (tool.plan || (tool.memory && output.empty() && !tool.check))
    return llvm::Error::success();
  return emit();
}

llvm::Error zcc::compile(const Request &r) {
  static Compilation *all; // a tool compiles once: what that holds goes with the process, not piece by piece
  all = new Compilation(r);
  return all->run();
}
