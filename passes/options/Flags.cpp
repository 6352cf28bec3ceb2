// Finds flags among LLVM's registered options.
#include "passes/options/Flags.h"
#include "ir/Diag.h"
#include "passes/options/PassOptions.h"
#include "llvm/Support/CommandLine.h"

using namespace zcc;
using llvm::StringRef;
namespace cl = llvm::cl;

static cl::Option *find(StringRef name) {
  auto &all = cl::getRegisteredOptions();
  auto i = all.find(name);
  bool isOurs = i != all.end() && llvm::is_contained(i->second->Categories, &optionCategory());
  return isOurs ? i->second : nullptr;
}

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

std::vector<std::string> zcc::flagNames() {
  std::vector<std::string> names;
  for (auto &o : cl::getRegisteredOptions())
    if (find(o.getKey()))
      names.push_back(o.getKey().str());
  return names;
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
