// zcc: an ONNX model (or a .zir module as it comes from the frontend) -> a native training program.
#include "codegen/CheckSchedule.h"
#include "codegen/Compilers.h"
#include "codegen/EmitProgram.h"
#include "codegen/KernelCall.h"
#include "codegen/Link.h"
#include "codegen/Plan.h"
#include "frontend/Import.h"
#include "ir/Op.h"
#include "ir/Text.h"
#include "passes/Pipeline.h"
#include "passes/memory/Liveness.h"
#include "passes/options/Config.h"
#include "passes/options/PassOptions.h"
#include "passes/train/Optimizer.h"
#include "runtime/OptionHints.h"
#include "tools/Process.h"
#include "llvm/ADT/ScopeExit.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/Errno.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace zcc;
using llvm::StringRef;
namespace cl = llvm::cl;

// ---- options

static cl::opt<std::string> model(cl::Positional, cl::desc("model.onnx"), cl::cat(optionCategory()));
static cl::opt<std::string> output("o", cl::desc("the program"), cl::value_desc("OUT"), cl::cat(optionCategory()));
static cl::opt<bool> bundled("bundle",
                             cl::desc("OUT becomes a folder that can be moved: the program and copies of "
                                      "the model's files that it reads"),
                             cl::cat(optionCategory()));
static cl::opt<std::string> target("target", cl::desc("what computes: cpu"), cl::init("cpu"), cl::value_desc("cpu|cuda"),
                                   cl::cat(optionCategory()));
static cl::opt<std::string> march("march", cl::desc("the CPU that code is generated for"), cl::value_desc("ARCH"),
                                  cl::init("native"), cl::cat(optionCategory()));
static cl::opt<std::string> loss("loss",
                                 cl::desc("the loss: an output's name, cross_entropy(logits, labels, ...) and its like, or none"),
                                 cl::value_desc("NAME"), cl::cat(optionCategory()));
static cl::list<std::string> dims("dim", cl::desc("fix a symbolic dimension"), cl::value_desc("NAME=N"),
                                  cl::cat(optionCategory()));
static cl::list<std::string> train("train", cl::desc("what is trained, instead of the default set"), cl::value_desc("REGEX"),
                                   cl::cat(optionCategory()));
static cl::list<std::string> freeze("freeze", cl::desc("what is not trained"), cl::value_desc("REGEX"),
                                    cl::cat(optionCategory()));
static cl::list<std::string> tie("tie", cl::desc("initializers that are one parameter"), cl::value_desc("A,B"),
                                 cl::cat(optionCategory()));
static cl::list<std::string> untie("untie", cl::desc("an initializer whose uses are several parameters"), cl::value_desc("A"),
                                   cl::cat(optionCategory()));
static cl::opt<std::string> batchNorm("batch-norm",
                                      cl::desc("normalise by the batch (train) or by the file's statistics (frozen)"),
                                      cl::value_desc("train|frozen"), cl::cat(optionCategory()));
static cl::opt<std::string> initWith("init", cl::desc("how initializers without data start"),
                                     cl::value_desc("pytorch|normal:STD"), cl::cat(optionCategory()));
static cl::opt<std::string> configFile("config", cl::desc("a DeepSpeed configuration; flags win over it"), cl::value_desc("FILE"),
                                       cl::cat(optionCategory()));
static cl::opt<std::string> emit("emit", cl::desc("stop early: exe, zir, cpp"), cl::init("exe"), cl::value_desc("KIND"),
                                 cl::cat(optionCategory()));
static cl::opt<std::string> plan("plan", cl::desc("memory, traffic and predicted time; no output file"), cl::ValueOptional,
                                 cl::value_desc("full|json"), cl::cat(optionCategory()));
static cl::opt<bool> check("check", cl::desc("list what cannot be compiled"), cl::cat(optionCategory()));
static cl::opt<bool> memoryTable("print-memory", cl::desc("print the bytes live at each node"), cl::cat(optionCategory()));

/// Options that the design names and that do not work yet: they are refused by name, before the
/// parser calls them unknown.
static llvm::Error refuseMissing(int argc, char **argv) {
  constexpr StringRef kMissing[] = {
      "offload-optimizer", "offload-param", "offload-activations", "checkpoint-activations", "tile", "memory",
      "host-memory",       "nvme",          "sub-group-size"};
  for (int i = 1; i < argc; ++i) {
    StringRef a = argv[i];
    if (!a.consume_front("-"))
      continue;
    a.consume_front("-");
    StringRef name = a.split('=').first;
    if (llvm::is_contained(kMissing, name))
      return error("--" + name + " is not supported yet");
  }
  return llvm::Error::success();
}

