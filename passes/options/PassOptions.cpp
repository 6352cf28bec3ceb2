// Declares the shared options, parses the command line, and turns it into Options and back.
#include "passes/options/PassOptions.h"
#include "ir/Pattern.h"
#include "ir/Text.h"
#include "passes/options/Flags.h"
#include "passes/train/Optimizer.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/ErrorHandling.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <unistd.h>

using namespace zcc;
using llvm::StringRef;
using llvm::Twine;
namespace cl = llvm::cl;

static cl::OptionCategory category("zcc options");
cl::OptionCategory &zcc::optionCategory() { return category; }

// ---- what steers the passes

// Numbers are strings here, so that a bad one is our error: see number().
using Text = cl::opt<std::string>;

static Text ranks("ranks", cl::desc("data-parallel ranks the program is compiled for"), cl::value_desc("N"), cl::init("1"),
                  cl::cat(category));
static Text threads("threads", cl::desc("threads a rank computes with (0: its cores)"), cl::value_desc("N"), cl::init("0"),
                    cl::cat(category));
static Text zero("zero", cl::desc("ZeRO stage: 1 partitions optimizer state, 2 also gradients, 3 also parameters"),
                 cl::value_desc("STAGE"), cl::init("0"), cl::cat(category));
static Text gradAccum("grad-accum", cl::desc("micro-batches per step"), cl::value_desc("K"), cl::init("1"), cl::cat(category));
static Text optimizer("optimizer",
                      cl::desc("adamw, adam, sgd or adagrad as in PyTorch, lamb or lion as in "
                               "DeepSpeed"),
                      cl::value_desc("NAME"), cl::init("adamw"), cl::cat(category));
static Text lr("lr", cl::desc("learning rate (default: PyTorch's for the optimizer)"), cl::value_desc("X"), cl::cat(category));
static Text betas("betas", cl::desc("decay rates of the moments: adamw, adam, lamb, lion"), cl::value_desc("B1,B2"),
                  cl::init("0.9,0.999"), cl::cat(category));
static Text eps("eps", cl::desc("added to the denominator (default: 1e-8, adagrad 1e-10)"), cl::value_desc("X"),
                cl::cat(category));
static Text weightDecay("weight-decay", cl::desc("weight decay (default: PyTorch's for the optimizer)"), cl::value_desc("X"),
                        cl::cat(category));
static Text momentum("momentum", cl::desc("SGD's momentum"), cl::value_desc("X"), cl::init("0"), cl::cat(category));
static cl::opt<bool> nesterov("nesterov", cl::desc("Nesterov's momentum for SGD"), cl::cat(category));
static Text biasCorrection("bias-correction", cl::desc("correct the moments' start at 0, adamw, adam, lamb: on, off"),
                           cl::value_desc("on|off"), cl::init("on"), cl::cat(category));
static cl::opt<bool> cycleMomentum("cycle-momentum", cl::desc("the schedule sets the first of --betas at each step"),
                                   cl::cat(category));
static Text lrDecay("lr-decay", cl::desc("adagrad: the rate is lr / (1 + step * X)"), cl::value_desc("X"), cl::init("0"),
                    cl::cat(category));
static Text initialAccumulator("initial-accumulator-value", cl::desc("adagrad: where the sums of squares start"),
                               cl::value_desc("X"), cl::init("0"), cl::cat(category));
static Text maxCoeff("max-coeff", cl::desc("lamb: the largest ratio of norms"), cl::value_desc("X"), cl::init("10"),
                     cl::cat(category));
static Text minCoeff("min-coeff", cl::desc("lamb: the smallest ratio of norms"), cl::value_desc("X"), cl::init("0.01"),
                     cl::cat(category));
static Text dtype("dtype", cl::desc("compute type: fp32, bf16 or fp16; 16 bits keep fp32 master weights"), cl::value_desc("TYPE"),
                  cl::init("fp32"), cl::cat(category));
static Text lossScale("loss-scale", cl::desc("fp16: the loss's factor (0: dynamic)"), cl::value_desc("X"), cl::init("0"),
                      cl::cat(category));
static Text initialScalePower("initial-scale-power", cl::desc("fp16: the dynamic loss scale starts at 2^N"), cl::value_desc("N"),
                              cl::init("16"), cl::cat(category));
static Text lossScaleWindow("loss-scale-window", cl::desc("fp16: steps without overflow until the scale is doubled"),
                            cl::value_desc("N"), cl::init("1000"), cl::cat(category));
