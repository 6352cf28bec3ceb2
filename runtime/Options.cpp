// The table of options, its parsing with getopt_long, and the help.
#include "runtime/Options.h"
#include "runtime/Elem.h"
#include "runtime/Fail.h"
#include "runtime/OptionChecks.h"
#include "runtime/OptionHints.h"
#include "runtime/OptionRules.h"
#include <algorithm>
#include <cstring>
#include <getopt.h>

namespace zccrt {

namespace {

/// A row of Options.def, or the title of a group.
struct Row {
  const char *title;
  const char *name, *argument; ///< argument "": takes none
  const char *help;            ///< NULL: not supported yet, and not listed
  void (*read)(Options &o, const char *text);
  void (*check)(const zccrt_program &p, const Options &o);
  bool adds; ///< to what it says may be added by giving it again
  bool isOption() const { return !title; }
  bool takesValue() const { return !help || *argument; }
};

template <class Rule> constexpr bool adds() {
  return requires { Rule::adds; };
}

constexpr Row kRows[] = {
#define ZCCRT_OPTION_GROUP(TITLE) {TITLE, "", "", "", nullptr, nullptr, false},
#define ZCCRT_OPTION(NAME, TYPE, FIELD, OTHERWISE, ...) ZCCRT_PART_OPTION(NAME, FIELD, __VA_ARGS__)
#define ZCCRT_PART_OPTION(NAME, FIELD, RULE, ARGUMENT, HELP, CHECK)                                                              \
  {nullptr,                                                                                                                      \
   NAME,                                                                                                                         \
   ARGUMENT,                                                                                                                     \
   HELP,                                                                                                                         \
   [](Options &o, const char *text) { (RULE).read(NAME, ARGUMENT, text, o.FIELD); },                                             \
   CHECK,                                                                                                                        \
   adds<decltype(RULE)>()},
#define ZCCRT_LATER_OPTION(NAME)                                                                                                 \
  {nullptr, NAME, "", nullptr, [](Options &, const char *) { fail("--%s is not supported yet", NAME); }, always, false},
#include "runtime/Options.def"
};

const Row *findRow(const std::string &name) {
  const Row *row = std::find_if(std::begin(kRows), std::end(kRows), [&](auto &r) { return r.isOption() && r.name == name; });
  return row == std::end(kRows) ? nullptr : row;
}

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const Row &r : kRows)
    if (r.isOption())
      all.push_back(r.name);
  return all;
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
    bool hasValue = arg.find('=') != std::string::npos;
    std::string name = arg.substr(2, hasValue ? arg.find('=') - 2 : std::string::npos);
    if (const Row *row = findRow(name)) {
      i += row->takesValue() && !hasValue; // its argument is the next word
      continue;
    }
    std::string hint = optionHint(Tool::Program, name, names());
    fail("unknown option '--%s'%s", name.c_str(), hint.empty() ? "; see --help" : hint.c_str());
  }
}

/// Reads all options into `o` and returns which were given.
std::vector<bool> readOptions(int argc, char **argv, Options &o) {
  std::vector<option> table;
  for (int i = 0; i < int(std::size(kRows)); ++i)
    if (kRows[i].isOption())
      table.push_back({kRows[i].name, kRows[i].takesValue() ? required_argument : no_argument, nullptr, 256 + i});
  table.push_back({nullptr, 0, nullptr, 0});
  std::vector<bool> given(std::size(kRows));
  std::vector<std::string> values(std::size(kRows));
  opterr = 0;
  optind = 0; // start over: tests parse more than once
  for (int c; (c = getopt_long(argc, argv, ":", table.data(), nullptr)) != -1;) {
    if (c == ':')
      fail("option '%s' needs a value; see --help", argv[optind - 1]);
    if (c == '?' && optopt > 255)
      fail("option '%s' takes no value", argv[optind - 1]);
    if (c == '?')
      fail("unknown option '-%c'; see --help", optopt);
    const Row &row = kRows[c - 256];
    const std::string value = optarg ? optarg : "", &before = values[c - 256];
    if (given[c - 256] && !row.adds && value != before)
      o.warnings.push_back(
          format("option '--%s' is given twice: '%s' counts, not '%s'", row.name, value.c_str(), before.c_str()));
    row.read(o, optarg);
    given[c - 256] = true;
    values[c - 256] = value;
  }
  if (optind < argc)
    fail("unexpected argument '%s'; see --help", argv[optind]);
  return given;
}

} // namespace

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

static std::optional<ExportFormat> exportFormat(const std::string &file) {
  constexpr struct {
    const char *extension;
    ExportFormat format;
  } kFormats[] = {{".onnx", ExportFormat::Onnx}, {".safetensors", ExportFormat::Safetensors}};
  if (file.empty())
    return std::nullopt;
  std::string known;
  for (auto &f : kFormats) {
    if (endsWith(file, f.extension))
      return f.format;
    known += (known.empty() ? "" : " or ") + std::string(f.extension);
  }
  fail("--export=%s: expected a name ending in %s", file.c_str(), known.c_str());
}

Options parseOptions(const zccrt_program &p, int argc, char **argv) {
  expectKnown(argc, argv);
  Options o;
  if (p.schedule && *p.schedule && !scheduleFromName(p.schedule, o.schedule))
    fail("the program names an unknown learning-rate schedule '%s'", p.schedule);
  std::vector<bool> given = readOptions(argc, argv, o);
  if (o.help)
    return o;
  o.exportFormat = exportFormat(o.exportFile);
  bool saysHowLong = o.steps >= 0 || o.epochs >= 0;
  bool onlyWrites = (o.generate || !o.exportFile.empty()) && o.data.empty() && o.evalData.empty() && o.outputs.empty();
  if (!saysHowLong && (!p.micro_fn || !o.outputs.empty()) && !onlyWrites)
    o.eval = true;
  for (size_t i = 0; i < given.size(); ++i) {
    if (given[i])
      kRows[i].check(p, o);
    o.isSeedGiven |= given[i] && kRows[i].name == std::string("seed");
  }
  if (o.eval && !p.has_loss && o.outputs.empty())
    o.warnings.push_back("the program computes no loss, and what it computes is not kept; --outputs=FILE.npz keeps it");
  return o;
}

std::string helpText(const zccrt_program &p) {
  std::string s = format("%s: a training program compiled by zcc for %d rank%s\n\nusage: %sPROGRAM [options]\n\n", p.model,
                         p.ranks, p.ranks == 1 ? "" : "s", p.ranks > 1 ? format("mpirun -n %d ", p.ranks).c_str() : "");
  for (const Row &r : kRows) {
    if (r.title)
      s += format("%s%s:\n", &r == kRows ? "" : "\n", r.title);
    if (r.title || !r.help)
      continue;
    std::string left = std::string("  --") + r.name + (*r.argument ? "=" : "") + r.argument;
    s += format(left.size() < 34 ? "%-34s %s\n" : "%s\n                                   %s\n", left.c_str(), r.help);
  }
  s += "\ninputs:\n";
  for (int i = 0; i < p.ninputs; ++i)
    s += format("  %-24s %s %s\n", p.inputs[i].name, elemName(p.inputs[i].t.elem),
                shapeText(p.inputs[i].t.dims, p.inputs[i].t.ndim).c_str());
  return s;
}

} // namespace zccrt