static llvm::Error checkValues() {
  if (target == "cuda")
    return error("--target=cuda: this zcc has no code generator for CUDA; there is cpu");
  if (target != "cpu")
    return error("--target must be cpu or cuda, not '" + target + "'");
  if (emit != "exe" && emit != "zir" && emit != "cpp")
    return error("--emit must be exe, zir or cpp, not '" + emit + "'");
  if (!plan.empty() && plan != "full" && plan != "json")
    return error("--plan takes nothing, full or json, not '" + plan + "'");
  return llvm::Error::success();
}

static llvm::Expected<ImportOptions> importOptions() {
  ImportOptions o;
  for (const std::string &d : dims) {
    auto [name, value] = StringRef(d).rsplit('=');
    int64_t n;
    if (name.empty() || value.getAsInteger(10, n) || n < 1)
      return error("--dim=" + d + " must be NAME=N, N above 0");
    o.dims[name.str()] = n;
  }
  o.inference = loss == "none";
  o.ownOptimizer = optimizerGiven();
  if (!o.inference)
    o.loss = loss;
  o.train.assign(train.begin(), train.end());
  o.freeze.assign(freeze.begin(), freeze.end());
  o.ties.assign(tie.begin(), tie.end());
  o.unties.assign(untie.begin(), untie.end());
  if (batchNorm == "train")
    o.batchNorm = ImportOptions::Train;
  else if (batchNorm == "frozen")
    o.batchNorm = ImportOptions::Frozen;
  else if (!batchNorm.empty())
    return error("--batch-norm must be train or frozen, not '" + batchNorm + "'");
  o.init = initWith;
  return o;
}

// ---- configuration

namespace {
/// What --config says, beside the flags that are given.
struct Configured {
  FlagValues given;
  std::optional<Config> config;
};
} // namespace
static Configured configured;

/// The configuration's text: a file's or, as from `<(...)`, what is written to a pipe.
static llvm::Expected<std::unique_ptr<llvm::MemoryBuffer>> readText(const std::string &path) {
  auto because = [](const llvm::Twine &why) { return error("cannot read it: " + why); };
  constexpr int kPatienceMs = 5000; // for a pipe's first byte
  int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0)
    return because(llvm::sys::StrError());
  auto close = llvm::make_scope_exit([&] { ::close(fd); });
  struct stat info = {};
  ::fstat(fd, &info);
  pollfd wanted = {fd, POLLIN, 0};
  if (S_ISFIFO(info.st_mode) && ::poll(&wanted, 1, kPatienceMs) == 0)
    return because("it is a pipe that nobody writes to");
  if (!S_ISREG(info.st_mode) && !S_ISFIFO(info.st_mode))
    return because("it is neither a file nor a pipe");
  ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) & ~O_NONBLOCK);
  auto text = llvm::MemoryBuffer::getOpenFile(fd, path, /*FileSize=*/-1);
  if (!text)
    return because(text.getError().message());
  return std::move(*text);
}

/// Sets the flags that the configuration means; says what a user of DeepSpeed should know.
static llvm::Error readConfig(int argc, char **argv) {
  configured.given = givenFlags(argc, argv);
  if (configFile.empty())
    return llvm::Error::success();
  auto text = readText(configFile);
  if (!text)
    return text.takeError();
  auto config = resolveConfig((*text)->getBuffer(), configured.given, flagNames());
  if (!config)
    return config.takeError();
  if (auto e = checkSchedule(config->schedule, config->scheduleParams))
    return e;
  StringRef name = llvm::sys::path::filename(configFile);
  for (const std::string &w : config->warnings)
    llvm::errs() << name << ": warning: " << w << '\n';
  for (const std::string &n : config->notes)
    llvm::errs() << name << ": note: " << n << '\n';
  for (auto &[flag, value] : config->flags)
    if (auto e = setFlag(flag, value))
      return e;
  configured.config = std::move(*config);
  return llvm::Error::success();
}

/// An error about a flag that the configuration set says so.
static llvm::Error withOrigin(llvm::Error e) {
  if (!e || !configured.config)
    return e;
  std::string text = llvm::toString(std::move(e));
  for (auto &[flag, value] : configured.config->flags)
    if (StringRef(text).contains("--" + flag))
      text += "\nnote: --" + flag + "=" + value + " comes from '" + configFile + "'";
  return error(text);
}