static Text lossScaleHysteresis("loss-scale-hysteresis", cl::desc("fp16: overflows until the scale is halved"),
                                cl::value_desc("N"), cl::init("2"), cl::cat(category));
static Text minLossScale("min-loss-scale", cl::desc("fp16: the least dynamic loss scale"), cl::value_desc("X"), cl::init("1"),
                         cl::cat(category));
static Text checkGradOverflow("check-grad-overflow",
                              cl::desc("bf16: skip the steps whose gradients are not finite; fp16 always does"),
                              cl::value_desc("on|off"), cl::init("on"), cl::cat(category));
static Text clipGradNorm("clip-grad-norm", cl::desc("clip the global norm of the gradients to X"), cl::value_desc("X"),
                         cl::init("0"), cl::cat(category));
static cl::list<std::string> paramGroups("param-group",
                                         cl::desc("other hyper-parameters for the parameters that match; first match wins"),
                                         cl::value_desc("REGEX:weight-decay=0,lr-scale=0.1"), cl::cat(category));
static Text overlap("overlap", cl::desc("start reductions while the backward runs: on, off"), cl::value_desc("on|off"),
                    cl::init("on"), cl::cat(category));

static Text prefetch("prefetch", cl::desc("gather parameters before they are needed: on, off"), cl::value_desc("on|off"),
                     cl::init("on"), cl::cat(category));
static Text reduceBucket("reduce-bucket-size", cl::desc("elements of gradients that one collective reduces (default: derived)"),
                         cl::value_desc("N"), cl::cat(category));
static Text gatherBucket("allgather-bucket-size",
                         cl::desc("elements of parameters that one collective gathers (default: derived)"), cl::value_desc("N"),
                         cl::cat(category));
static Text persistence("param-persistence-threshold",
                        cl::desc("stage 3: parameters up to this size stay whole (default: derived)"), cl::value_desc("N"),
                        cl::cat(category));
static Text maxLive("max-live-parameters", cl::desc("stage 3: elements gathered at once (default: derived)"), cl::value_desc("N"),
                    cl::cat(category));
static Text maxReuse("max-reuse-distance", cl::desc("stage 3: elements between two uses served by one gather (default: derived)"),
                     cl::value_desc("N"), cl::cat(category));

// ---- what is shown and checked

static cl::list<std::string> printBefore("print-ir-before", cl::desc("print the IR before a pass"), cl::value_desc("PASS"),
                                         cl::CommaSeparated, cl::cat(category));
static cl::list<std::string> printAfter("print-ir-after", cl::desc("print the IR after a pass"), cl::value_desc("PASS"),
                                        cl::CommaSeparated, cl::cat(category));
static cl::opt<bool> printAfterAll("print-ir-after-all", cl::desc("print the IR after each pass"), cl::cat(category));
static cl::opt<bool> printAfterChange("print-ir-after-change", cl::desc("print the IR after each pass that changed it"),
                                      cl::cat(category));
static cl::opt<std::string> treeDir("print-ir-tree-dir", cl::desc("write the IR after each pass to files in a folder"),
                                    cl::value_desc("DIR"), cl::cat(category));
static cl::opt<bool> printLocs("print-locs", cl::desc("print the location of each node"), cl::cat(category));
static cl::opt<std::string> stopAfter("stop-after", cl::desc("stop after the first run of a pass"), cl::value_desc("PASS"),
                                      cl::cat(category));
static cl::list<std::string> disablePass("disable-pass", cl::desc("leave out a pass"), cl::value_desc("PASS"), cl::CommaSeparated,
                                         cl::cat(category));
static cl::opt<bool> timePasses("time-passes", cl::desc("print how long each pass took, and the steps it counted"),
                                cl::cat(category));
static cl::opt<bool> verifyEach("verify-each", cl::desc("verify the IR after each pass (default)"), cl::init(true),
                                cl::cat(category));
static cl::opt<bool> verifyText("verify-roundtrip", cl::desc("check after each pass that the text reads back the same"),
                                cl::cat(category));
// ---- parsing

std::string zcc::nearestOption(const std::string &name, const std::vector<std::string> &known) {
  std::string near = nearest(name, known);
  return near.empty() ? "" : "; did you mean '--" + near + "'?";
}

