#include "passes/ConfigText.h"
#include "ir/Diag.h"
#include <set>

using namespace zcc;
using llvm::StringRef;

/// The end of the string that starts at `at`, behind its quote.
static size_t endOfString(StringRef s, size_t at) {
  for (++at; at < s.size() && s[at] != '"'; ++at)
    at += s[at] == '\\';
  return std::min(at + 1, s.size());
}

/// Comments become blanks, so that lines and columns stay.
static std::string blankComments(StringRef s) {
  std::string out = s.str();
  for (size_t i = 0; i < s.size();) {
    size_t end = i;
    if (s[i] == '"') {
      i = endOfString(s, i);
      continue;
    }
    if (s[i] == '#' || s.substr(i).starts_with("//"))
      end = std::min(s.find('\n', i), s.size());
    else if (s.substr(i).starts_with("/*"))
      end = s.find("*/", i) == StringRef::npos ? s.size() : s.find("*/", i) + 2;
    for (size_t j = i; j < end; ++j)
      if (out[j] != '\n')
        out[j] = ' ';
    i = std::max(end, i + 1);
  }
  return out;
}

namespace {
/// Finds keys that an object has twice, in text that is known to be JSON.
struct Scanner {
  StringRef s;
  size_t at = 0;
  std::vector<std::string> twice;

  void blanks() { at = std::min(s.find_first_not_of(" \t\r\n", at), s.size()); }
  void value(const std::string &path);
};
} // namespace

void Scanner::value(const std::string &path) {
  blanks();
  bool isObject = s[at] == '{';
  if (s[at] == '"') {
    at = endOfString(s, at);
  } else if (!isObject && s[at] != '[') {
    at = std::min(s.find_first_of(",]} \t\r\n", at), s.size());
  } else {
    std::set<std::string> keys;
    for (++at, blanks(); s[at] != '}' && s[at] != ']'; blanks()) {
      std::string inner = path;
      if (isObject) {
        size_t end = endOfString(s, at);
        std::string key = s.slice(at + 1, end - 1).str();
        inner += (path.empty() ? "" : ".") + key;
        if (!keys.insert(key).second)
          twice.push_back(inner);
        at = end;
        blanks();
        ++at; // the colon
      }
      value(inner);
      blanks();
      at += s[at] == ',';
    }
    ++at;
  }
}

llvm::Expected<llvm::json::Value> zcc::parseConfigText(StringRef text) {
  std::string plain = blankComments(text);
  auto parsed = llvm::json::parse(plain);
  if (!parsed) {
    // "[LINE:COLUMN, byte=N]: what"
    std::string why = llvm::toString(parsed.takeError());
    auto [place, what] = StringRef(why).split("]: ");
    if (what.empty())
      return error(why);
    auto [line, column] = place.split(',').first.drop_front().split(':');
    return error("line " + line + ", column " + column + ": " + what);
  }
  if (!parsed->getAsObject())
    return error("a configuration is an object, { ... }");
  Scanner scanner{plain};
  scanner.value("");
  llvm::Error errors = llvm::Error::success();
  for (const std::string &path : scanner.twice)
    errors = llvm::joinErrors(std::move(errors), error(path + " is there twice"));
  if (errors)
    return errors;
  return std::move(*parsed);
}
