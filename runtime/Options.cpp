// The table of options, their parsing and checks, and the help.
#include "runtime/Options.h"
#include "runtime/Elem.h"
#include "runtime/Fail.h"
#include "runtime/GraphPart.h"
#include "runtime/OptionHints.h"
#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <getopt.h>

namespace zccrt {

namespace {

enum Id {
  Help = 256,
  Data,
  Tokens,
  TokensDtype,
  TokensLabels,
  Shuffle,
  Seed,
  Weights,
  Steps,
  Epochs,
  Lr,
  LrSchedule,
  Warmup,
  LrMin,
  LrSteps,
  LrParam,
  Log,
  Quiet,
  PrintEvery,
  StopOnNan,
  Eval,
  EvalData,
  EvalEvery,
  Outputs,
  Export,
  ExportForm,
  ExportTies,
  OutputsOf,
  Generate,
  Prompt,
  Temperature,
  CommOption,
  NotYet
};

struct Spec {
  const char *name, *argument; // argument NULL: takes none
  Id id;
  const char *help; // NULL: not listed
};

constexpr Spec kSpecs[] = {
    {"data", "FILE.npz|NAME=FILE.npy", Data, "arrays by input name, first axis = samples; repeatable"},
    {"tokens", "FILE.bin", Tokens, "flat uint16, uint32 or uint8 tokens; inputs and labels are cut from it"},
    {"tokens-dtype", "uint16|uint32|uint8", TokensDtype, "element type of --tokens (default: by vocabulary and content)"},
    {"tokens-labels", "auto|next|same", TokensLabels,
     "labels are the next token, or the same for a model that shifts them itself (default: auto, by the graph)"},
    {"shuffle", nullptr, Shuffle, "permute the samples, each epoch differently, by --seed"},
    {"seed", "N", Seed, "of dropout, initialisation and --shuffle (default 0)"},
    {"weights", "DIR", Weights, "where the model's files lie (default: beside the program, as compiled)"},
    {"steps", "N", Steps, "train N steps"},
    {"epochs", "N", Epochs, "train N times through the data (default 1)"},
    {"lr", "X", Lr, "learning rate (default: as compiled)"},
    {"lr-schedule", "NAME", LrSchedule,
     "constant, linear, cosine, or DeepSpeed's WarmupLR, WarmupDecayLR, WarmupCosineLR, OneCycle, "
     "LRRangeTest (default: as compiled)"},
    {"warmup-steps", "N", Warmup, "steps over which the rate rises (default 0)"},
    {"lr-min", "X", LrMin, "rate at the end of a linear or cosine schedule (default 0)"},
    {"lr-steps", "N", LrSteps, "length of the schedule (default: that of the run)"},
    {"lr-param", "NAME=X", LrParam, "parameter of a DeepSpeed schedule, by its name there; repeatable"},
    {"log", "FILE.jsonl", Log, "one JSON object a step"},
    {"quiet", nullptr, Quiet, "print warnings and errors only"},
    {"print-every", "N", PrintEvery, "a line every N steps (default: every few seconds)"},
    {"stop-on-nan", nullptr, StopOnNan, "end with an error at a loss that is not finite"},
    {"eval", nullptr, Eval, "no training: the loss over the data, once"},
    {"eval-data", "FILE", EvalData, "data for evaluation, as --data (or --tokens, for FILE.bin); repeatable"},
    {"eval-every", "N", EvalEvery, "evaluate on --eval-data after every N steps (default: at the end)"},
    {"outputs", "FILE.npz", Outputs, "the graph's outputs, batches joined along axis 0; without --steps it does not train"},
    {"export", "FILE.onnx|FILE.safetensors", Export, "trained weights, in the model's names, shapes and types"},
    {"export-form", "inference|train", ExportForm, "form of the exported ONNX graph"},
    {"export-ties", "all|first", ExportTies,
     "names of a tied parameter in a safetensors file: every one (default), or the first"},
    {"outputs-of", "NAME|auto", OutputsOf,
     "exports the ONNX graph up to a value, a node or a module only (auto: up to what the loss compares with the labels)"},
    {"generate", "N", Generate, "at the end, continue the prompt by N tokens (token models)"},
    {"prompt", "TEXT|TOKENS", Prompt, "what --generate continues: a text where tokens are bytes, else their numbers: 15,3,7"},
    {"temperature", "X", Temperature, "of --generate: 0 takes the likeliest token (default 0.8); drawn by --seed"},
    {"comm", "auto|mpi", CommOption, "between ranks: shared memory on one node, or MPI throughout (default: auto)"},
    {"help", nullptr, Help, "this text"},
    {"save", "DIR", NotYet, nullptr},
    {"save-every", "N", NotYet, nullptr},
    {"resume", "DIR", NotYet, nullptr},
    {"nvme-path", "DIR", NotYet, nullptr},
    {"trace", "FILE", NotYet, nullptr},
};

int64_t wholeNumber(const char *option, const char *text, int64_t least) {
  char *end;
  errno = 0;
  long long n = strtoll(text, &end, 10);
  if (errno || end == text || *end)
    fail("--%s=%s: expected a whole number", option, text);
  if (n < least)
    fail("--%s=%s: must be at least %lld", option, text, static_cast<long long>(least));
  return n;
}

double number(const char *option, const char *text) {
  char *end;
  double x = strtod(text, &end);
  if (end == text || *end || !std::isfinite(x) || x < 0)
    fail("--%s=%s: expected a number that is not negative", option, text);
  return x;
}

/// The index of `text` among the words of a "a|b|c" list.
int oneOf(const char *option, const std::string &text, const char *words) {
  std::string list = words;
  int index = 0;
  for (size_t at = 0; at <= list.size(); ++index) {
    size_t end = std::min(list.find('|', at), list.size());
    if (list.substr(at, end - at) == text)
      return index;
    at = end + 1;
  }
  fail("--%s=%s: expected %s", option, text.c_str(), words);
}

bool endsWith(const std::string &s, const char *tail) {
  size_t n = strlen(tail);
  return s.size() > n && s.compare(s.size() - n, n, tail) == 0;
}

/// NAME=FILE.npy, FILE.npz or (only if allowed) a file of tokens, by whatever other name.
void addData(DataFiles &d, const char *option, const std::string &text, bool tokensAllowed) {
  if (endsWith(text, ".npz"))
    return d.npz.push_back(text);
  size_t equals = text.find('=');
  if (equals != std::string::npos && equals > 0 && equals + 1 < text.size())
    return d.npy.push_back({text.substr(0, equals), text.substr(equals + 1)});
  if (tokensAllowed && equals == std::string::npos && !endsWith(text, ".npy")) {
    d.tokens = text;
    return;
  }
  if (endsWith(text, ".npy"))
    fail("--%s=%s: name the input: --%s=NAME=%s", option, text.c_str(), option, text.c_str());
  fail("--%s=%s: expected FILE.npz or NAME=FILE.npy", option, text.c_str());
}

/// getopt_long takes any unambiguous beginning of a name; what a script relies on should stay one
/// option.
void expectKnown(int argc, char **argv) {
  for (int i = 1; i < argc; ++i) {
    std::string arg = argv[i];
    if (arg == "--")
      return;
    if (arg.rfind("--", 0) != 0)
      continue;
    std::string name = arg.substr(2, arg.find('=') == std::string::npos ? std::string::npos : arg.find('=') - 2);
    const Spec *spec = std::find_if(std::begin(kSpecs), std::end(kSpecs), [&](auto &s) { return s.name == name; });
    if (spec != std::end(kSpecs)) {
      if (spec->argument && arg.find('=') == std::string::npos)
        ++i; // its argument is the next word
      continue;
    }
    std::string hint = optionHint(Tool::Program, name, programOptions());
    fail("unknown option '--%s'%s", name.c_str(), hint.empty() ? "; see --help" : hint.c_str());
  }
}

void apply(const zccrt_program &p, Options &o, const Spec &s, const char *arg) {
  switch (s.id) {
  case Help:
    o.help = true;
    break;
  case Data:
    addData(o.data, s.name, arg, false);
    break;
  case Tokens:
    o.data.tokens = arg;
    break;
  case TokensDtype:
    o.tokenType = std::array{TokenType::U16, TokenType::U32, TokenType::U8}[oneOf(s.name, arg, s.argument)];
    break;
  case TokensLabels:
    o.tokenLabels = static_cast<TokenLabels>(oneOf(s.name, arg, s.argument));
    break;
  case Shuffle:
    o.shuffle = true;
    break;
  case Seed:
    o.seed = wholeNumber(s.name, arg, INT64_MIN);
    break;
  case Weights:
    o.weights = arg;
    break;
  case Steps:
    o.steps = wholeNumber(s.name, arg, 0);
    break;
  case Epochs:
    o.epochs = wholeNumber(s.name, arg, 1);
    break;
  case Lr:
    o.lr = number(s.name, arg);
    break;
  case LrSchedule:
    o.schedule = static_cast<Schedule::Kind>(oneOf(s.name, arg, kScheduleNames));
    break;
  case Warmup:
    o.warmupSteps = wholeNumber(s.name, arg, 0);
    break;
  case LrMin:
    o.lrMin = number(s.name, arg);
    break;
  case LrSteps:
    o.lrSteps = wholeNumber(s.name, arg, 1);
    break;
  case LrParam: {
    const char *equals = strchr(arg, '=');
    if (!equals)
      fail("--lr-param=%s: expected NAME=X", arg);
    o.scheduleParams.emplace_back(std::string(arg, equals), equals + 1);
    break;
  }
  case Log:
    o.log = arg;
    break;
  case Quiet:
    o.quiet = true;
    break;
  case PrintEvery:
    o.printEvery = wholeNumber(s.name, arg, 1);
    break;
  case StopOnNan:
    o.stopOnNan = true;
    break;
  case Eval:
    o.eval = true;
    break;
  case EvalData:
    addData(o.evalData, s.name, arg, true);
    break;
  case EvalEvery:
    o.evalEvery = wholeNumber(s.name, arg, 1);
    break;
  case Outputs:
    o.outputs = arg;
    break;
  case Export:
    o.exportFile = arg;
    break;
  case ExportForm:
    o.exportTrainForm = oneOf(s.name, arg, s.argument) == 1;
    break;
  case ExportTies:
    o.exportTies = oneOf(s.name, arg, s.argument) == 0;
    break;
  case OutputsOf:
    if (!*arg)
      fail("--outputs-of=: expected the name of a value, a node or a module, or auto");
    o.outputsOf = arg;
    break;
  case Generate:
    o.generate = wholeNumber(s.name, arg, 1);
    break;
  case Prompt:
    o.prompt = arg;
    break;
  case Temperature:
    o.temperature = number(s.name, arg);
    break;
  case CommOption:
    o.comm = static_cast<CommKind>(oneOf(s.name, arg, s.argument));
    break;
  case NotYet:
    fail("--%s is not supported yet", s.name);
  }
}

void checkExport(const zccrt_program &p, const Options &o) {
  const bool isOnnx = endsWith(o.exportFile, ".onnx");
  if (!o.exportFile.empty() && !isOnnx && !endsWith(o.exportFile, ".safetensors"))
    fail("--export=%s: expected a name ending in .onnx or .safetensors", o.exportFile.c_str());
  if (!o.exportTies && !endsWith(o.exportFile, ".safetensors"))
    fail("--export-ties=first is for --export=FILE.safetensors");
  if (isOnnx && !(o.exportTrainForm ? p.npieces_train : p.npieces))
    fail("--export=%s: this program carries no ONNX graph in that form", o.exportFile.c_str());
  if (o.outputsOf.empty())
    return;
  if (!isOnnx)
    fail("--outputs-of=%s is for --export=FILE.onnx", o.outputsOf.c_str());
  if (o.exportTrainForm)
    fail("--outputs-of=%s is of the inference form; leave out --export-form=train", o.outputsOf.c_str());
  if (!p.onnx_index)
    fail("--outputs-of=%s: this program does not know the values of its graph", o.outputsOf.c_str());
  graphPart(p, o.outputsOf); // whether there is such a value
}

void check(const zccrt_program &p, const Options &o) {
  if (o.steps >= 0 && o.epochs >= 0)
    fail("--steps and --epochs exclude each other");
  if (!p.micro_fn && (o.steps > 0 || o.epochs > 0))
    fail("this program was compiled with --loss=none and cannot train; use --eval");
  if (o.eval && (o.epochs >= 0 || o.evalEvery))
    fail("--eval does not train: leave out --epochs and --eval-every");
  if (o.evalEvery && o.evalData.empty())
    fail("--eval-every needs --eval-data=FILE");
  if (o.evalEvery && !p.has_loss)
    fail("--eval-every: this program computes no loss");
  if (!o.generate && !o.prompt.empty())
    fail("--prompt needs --generate=N");
  if (!o.data.tokens.empty() && (o.data.npz.size()))
    fail("--tokens and --data=FILE.npz exclude each other");
  checkExport(p, o);
  if (!o.outputs.empty() && !endsWith(o.outputs, ".npz"))
    fail("--outputs=%s: expected a name ending in .npz", o.outputs.c_str());
}

} // namespace

std::vector<std::string> programOptions() {
  std::vector<std::string> names;
  for (const Spec &s : kSpecs)
    names.push_back(s.name);
  return names;
}

std::string nearest(const std::string &name, const std::vector<std::string> &candidates) {
  std::string best;
  size_t bestEdits = std::max<size_t>(2, name.size() / 3) + 1;
  for (const std::string &c : candidates) {
    std::vector<size_t> row(c.size() + 1);
    for (size_t j = 0; j <= c.size(); ++j)
      row[j] = j;
    for (size_t i = 1; i <= name.size(); ++i) {
      size_t diagonal = row[0];
      row[0] = i;
      for (size_t j = 1; j <= c.size(); ++j) {
        size_t change = diagonal + (name[i - 1] != c[j - 1]);
        diagonal = row[j];
        row[j] = std::min({change, row[j] + 1, row[j - 1] + 1});
      }
    }
    if (row[c.size()] < bestEdits) {
      bestEdits = row[c.size()];
      best = c;
    }
  }
  return best;
}

Options parseOptions(const zccrt_program &p, int argc, char **argv) {
  expectKnown(argc, argv);
  std::vector<option> table;
  for (const Spec &s : kSpecs)
    table.push_back({s.name, s.argument ? required_argument : no_argument, nullptr, s.id});
  table.push_back({nullptr, 0, nullptr, 0});
  Options o;
  if (p.schedule && *p.schedule && !scheduleFromName(p.schedule, o.schedule))
    fail("the program names an unknown learning-rate schedule '%s'", p.schedule);
  opterr = 0;
  optind = 0; // start over: tests parse more than once
  int index = -1;
  for (int c; (c = getopt_long(argc, argv, ":", table.data(), &index)) != -1; index = -1) {
    if (c == ':')
      fail("option '%s' needs a value; see --help", argv[optind - 1]);
    if (c == '?' && optopt > 255)
      fail("option '%s' takes no value", argv[optind - 1]);
    if (c == '?')
      fail("unknown option '-%c'; see --help", optopt);
    const Spec *s = std::find_if(std::begin(kSpecs), std::end(kSpecs), [&](auto &e) { return e.name == table[index].name; });
    apply(p, o, *s, optarg);
  }
  if (optind < argc)
    fail("unexpected argument '%s'; see --help", argv[optind]);
  if (o.help)
    return o;
  check(p, o);
  bool saysHowLong = o.steps >= 0 || o.epochs >= 0;
  bool onlyGenerates = o.generate && o.data.empty() && o.evalData.empty();
  if (!saysHowLong && (!p.micro_fn || !o.outputs.empty()) && !onlyGenerates)
    o.eval = true;
  return o;
}

/// The first option of each group, and the group's title.
constexpr struct {
  const char *first, *title;
} kGroups[] = {{"data", "the data"},   {"steps", "how long"},           {"lr", "the learning rate"}, {"log", "what is shown"},
               {"eval", "evaluation"}, {"export", "the trained model"}, {"comm", "the process"}};

std::string helpText(const zccrt_program &p) {
  std::string s = format("%s: a training program compiled by zcc for %d rank%s\n\nusage: %sPROGRAM [options]\n\n", p.model,
                         p.ranks, p.ranks == 1 ? "" : "s", p.ranks > 1 ? format("mpirun -n %d ", p.ranks).c_str() : "");
  for (const Spec &spec : kSpecs) {
    if (!spec.help)
      continue;
    for (auto &group : kGroups)
      if (!strcmp(group.first, spec.name))
        s += format("%s%s:\n", spec.name == kSpecs[0].name ? "" : "\n", group.title);
    std::string left = std::string("  --") + spec.name + (spec.argument ? std::string("=") + spec.argument : "");
    s += format(left.size() < 34 ? "%-34s %s\n" : "%s\n                                   %s\n", left.c_str(), spec.help);
  }
  s += "\ninputs:\n";
  for (int i = 0; i < p.ninputs; ++i)
    s += format("  %-24s %s %s\n", p.inputs[i].name, elemName(p.inputs[i].t.elem),
                shapeText(p.inputs[i].t.dims, p.inputs[i].t.ndim).c_str());
  return s;
}

} // namespace zccrt