/// Refuses options that there are not: LLVM's parser takes them for the nearest beginning, such as -o.
static bool expectKnown(int argc, const char *const *argv, OptionHint hint) {
  auto &all = cl::getRegisteredOptions();
  for (int i = 1; i < argc && StringRef(argv[i]) != "--"; ++i) {
    StringRef arg = argv[i], name = arg;
    if (!name.consume_front("-") || name.empty())
      continue;
    name.consume_front("-");
    name = name.split('=').first;
    auto option = all.find(name);
    if (option == all.end()) {
      std::string more = hint(name.str(), flagNames()), tool = llvm::sys::path::filename(argv[0]).str();
      llvm::errs() << tool << ": error: unknown option '" << arg.split('=').first << "'" << more << '\n';
      if (more.empty())
        llvm::errs() << "note: '" << tool << " --help' lists the options\n";
      return false;
    }
    bool takesNext = option->second->getValueExpectedFlag() == cl::ValueRequired;
    i += takesNext && !arg.contains('=');
  }
  return true;
}

/// LLVM's last word: standard output or a file could not be written.
static void onFatalError(void *tool, const char *text, bool) {
  fprintf(stderr, "%s: error: %s\n", static_cast<const char *>(tool), text);
  _exit(1);
}

bool zcc::parseCommandLine(int argc, const char *const *argv, StringRef overview, OptionHint hint) {
  const char *slash = strrchr(argv[0], '/');
  llvm::install_fatal_error_handler(onFatalError, const_cast<char *>(slash ? slash + 1 : argv[0]));
  if (noteHelp(argc, argv, overview))
    return true;
  if (!expectKnown(argc, argv, hint))
    return false;
  std::string said;
  llvm::raw_string_ostream os(said);
  cl::HideUnrelatedOptions(category);
  if (cl::ParseCommandLineOptions(argc, argv, overview, &os))
    return true;
  if (said.empty())
    return false; // a value, reported by the option
  // "TOOL: Something is wrong!  Try: ...\n"
  auto [tool, text] = StringRef(os.str()).split('\n').first.split(": ");
  std::string msg = text.split(".  Try:").first.rtrim("!.").str();
  if (!msg.empty())
    msg[0] = llvm::toLower(msg[0]);
  llvm::errs() << tool << ": error: " << msg << "\nnote: '" << tool << " --help' lists the options\n";
  return false;
}

static bool parseNumber(StringRef s, double &v) {
  auto [end, err] = std::from_chars(s.begin(), s.end(), v);
  return err == std::errc() && end == s.end() && std::isfinite(v);
}

/// "REGEX:weight-decay=0,lr-scale=0.1"; the regular expression may hold colons.
static llvm::Expected<Options::ParamGroup> parseGroup(StringRef text) {
  auto [regex, settings] = text.rsplit(':');
  auto fail = [&](const Twine &msg) { return error("--param-group=" + text + ": " + msg); };
  if (settings.empty() || regex.empty())
    return fail("expected REGEX:weight-decay=X,lr-scale=X");
  Options::ParamGroup g;
  g.regex = regex.str();
  if (auto pattern = readPattern(regex); !pattern)
    return fail(llvm::toString(pattern.takeError()));
  llvm::SmallVector<StringRef> parts;
  settings.split(parts, ',');
  for (StringRef p : parts) {
    auto [name, value] = p.split('=');
    double v;
    if (!parseNumber(value, v) || v < 0)
      return fail("'" + p + "' needs a number that is not negative");
    if (name == "weight-decay")
      g.weightDecay = v;
    else if (name == "lr-scale")
      g.lrScale = v;
    else
      return fail("unknown setting '" + name + "'; there are weight-decay and lr-scale");
  }
  return g;
}

static llvm::Error number(const Text &o, double &to) {
  if (parseNumber(o, to) && to >= 0)
    return llvm::Error::success();
  return error("--" + o.ArgStr + " must be a number, 0 or more, not '" + o + "'");
}

template <typename T> static llvm::Error integer(const Text &o, T least, T most, T &to) {
  if (!StringRef(o).getAsInteger(10, to) && to >= least && to <= most)
    return llvm::Error::success();
  return error("--" + o.ArgStr + " must be " +
               (least == most ? Twine(least) : "an integer from " + Twine(least) + " to " + Twine(most)) + ", not '" + o + "'");
}

