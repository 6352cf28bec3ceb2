// Declares options with LLVM's library, parses with it, and turns its complaints into ours.
#include "passes/options/CommandLine.h"
#include "passes/options/Help.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/ErrorHandling.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"
#include <cstdio>
#include <cstring>
#include <map>
#include <unistd.h>

using namespace zcc;
using llvm::StringRef;
namespace cl = llvm::cl;

static cl::OptionCategory category("zcc options");
cl::OptionCategory &zcc::optionCategory() { return category; }

// ---- declaring

namespace {
/// An option of the library; one of the pointers is set.
struct Declared {
  std::unique_ptr<cl::opt<bool>> flag;
  std::unique_ptr<cl::opt<std::string>> text;
  std::unique_ptr<cl::list<std::string>> list;
};
} // namespace

static std::map<std::string, Declared> &declared() {
  static std::map<std::string, Declared> all;
  return all;
}

static Declared declare(const OptionRow &row) {
  Declared d;
  StringRef name = row.name;
  cl::desc help(row.help);
  cl::value_desc value(row.value);
  cl::cat ours(category);
  switch (row.takes) {
  case Takes::Nothing:
    d.flag = std::make_unique<cl::opt<bool>>(name, help, cl::init(row.otherwise == "on"), ours);
    break;
  case Takes::Value:
    d.text = std::make_unique<cl::opt<std::string>>(name, help, value, cl::init(row.otherwise), ours);
    break;
  case Takes::PerhapsValue:
    d.text = std::make_unique<cl::opt<std::string>>(name, help, value, cl::ValueOptional, ours);
    break;
  case Takes::Values:
    d.list = std::make_unique<cl::list<std::string>>(name, help, value, ours);
    break;
  case Takes::CommaValues:
    d.list = std::make_unique<cl::list<std::string>>(name, help, value, cl::CommaSeparated, ours);
    break;
  }
  return d;
}

void zcc::declareOptions(llvm::ArrayRef<OptionRow> rows) {
  for (const OptionRow &row : rows)
    declared()[row.name] = declare(row);
}

static cl::Option *find(StringRef name) {
  auto &all = cl::getRegisteredOptions();
  auto i = all.find(name);
  bool isOurs = i != all.end() && llvm::is_contained(i->second->Categories, &category);
  return isOurs ? i->second : nullptr;
}

std::vector<std::string> zcc::optionNames() {
  std::vector<std::string> names;
  for (auto &o : cl::getRegisteredOptions())
    if (find(o.getKey()))
      names.push_back(o.getKey().str());
  return names;
}

// ---- parsing

std::string zcc::nearestOption(const std::string &name, const std::vector<std::string> &known) {
  std::string near = nearest(name, known);
  return near.empty() ? "" : "; did you mean '--" + near + "'?";
}

/// Refuses options that there are not: LLVM's parser takes them for the nearest beginning, such as -o. Of those of one value
/// that are given two the last counts, as users of compilers expect, and a warning says so.
static bool expectKnown(int argc, const char *const *argv, OptionHint hint) {
  auto &all = cl::getRegisteredOptions();
  std::map<std::string, StringRef> values;
  for (int i = 1; i < argc && StringRef(argv[i]) != "--"; ++i) {
    StringRef arg = argv[i], name = arg;
    if (!name.consume_front("-") || name.empty())
      continue;
    name.consume_front("-");
    name = name.split('=').first;
    auto option = all.find(name);
    if (option == all.end()) {
      std::string more = hint(name.str(), optionNames()), tool = llvm::sys::path::filename(argv[0]).str();
      llvm::errs() << tool << ": error: unknown option '" << arg.split('=').first << "'" << more << '\n';
      if (more.empty())
        llvm::errs() << "note: '" << tool << " --help' lists the options\n";
      return false;
    }
    bool takesNext = option->second->getValueExpectedFlag() == cl::ValueRequired && !arg.contains('=');
    StringRef value = arg.split('=').second;
    if (takesNext && i + 1 < argc)
      value = argv[++i];
    auto ours = declared().find(name.str());
    if (ours == declared().end() || !ours->second.text)
      continue;
    StringRef &before = values.try_emplace(name.str(), value).first->second;
    if (before != value)
      llvm::errs() << llvm::sys::path::filename(argv[0]) << ": warning: option '" << arg.split('=').first << "' is given twice: '"
                   << value << "' counts, not '" << before << "'\n";
    before = value;
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

// ---- what is given

FlagValues zcc::givenFlags(int argc, const char *const *argv) {
  FlagValues given;
  for (int i = 1; i < argc; ++i) {
    StringRef a = argv[i];
    if (a == "--")
      break;
    if (!a.consume_front("-") || a.empty())
      continue;
    a.consume_front("-");
    auto [name, value] = a.split('=');
    cl::Option *o = find(name);
    if (!o)
      continue;
    if (a.contains('='))
      given[name.str()] = value.str();
    else if (o->getValueExpectedFlag() == cl::ValueRequired && i + 1 < argc)
      given[name.str()] = argv[++i];
    else
      given[name.str()] = "on";
  }
  return given;
}

llvm::Error zcc::setFlag(StringRef name, StringRef value) {
  cl::Option *o = find(name);
  if (!o)
    return error("there is no option --" + name);
  if (o->getValueExpectedFlag() == cl::ValueOptional)
    value = value == "on" ? "true" : "false";
  if (o->addOccurrence(0, name, value))
    return error("--" + name + " cannot be '" + value + "'");
  return llvm::Error::success();
}

std::vector<std::string> zcc::textsOf(StringRef name) {
  auto at = declared().find(name.str());
  assert(at != declared().end() && "an option of another tool");
  const Declared &d = at->second;
  if (d.list)
    return {d.list->begin(), d.list->end()};
  if (d.flag)
    return d.flag->getNumOccurrences() ? std::vector<std::string>{*d.flag ? "on" : "off"} : std::vector<std::string>();
  return d.text->getNumOccurrences() ? std::vector<std::string>{*d.text} : std::vector<std::string>();
}

std::string zcc::shellWord(StringRef word) {
  if (!word.empty() && word.find_first_of(" '\"\\$&|;<>()*?[]#~`!{}") == StringRef::npos)
    return word.str();
  std::string quoted = "'";
  for (char c : word)
    quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}
