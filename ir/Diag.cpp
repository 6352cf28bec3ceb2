// Makes, merges and describes locations; prints errors; finds the nearest name.
#include "ir/Diag.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/raw_ostream.h"

using namespace zcc;
using llvm::StringRef;

Loc zcc::makeLoc(StringRef node, StringRef opType, StringRef source, StringRef code, StringRef scope) {
  auto l = std::make_shared<LocInfo>();
  if (!node.empty())
    l->nodes.push_back(node.str());
  l->opType = opType.str();
  l->source = source.str();
  l->code = code.str();
  l->scope = scope.str();
  return l;
}

Loc zcc::mergeLocs(const Loc &a, const Loc &b) {
  if (!a || a == b)
    return b ? b : a;
  if (!b)
    return a;
  constexpr size_t kMostNames = 8; // a fused kernel may come from hundreds of nodes
  auto l = std::make_shared<LocInfo>(*a);
  for (const std::string &n : b->nodes) {
    if (l->nodes.size() >= kMostNames)
      break;
    if (std::find(l->nodes.begin(), l->nodes.end(), n) == l->nodes.end())
      l->nodes.push_back(n);
  }
  return l;
}

std::string zcc::describe(const Loc &l) {
  if (!l)
    return "(unknown)";
  if (!l->nodes.empty())
    return "node '" + l->nodes[0] + "'" + (l->opType.empty() ? "" : " (" + l->opType + ")") +
           (l->scope.empty() ? "" : " in '" + l->scope + "'");
  if (l->line)
    return "line " + std::to_string(l->line);
  return l->scope.empty() ? "(unknown)" : "'" + l->scope + "'";
}

llvm::Error zcc::error(const llvm::Twine &msg) {
  return llvm::make_error<llvm::StringError>(msg.str(), std::make_error_code(std::errc::invalid_argument));
}

llvm::Error zcc::errorAt(const Loc &loc, const llvm::Twine &msg) {
  const bool isKnown = loc && (!loc->nodes.empty() || loc->line || !loc->scope.empty());
  std::string s = (isKnown ? describe(loc) + ": " : "") + msg.str();
  if (loc && !loc->source.empty())
    s += "\n" + loc->source + ": note: created here" + (loc->code.empty() ? "" : ": '" + loc->code + "'");
  return llvm::make_error<llvm::StringError>(s, std::make_error_code(std::errc::invalid_argument));
}

bool zcc::report(StringRef prefix, llvm::Error e) {
  bool any = false;
  llvm::handleAllErrors(std::move(e), [&](const llvm::ErrorInfoBase &i) {
    any = true;
    // Lines after the first are notes and carry their own prefix.
    std::string text = i.message();
    auto [first, rest] = StringRef(text).split('\n');
    llvm::errs() << prefix << ": error: " << first << '\n';
    if (!rest.empty())
      llvm::errs() << rest << '\n';
  });
  return any;
}

std::string zcc::nearest(StringRef name, const std::vector<std::string> &names) {
  std::string best;
  unsigned least = unsigned(name.size()) / 3 + 2;
  for (const std::string &n : names) {
    unsigned d = name.edit_distance(n, /*AllowReplacements=*/true, least);
    if (d < least)
      least = d, best = n;
  }
  return best;
}
