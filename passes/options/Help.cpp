// --help, --help-ops and --help-passes.
#include "passes/options/Help.h"
#include "ir/Notes.h"
#include "ir/Text.h"
#include "passes/Pass.h"
#include "passes/options/CommandLine.h"
#include "passes/options/OptionRules.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/raw_ostream.h"

using namespace zcc;
using llvm::StringRef;
namespace cl = llvm::cl;

static std::string helpOverview; // not empty: --help is given

bool zcc::noteHelp(int argc, const char *const *argv, StringRef overview) {
  bool asked = std::any_of(argv + 1, argv + argc, [](StringRef a) { return a == "--help" || a == "-help" || a == "-h"; });
  if (asked)
    helpOverview = overview.str();
  return asked;
}

// ---- tables

/// Where the code of an operator comes from.
static std::string kernelOf(const OpDef &op) {
  return op.kernel      ? std::string("library, zccrt_cpu_") + op.kernel
         : op.scalar    ? std::string("generated from ") + op.scalar
         : op.expand    ? "generated from a body of primitives"
         : op.reduction ? "generated reduction"
         : op.view      ? "none, a view"
         : op.leaf      ? "none, a part of its readers' kernels"
                        : "emitted with the schedule";
}

static void printOps() {
  for (const OpDef *op : allOps()) {
    llvm::outs() << op->name << ": " << op->summary << '\n';
    llvm::ListSeparator sep, comma;
    llvm::outs() << "    operands:";
    for (unsigned i = 0; i < op->numOperandDefs(); ++i) {
      int flags = op->operands[i].flags;
      llvm::outs() << (i ? ", " : " ") << op->operands[i].name << (flags & OperandDef::Optional ? "?" : "")
                   << (flags & OperandDef::Variadic ? "..." : "");
    }
    if (!op->numOperandDefs())
      llvm::outs() << " none";
    llvm::outs() << '\n';
    for (const AttrDef &a : op->attrs)
      if (a.name) {
        llvm::outs() << "    " << a.name << " : " << kindName(a.kind);
        if (a.otherwise)
          llvm::outs() << " = " << (*a.otherwise ? a.otherwise : "\"\"");
        llvm::outs() << '\n';
      }
    llvm::outs() << "    gradient: "
                 << (op->noGrad ? "none, " + std::string(op->noGrad)
                     : op->grad ? "expression " + std::string(op->grad)
                                : std::string("rule"))
                 << "\n    kernel: " << kernelOf(*op) << '\n';
  }
}

static std::string propertyList(uint32_t bits) {
  std::string s;
  for (unsigned i = 0; i < propertyNames().size(); ++i)
    if (bits >> i & 1)
      s += (s.empty() ? "" : ", ") + std::string(propertyNames()[i]);
  return s.empty() ? "-" : s;
}

static void printPasses() {
  llvm::outs() << llvm::formatv("{0,-18}{1,-16}{2,-16}{3}\n", "pass", "requires", "provides", "");
  for (const PassDef &p : allPasses())
    llvm::outs() << llvm::formatv("{0,-18}{1,-16}{2,-16}{3}\n", p.name, propertyList(p.needs), propertyList(p.provides),
                                  p.summary);
  constexpr StringRef kOf[] = {"node", "global", "module"};
  llvm::outs() << llvm::formatv("\n{0,-18}{1,-8}{2,-8}{3}\n", "note", "of", "kind", "");
  for (const NoteDef &n : allNotes())
    llvm::outs() << llvm::formatv("{0,-18}{1,-8}{2,-8}{3} (by {4}; for {5})\n", n.name, kOf[n.of], kindName(n.kind), n.summary,
                                  n.writer, n.readers);
}

// ---- --help

/// The options in the order of the help, each group behind its title.
static constexpr struct {
  const char *title, *name;
} kLines[] = {
#define ZCC_OPTION_GROUP(TITLE) {TITLE, nullptr},
#define ZCC_OPTION(NAME, ...) {nullptr, NAME},
#include "passes/options/Options.def"
};

/// One option: "  --lr=X    learning rate (default: ...)".
static void printOption(StringRef name, const cl::Option &o) {
  std::string left = dashed(name);
  if (!o.ValueStr.empty())
    left += o.getValueExpectedFlag() == cl::ValueOptional ? "[=" + o.ValueStr.str() + "]"
            : name.size() == 1                            ? " " + o.ValueStr.str()
                                                          : "=" + o.ValueStr.str();
  constexpr size_t kWidth = 34;
  llvm::outs() << "  " << left;
  if (left.size() >= kWidth)
    llvm::outs() << '\n' << std::string(kWidth + 2, ' ');
  else
    llvm::outs() << std::string(kWidth - left.size(), ' ');
  llvm::outs() << o.HelpStr;
  // Options that take one value are strings; what their help does not say of the default is said here.
  bool isText = o.getNumOccurrencesFlag() == cl::Optional && o.getValueExpectedFlag() == cl::ValueRequired;
  if (isText && !o.HelpStr.contains("(default:"))
    if (auto &value = static_cast<const cl::opt<std::string> &>(o).getDefault(); value.hasValue() && !value.getValue().empty())
      llvm::outs() << " (default: " << value.getValue() << ")";
  llvm::outs() << '\n';
}

bool zcc::printHelp(bool inGroups) {
  if (helpOverview.empty())
    return false;
  StringRef tool = StringRef(helpOverview).split(':').first;
  llvm::outs() << helpOverview << "\n\nusage: " << tool << " [options]";
  for (const cl::Option *o : cl::SubCommand::getTopLevel().PositionalOpts)
    llvm::outs() << ' ' << o->HelpStr;
  llvm::outs() << '\n';
  std::vector<std::string> left = optionNames();
  llvm::sort(left);
  auto &all = cl::getRegisteredOptions();
  const char *group = nullptr, *rest = "options"; // a group whose title is still to be printed; what the others are called
  for (auto [title, name] : kLines) {
    if (title)
      group = title;
    else if (auto at = llvm::find(left, name); inGroups && at != left.end()) {
      if (group)
        llvm::outs() << '\n' << group << ":\n";
      group = nullptr;
      rest = "other";
      left.erase(at);
      printOption(name, *all.find(name)->second);
    }
  }
  llvm::erase_if(left, [](const std::string &name) { return findPass(name); }); // zcc-opt's
  if (!left.empty())
    llvm::outs() << '\n' << rest << ":\n";
  for (const std::string &name : left)
    printOption(name, *all.find(name)->second);
  return true;
}

bool zcc::printTables(llvm::function_ref<void()> afterOps) {
  struct {
#define ZCC_TABLE_OPTION(NAME, TYPE, FIELD, OTHERWISE, RULE, VALUE, HELP) TYPE FIELD = !textsOf(NAME).empty();
#include "passes/options/Options.def"
  } asked;
  const bool helped = printHelp(/*inGroups=*/true);
  if (asked.ops) {
    printOps();
    afterOps();
  }
  if (asked.passes)
    printPasses();
  return asked.ops || asked.passes || helped;
}
