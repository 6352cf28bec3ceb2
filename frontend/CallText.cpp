// Splits the text at its commas.
#include "frontend/CallText.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringExtras.h"

using namespace zcc;
using llvm::StringRef;

llvm::Expected<CallText> zcc::parseCall(StringRef option, StringRef text) {
  CallText call;
  text = text.trim();
  auto [name, rest] = text.split('(');
  call.name = name.trim().str();
  call.hasParentheses = text.contains('(');
  if (!call.hasParentheses)
    return call;
  if (!rest.consume_back(")"))
    return error(option + ": ')' is missing at the end of '" + text + "'");
  llvm::SmallVector<StringRef, 8> parts;
  if (!rest.trim().empty())
    rest.split(parts, ',');
  for (StringRef part : parts) {
    auto [key, value] = part.split('=');
    if (part.contains('='))
      call.options.emplace_back(key.trim().str(), value.trim().str());
    else if (part.trim().empty())
      return error(option + ": nothing stands between two commas of '" + text + "'");
    else
      call.arguments.push_back(part.trim().str());
  }
  return call;
}

std::string zcc::suggestionOf(StringRef name, const std::vector<std::string> &names) {
  std::string n = nearest(name, names);
  return n.empty() ? "; it takes " + llvm::join(names, ", ") : "; did you mean '" + n + "'?";
}