/// The samples of a micro-batch: the first axis of the first input that has one.
static int64_t batchOf(const Module &m) {
  const Function *f = m.function("micro") ? m.function("micro") : m.function("eval");
  if (f)
    for (auto &a : f->args)
      if (a->type.ndim())
        return a->type.dims[0];
  return 1;
}

/// The command without --ranks: with that, it is what a program under another number of ranks says.
static std::string compileLine(int argc, char **argv) {
  std::string line = "zcc";
  for (int i = 1; i < argc; ++i) {
    StringRef a = argv[i];
    StringRef name = a.ltrim('-').split('=').first;
    if (a.starts_with("-") && name == "ranks") {
      i += !a.contains('=');
      continue;
    }
    bool isPlain = !a.empty() && a.find_first_of(" '\"\\$&|;<>()*?[]#~`!{}") == StringRef::npos;
    line += isPlain ? " " + a.str() : " '" + a.str() + "'";
  }
  return line;
}

// ---- reading

/// A range of a file of the model.
static llvm::Expected<std::string> readRange(const Module &m, const ExportPiece &p) {
  llvm::SmallString<256> path(p.file);
  if (llvm::sys::path::is_relative(path) && !m.folder.empty()) {
    path = m.folder;
    llvm::sys::path::append(path, p.file);
  }
  auto data = llvm::MemoryBuffer::getFileSlice(path, p.size, p.offset);
  if (!data)
    return error("cannot read '" + path + "': " + data.getError().message());
  return (*data)->getBuffer().str();
}

/// The global that a piece of an exported file is the value of.
static llvm::Expected<const GlobalValue *> exportedGlobal(const Module &m, const ExportPiece &p) {
  const GlobalValue *g = m.global(p.global);
  if (!g)
    return error("internal: the exported file names '" + p.global + "', which is gone");
  const GlobalValue *master = m.global(g->attrs.s("master"));
  return master ? master : g;
}

static llvm::Expected<std::vector<ExportPart>> exportParts(const Module &m, const ExportTemplate &t) {
  std::vector<ExportPart> parts;
  std::string bytes;
  for (const ExportPiece &p : t.pieces) {
    if (p.kind == ExportPiece::Bytes) {
      bytes += p.bytes;
    } else if (p.kind == ExportPiece::Range) {
      auto range = readRange(m, p);
      if (!range)
        return range.takeError();
      bytes += *range;
    } else {
      auto g = exportedGlobal(m, p);
      if (!g)
        return g.takeError();
      parts.push_back({std::move(bytes), *g, p.transposed});
      bytes.clear();
    }
  }
  if (!bytes.empty())
    parts.push_back({std::move(bytes), nullptr, false});
  return parts;
}

static llvm::Expected<std::vector<ExportWeight>> exportWeights(const Module &m, llvm::ArrayRef<ExportTensor> tensors) {
  std::vector<ExportWeight> weights;
  for (const ExportTensor &t : tensors) {
    if (t.type.ndim() > ZCCRT_MAX_DIMS)
      return error("'" + t.name + "' has more than " + llvm::Twine(int(ZCCRT_MAX_DIMS)) + " axes");
    ExportWeight w{t.name, t.type, {t.data.bytes}, t.isAnother};
    if (t.data.kind == ExportPiece::Tensor) {
      auto g = exportedGlobal(m, t.data);
      if (!g)
        return g.takeError();
      w.data.global = *g;
      w.data.transposed = t.data.transposed;
    } else if (t.data.kind == ExportPiece::Range) {
      auto bytes = readRange(m, t.data);
      if (!bytes)
        return bytes.takeError();
      w.data.bytes = std::move(*bytes);
    }
    weights.push_back(std::move(w));
  }
  return weights;
}

/// Of a module in text: what it marks as exported.
static std::vector<ExportTensor> exportedGlobals(const Module &m) {
  std::vector<ExportTensor> tensors;
  for (auto &g : m.globals) {
    if (!g->exported || g->onnxName.empty())
      continue;
    ExportTensor t{g->onnxName, g->type, {}, false};
    t.data.kind = ExportPiece::Tensor;
    t.data.global = g->name;
    t.data.transposed = g->init.encoding == "transposed" && g->type.ndim() >= 2;
    if (t.data.transposed)
      std::swap(t.type.dims[t.type.ndim() - 2], t.type.dims.back());
    tensors.push_back(std::move(t));
  }
  return tensors;
}