static llvm::Error readNumbers(Options &o) {
  constexpr int kMost = 1 << 20;
  if (auto e = integer(ranks, 1, kMost, o.ranks))
    return e;
  if (auto e = integer(threads, 0, kMost, o.threads))
    return e;
  if (auto e = integer(zero, 0, 3, o.zero))
    return e;
  for (auto [flag, to] : {std::pair(&reduceBucket, &o.reduceBucket),
                          {&gatherBucket, &o.gatherBucket},
                          {&persistence, &o.persistence},
                          {&maxLive, &o.maxLive},
                          {&maxReuse, &o.maxReuse}})
    if (flag->getNumOccurrences())
      if (auto e = integer<int64_t>(*flag, 0, int64_t(1) << 60, *to))
        return e;
  if (auto e = integer(gradAccum, 1, kMost, o.gradAccum))
    return e;
  for (auto [flag, most, to] : {std::tuple(&initialScalePower, 100, &o.initialScalePower),
                                {&lossScaleWindow, kMost, &o.lossScaleWindow},
                                {&lossScaleHysteresis, kMost, &o.lossScaleHysteresis}})
    if (auto e = integer(*flag, flag == &initialScalePower ? 0 : 1, most, *to))
      return e;
  for (auto [flag, to] : {std::pair(&momentum, &o.momentum),
                          {&clipGradNorm, &o.clipGradNorm},
                          {&lossScale, &o.lossScale},
                          {&minLossScale, &o.minLossScale},
                          {&lrDecay, &o.lrDecay},
                          {&initialAccumulator, &o.initialAccumulator},
                          {&maxCoeff, &o.maxCoeff},
                          {&minCoeff, &o.minCoeff}})
    if (auto e = number(*flag, *to))
      return e;
  for (auto [flag, to] : {std::pair(&lr, &o.lr), {&weightDecay, &o.weightDecay}, {&eps, &o.eps}})
    if (flag->getNumOccurrences())
      if (auto e = number(*flag, *to))
        return e;
  return llvm::Error::success();
}

static llvm::Error onOff(const Text &o, bool &to) {
  to = o == "on";
  if (!to && o != "off")
    return error("--" + o.ArgStr + " must be on or off, not '" + o + "'");
  return llvm::Error::success();
}

/// The optimizer and what it has; a setting that it has not is refused.
static llvm::Error readOptimizer(Options &o) {
  o.optimizer = optimizer;
  o.nesterov = nesterov;
  o.cycleMomentum = cycleMomentum;
  if (auto e = onOff(biasCorrection, o.biasCorrection))
    return e;
  if (auto e = checkOptimizer(o))
    return e;
  using D = OptimizerDef;
  const std::pair<const cl::Option *, unsigned> settings[] = {{&betas, D::Betas},         {&eps, D::Eps},
                                                              {&momentum, D::Momentum},   {&biasCorrection, D::BiasCorrection},
                                                              {&lrDecay, D::Accumulator}, {&initialAccumulator, D::Accumulator},
                                                              {&maxCoeff, D::Coeff},      {&minCoeff, D::Coeff}};
  for (auto [flag, use] : settings)
    if (flag->getNumOccurrences() && !(findOptimizer(o.optimizer)->uses & use))
      return error("--" + flag->ArgStr + " is no setting of --optimizer=" + o.optimizer);
  return llvm::Error::success();
}

static constexpr std::pair<const char *, Elem> kTypes[] = {{"fp32", Elem::F32}, {"bf16", Elem::BF16}, {"fp16", Elem::F16}};

static llvm::Expected<Elem> elementOf(StringRef type) {
  for (auto [name, elem] : kTypes)
    if (type == name)
      return elem;
  return error("--dtype must be fp32, bf16 or fp16, not '" + type + "'");
}

static std::string typeName(Elem e) {
  for (auto [name, elem] : kTypes)
    if (e == elem)
      return name;
  llvm_unreachable("no such --dtype");
}

llvm::Expected<Options> zcc::passOptions() {
  Options o;
  if (llvm::Error e = readNumbers(o))
    return e;
  if (auto e = readOptimizer(o))
    return e;
  auto element = elementOf(dtype);
  if (!element)
    return element.takeError();
  o.dtype = *element;
  for (const cl::Option *flag : std::initializer_list<const cl::Option *>{&lossScale, &initialScalePower, &lossScaleWindow,
                                                                          &lossScaleHysteresis, &minLossScale})
    if (flag->getNumOccurrences() && o.dtype != Elem::F16)
      return error("--" + flag->ArgStr + " needs --dtype=fp16");
  if (checkGradOverflow.getNumOccurrences() && o.dtype != Elem::BF16)
    return error("--check-grad-overflow needs --dtype=bf16");
  if (o.dtype == Elem::F16 && o.lossScale == 0 && o.minLossScale <= 0)
    return error("--min-loss-scale must be above 0");
  auto [b1, b2] = StringRef(betas).split(',');
  for (auto [text, to] : {std::pair(b1, &o.beta1), std::pair(b2, &o.beta2)})
    if (!parseNumber(text, *to) || *to < 0 || *to >= 1)
      return error("--betas must be two numbers from 0 to below 1, like 0.9,0.999");
  for (const std::string &g : paramGroups) {
    auto group = parseGroup(g);
    if (!group)
      return group.takeError();
    o.groups.push_back(*group);
  }
  for (auto [flag, to] : {std::pair(&overlap, &o.overlap), {&prefetch, &o.prefetch}, {&checkGradOverflow, &o.checkGradOverflow}})
    if (auto e = onOff(*flag, *to))
      return e;
  return o;
}