static llvm::Expected<std::unique_ptr<Module>> readZir(StringRef path) {
  auto text = llvm::MemoryBuffer::getFileOrSTDIN(path);
  if (!text)
    return error("cannot read '" + path + "': " + text.getError().message());
  return parse((*text)->getBuffer(), path, llvm::sys::path::parent_path(path));
}

/// The cores that this process may run on.
static int cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) ? 1 : std::max(1, CPU_COUNT(&set));
}

// ---- the phases

static llvm::Error writeOrPrint(StringRef text) {
  if (output.empty() || output == "-") {
    llvm::outs() << text;
    return llvm::Error::success();
  }
  return llvm::writeToOutput(output, [&](llvm::raw_ostream &os) {
    os << text;
    return llvm::Error::success();
  });
}

static llvm::Error writeZir(const Module &m, bool locs) {
  PrintOptions o;
  o.locs = locs;
  if (output.empty() || output == "-") {
    print(m, llvm::outs(), o);
    return llvm::Error::success();
  }
  return writeText(m, output, o);
}

/// What the frontend decided, for --plan: the obvious only where it is asked for.
static std::vector<std::string> decisionsOf(const ImportReport &imported) {
  std::vector<std::string> r = imported.remarks;
  bool anyTrained = llvm::any_of(imported.parameters, [](auto &p) { return p.decision == "trained"; });
  if (anyTrained && train.empty() && freeze.empty())
    r.push_back("no file says what PyTorch keeps fixed (requires_grad=False): --freeze=REGEX names it");
  size_t obvious = 0;
  for (const ParameterRemark &p : imported.parameters) {
    if (p.isObvious && plan != "full") {
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

/// Without -o the program is named after the model, in the current folder.
static llvm::Error nameProgram() {
  std::string name = llvm::sys::path::stem(model).str();
  auto refuse = [&](StringRef what) { return error("name the program: -o OUT; '" + name + "' is " + what); };
  if (model == "-")
    return error("name the program: -o OUT");
  if (llvm::sys::fs::equivalent(name, model))
    return refuse("the model");
  if (llvm::sys::fs::is_directory(name))
    return refuse("a folder");
  if (llvm::sys::fs::exists(name) && !llvm::sys::fs::can_execute(name))
    return refuse("a file that is no program");
  output = name;
  llvm::errs() << "zcc: note: the program is './" << name << "' (-o OUT names it)\n";
  return llvm::Error::success();
}

/// Which optimizer trains where nobody has said.
static void noteOptimizer(const Module &m, const Options &o) {
  if (optimizerGiven() || !m.function("micro") || m.function("algorithm"))
    return;
  double decay = o.weightDecay >= 0 ? o.weightDecay : findOptimizer(o.optimizer)->weightDecay;
  llvm::errs() << llvm::sys::path::filename(model) << ": note: without --optimizer it is trained by " << o.optimizer
               << llvm::format(", --lr=%g --weight-decay=%g\n", baseLr(o), decay);
}

static llvm::Error compile(int argc, char **argv) {
  auto importing = importOptions();
  if (!importing)
    return importing.takeError();
  if (configured.config)
    importing->batch = configured.config->microBatch;
  auto chosen = passOptions();
  if (!chosen)
    return withOrigin(chosen.takeError());
  Options options = *chosen;
  options.inference = importing->inference;
  if (!options.threads)
    options.threads = std::max(1, cores() / options.ranks);
  DumpOptions dump = dumpOptions();
  bool showsPlan = plan.getNumOccurrences() > 0;
  bool isExe = emit == "exe" && dump.stopAfter.empty() && !showsPlan && !check && !memoryTable;
  bool isBundle = bundled && isExe;
  if (bundled && emit != "exe")
    return error("--bundle makes a program, and --emit=" + emit + " does not");
  if (isExe && output.empty())
    if (auto e = nameProgram())
      return e;
  if (!output.empty() && output != "-" && !showsPlan) {
    if (llvm::sys::fs::equivalent(output, model))
      return error("-o would overwrite the model");
    if (auto e = checkWritable(output, isBundle ? Output::Folder : Output::File))
      return e;
  }
  auto isa = isaOf(march);
  if (!isa)
    return isa.takeError();

  ImportReport imported;
  bool isZir = StringRef(model).ends_with(".zir") || model == "-";
  auto read = isZir ? readZir(model) : importOnnx(model, *importing, imported);
  for (const std::string &w : imported.warnings)
    llvm::errs() << llvm::sys::path::filename(model) << ": warning: " << w << '\n';
  if (!read)
    return read.takeError();
  Module &m = **read;
  if (configured.config)
    if (auto e = checkBatch(*configured.config, batchOf(m), !importing->dims.empty()))
      return e;
  if (!isZir || ranksGiven())
    m.ranks = options.ranks;
  options.ranks = m.ranks;

  if (isExe)
    noteOptimizer(m, options);
  PassManager passes(options, dump);
  passes.setWorkspace([&](const Node &n) { return workspaceBytes(n, options.threads); });
  if (!m.has(Property::Planned)) {
    options.inference |= !m.function("micro");
    buildPipeline(passes, options);
    if (auto e = passes.run(m))
      return e;
  } else if (auto e = verifyPlan(m)) {
    return e;
  }
  if (emit == "zir" || !dump.stopAfter.empty())
    return writeZir(m, dump.locs);

  auto p = makePlan(m, options, machineFor(*isa, options.threads));
  if (!p)
    return p.takeError();
  p->decisions = decisionsOf(imported);
  p->remarks = passes.remarks().vec();
  if (configured.config)
    p->settings.insert(p->settings.begin(), configured.config->settings.begin(), configured.config->settings.end());
  addFlags(p->settings, configured.given);
  if (memoryTable)
    if (auto e = printMemory(m, llvm::outs()))
      return e;
  if (showsPlan) {
    if (plan == "json")
      llvm::outs() << toJson(*p) << '\n';
    else
      print(*p, llvm::outs());
  }
  if (showsPlan || (memoryTable && output.empty() && !check))
    return llvm::Error::success();

  ProgramInfo info;
  info.isBundle = isBundle;
  info.options = &options;
  info.compileLine = compileLine(argc, argv);
  info.isa = *isa;
  info.planJson = toJson(*p);
  info.libraryBytes = p->libraryBytes;
  if (configured.config) {
    info.schedule = configured.config->schedule;
    info.scheduleParams = configured.config->scheduleParams;
  }
  StringRef folder = llvm::sys::path::parent_path(output);
  info.outputFolder = folder.empty() ? "." : folder.str();
  for (auto [form, parts] :
       {std::pair(&imported.inferenceForm, &info.onnx), std::pair(&imported.trainingForm, &info.onnxTrain)}) {
    auto made = exportParts(m, *form);
    if (!made)
      return made.takeError();
    *parts = std::move(*made);
  }
  info.onnxIndex = imported.inferenceForm.index;
  bool isText = imported.state.empty() && imported.inferenceForm.pieces.empty();
  auto weights = exportWeights(m, isText ? exportedGlobals(m) : imported.state);
  if (!weights)
    return weights.takeError();
  info.weights = std::move(*weights);
  info.absent = imported.absent;
  auto program = emitProgram(m, info);
  if (!program)
    return program.takeError();
  if (check) {
    llvm::outs() << llvm::sys::path::filename(model) << ": everything can be compiled\n";
    return llvm::Error::success();
  }
  if (emit == "cpp")
    return writeOrPrint(program->program + "\n" + llvm::join(program->kernels, "\n"));
  return isBundle ? bundle(*program, march, output) : link(*program, march, output);
}

static int run(int argc, char **argv) {
  if (report("zcc", refuseMissing(argc, argv)))
    return 1;
  if (!parseCommandLine(argc, argv, "zcc: compiles an ONNX model to a native training program",
                        [](auto &name, auto &known) { return zccrt::optionHint(zccrt::Tool::Compiler, name, known); }))
    return 1;
  if (printTables([] { printOnnxOps(llvm::outs()); }))
    return 0;
  if (!model.empty() && model != "-" && !llvm::sys::fs::exists(model))
    return report("zcc", error("no such file: '" + model + "'"));
  if (report(llvm::sys::path::filename(configFile), readConfig(argc, argv)))
    return 1;
  if (report("zcc", withOrigin(checkValues())))
    return 1;
  if (model.empty()) {
    llvm::errs() << "zcc: error: no model; usage: zcc [options] model.onnx -o OUT\n";
    return 1;
  }
  return report(llvm::sys::path::filename(model), compile(argc, argv));
}

int main(int argc, char **argv) { return zcc::runTool(argc, argv, run, stopCompilers); }