DumpOptions zcc::dumpOptions() {
  DumpOptions d;
  d.printBefore.assign(printBefore.begin(), printBefore.end());
  d.printAfter.assign(printAfter.begin(), printAfter.end());
  d.printAfterAll = printAfterAll;
  d.printAfterChange = printAfterChange;
  d.treeDir = treeDir;
  d.locs = printLocs;
  d.stopAfter = stopAfter;
  d.disabled.assign(disablePass.begin(), disablePass.end());
  d.time = timePasses;
  d.verifyEach = verifyEach;
  d.verifyRoundtrip = verifyText;
  return d;
}

bool zcc::optimizerGiven() { return optimizer.getNumOccurrences(); }
bool zcc::ranksGiven() { return ranks.getNumOccurrences(); }

static std::string text(double v) {
  char s[32];
  return {s, std::to_chars(s, s + sizeof s, v).ptr};
}

static std::string groupFlag(const Options::ParamGroup &g) {
  std::string s = "--param-group=" + g.regex + ":lr-scale=" + text(g.lrScale);
  if (g.weightDecay >= 0)
    s += ",weight-decay=" + text(g.weightDecay);
  std::string quoted = " '"; // for the shell
  for (char c : s)
    quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

std::string zcc::flagsOf(const Options &o) {
  std::string s;
  const Options d;
  auto flag = [&](const cl::Option &name, const std::string &v, const std::string &otherwise) {
    if (v != otherwise)
      s += " --" + name.ArgStr.str() + "=" + v;
  };
  auto integer = [&](const cl::Option &name, int64_t v, int64_t otherwise) {
    flag(name, std::to_string(v), std::to_string(otherwise));
  };
  auto number = [&](const cl::Option &name, double v, double otherwise) { flag(name, text(v), text(otherwise)); };
  integer(ranks, o.ranks, d.ranks);
  integer(zero, o.zero, d.zero);
  integer(threads, o.threads, d.threads);
  integer(gradAccum, o.gradAccum, d.gradAccum);
  flag(optimizer, o.optimizer, d.optimizer);
  number(lr, o.lr, d.lr);
  flag(betas, text(o.beta1) + "," + text(o.beta2), text(d.beta1) + "," + text(d.beta2));
  number(eps, o.eps, d.eps);
  number(weightDecay, o.weightDecay, d.weightDecay);
  number(momentum, o.momentum, d.momentum);
  if (o.nesterov)
    s += " --nesterov";
  flag(biasCorrection, o.biasCorrection ? "on" : "off", "on");
  if (o.cycleMomentum)
    s += " --cycle-momentum";
  number(lrDecay, o.lrDecay, d.lrDecay);
  number(initialAccumulator, o.initialAccumulator, d.initialAccumulator);
  number(maxCoeff, o.maxCoeff, d.maxCoeff);
  number(minCoeff, o.minCoeff, d.minCoeff);
  number(clipGradNorm, o.clipGradNorm, d.clipGradNorm);
  flag(dtype, typeName(o.dtype), typeName(d.dtype));
  number(lossScale, o.lossScale, d.lossScale);
  number(minLossScale, o.minLossScale, d.minLossScale);
  integer(initialScalePower, o.initialScalePower, d.initialScalePower);
  integer(lossScaleWindow, o.lossScaleWindow, d.lossScaleWindow);
  integer(lossScaleHysteresis, o.lossScaleHysteresis, d.lossScaleHysteresis);
  for (auto &g : o.groups)
    s += groupFlag(g);
  flag(checkGradOverflow, o.checkGradOverflow ? "on" : "off", "on");
  flag(overlap, o.overlap ? "on" : "off", "on");
  flag(prefetch, o.prefetch ? "on" : "off", "on");
  integer(reduceBucket, o.reduceBucket, d.reduceBucket);
  integer(gatherBucket, o.gatherBucket, d.gatherBucket);
  integer(persistence, o.persistence, d.persistence);
  integer(maxLive, o.maxLive, d.maxLive);
  integer(maxReuse, o.maxReuse, d.maxReuse);
  return s;
}
