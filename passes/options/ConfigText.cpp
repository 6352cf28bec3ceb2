// Reads Hjson into LLVM's JSON values.
#include "passes/options/ConfigText.h"
#include "ir/Diag.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/ConvertUTF.h"
#include "llvm/Support/Regex.h"
#include <cmath>
#include <optional>

using namespace zcc;
using llvm::StringRef;
using llvm::json::Array;
using llvm::json::Object;

/// A configuration needs 4; reading recurses.
static constexpr int kDeepest = 64;
static constexpr StringRef kBlank = " \t\r\n", kPunctuation = "{}[],:";

namespace {
class ConfigReader {
public:
  explicit ConfigReader(StringRef text) : s_(text) { s_.consume_front("\xef\xbb\xbf"); }
  llvm::Expected<JsonValue> read();

private:
  llvm::Expected<JsonValue> value(const std::string &path, int depth);
  llvm::Expected<JsonValue> object(const std::string &path, int depth, bool isBraced);
  llvm::Expected<JsonValue> array(const std::string &path, int depth);
  llvm::Expected<JsonValue> bare();
  llvm::Expected<std::string> key();
  llvm::Expected<std::string> quoted();
  llvm::Error escape(std::string &to);
  std::optional<unsigned> codeUnit();
  void skipBlanks();
  llvm::Error unfinished(size_t start, const char *what) const;
  llvm::Error fail(size_t place, const llvm::Twine &what) const;
  /// '\0' behind the end.
  char next(size_t ahead = 0) const { return at_ + ahead < s_.size() ? s_[at_ + ahead] : '\0'; }
  bool take(char c) { return at_ < s_.size() && s_[at_] == c && ++at_; }
  bool isEnd() const { return at_ >= s_.size(); }

  StringRef s_;
  size_t at_ = 0;
  bool hasBare_ = false; ///< a string without quotes was there
  std::vector<std::string> twice_;
};
} // namespace

llvm::Error ConfigReader::fail(size_t place, const llvm::Twine &what) const {
  StringRef before = s_.take_front(place);
  size_t line = before.count('\n') + 1, column = place - (before.rfind('\n') + 1) + 1;
  return error("line " + llvm::Twine(line) + ", column " + llvm::Twine(column) + ": " + what);
}

llvm::Error ConfigReader::unfinished(size_t start, const char *what) const {
  const char *hint = "; a string without quotes goes on to the end of its line";
  return fail(start, llvm::Twine(what) + " does not end" + (hasBare_ ? hint : ""));
}

void ConfigReader::skipBlanks() {
  auto jump = [&](size_t to) { at_ = std::min(to, s_.size()); };
  for (;;) {
    jump(s_.find_first_not_of(kBlank, at_));
    if (next() == '#' || (next() == '/' && next(1) == '/'))
      jump(s_.find_first_of("\r\n", at_));
    else if (next() == '/' && next(1) == '*')
      jump(std::min(s_.find("*/", at_ + 2), s_.size()) + 2);
    else
      return;
  }
}

/// The four digits of \uXXXX, from the u.
std::optional<unsigned> ConfigReader::codeUnit() {
  unsigned unit = 0;
  StringRef digits = s_.substr(at_ + 1, 4);
  if (next() != 'u' || digits.size() != 4 || !llvm::all_of(digits, llvm::isHexDigit))
    return std::nullopt;
  digits.getAsInteger(16, unit);
  at_ += 5;
  return unit;
}

/// What follows a backslash.
llvm::Error ConfigReader::escape(std::string &to) {
  size_t start = at_ - 1;
  static constexpr StringRef kNames = "bfnrt\"'\\/", kMeanings = "\b\f\n\r\t\"'\\/";
  if (size_t i = kNames.find(next()); !isEnd() && i != StringRef::npos) {
    to += kMeanings[i];
    ++at_;
    return llvm::Error::success();
  }
  std::optional<unsigned> unit = codeUnit();
  if (!unit)
    return fail(start, "no such escape");
  unsigned code = *unit;
  if (size_t behind = at_; code >> 10 == 0xd800 >> 10 && take('\\')) { // the first half of a pair
    std::optional<unsigned> second = codeUnit();
    if (second && *second >> 10 == 0xdc00 >> 10)
      code = 0x10000 + ((code & 0x3ff) << 10 | (*second & 0x3ff));
    else
      at_ = behind;
  }
  char bytes[4], *end = bytes;
  if (!llvm::ConvertCodePointToUTF8(code, end))
    return fail(start, "half a character");
  to.append(bytes, end);
  return llvm::Error::success();
}

/// A string in quotes of either kind.
llvm::Expected<std::string> ConfigReader::quoted() {
  size_t start = at_;
  if (s_.substr(at_).starts_with("'''"))
    return fail(start, "strings of several lines are not read");
  char quote = s_[at_++];
  std::string out;
  while (!take(quote)) {
    if (isEnd())
      return unfinished(start, "the string");
    char c = s_[at_++];
    if (static_cast<unsigned char>(c) < ' ')
      return fail(start, "the string does not end in its line");
    if (c != '\\')
      out += c;
    else if (auto e = escape(out))
      return e;
  }
  return out;
}

llvm::Expected<std::string> ConfigReader::key() {
  if (next() == '"' || next() == '\'')
    return quoted();
  size_t start = at_, end = std::min(s_.find_first_of("{}[],: \t\r\n", at_), s_.size());
  if (end == start)
    return fail(start, "expected a key");
  at_ = end;
  return s_.slice(start, end).str();
}

/// true, 1e-5, or a string to the end of its line.
llvm::Expected<JsonValue> ConfigReader::bare() {
  size_t start = at_, end = std::min(s_.find_first_of(",}]#/\r\n", at_), s_.size());
  if (start == s_.size() || next() == '\r' || next() == '\n' || kPunctuation.contains(next()))
    return fail(start, "expected a value");
  while (end < s_.size() && s_[end] == '/' && !s_.substr(end).starts_with("//") && !s_.substr(end).starts_with("/*"))
    end = std::min(s_.find_first_of(",}]#/\r\n", end + 1), s_.size());
  StringRef word = s_.slice(start, end);
  at_ = start + word.size();
  word = word.trim();
  llvm::Regex number("^-?(0|[1-9][0-9]*)(\\.[0-9]+)?([eE][-+]?[0-9]+)?$");
  if (word == "true" || word == "false" || word == "null" || number.match(word)) {
    JsonValue v = llvm::cantFail(llvm::json::parse(word));
    if (std::isinf(v.getAsNumber().value_or(0)))
      return fail(start, "the number is too large");
    return v;
  }
  const size_t line = std::min(s_.find_first_of("\r\n", start), s_.size());
  const StringRef rest = s_.slice(start, line);
  at_ = line;
  hasBare_ = true;
  return rest.trim().str();
}

llvm::Expected<JsonValue> ConfigReader::array(const std::string &path, int depth) {
  size_t start = at_++;
  Array out;
  for (skipBlanks(); !take(']'); skipBlanks()) {
    if (isEnd())
      return unfinished(start, "the list");
    auto v = value(path, depth);
    if (!v)
      return v;
    out.push_back(std::move(*v));
    skipBlanks();
    take(',');
  }
  return JsonValue(std::move(out));
}

llvm::Expected<JsonValue> ConfigReader::object(const std::string &path, int depth, bool isBraced) {
  size_t start = at_;
  at_ += isBraced;
  Object out;
  for (skipBlanks(); isBraced ? !take('}') : !isEnd(); skipBlanks()) {
    if (isEnd())
      return unfinished(start, "the object");
    auto name = key();
    if (!name)
      return name.takeError();
    skipBlanks();
    if (!take(':'))
      return fail(at_, "expected ':' behind the key " + *name);
    std::string inner = path + (path.empty() ? "" : ".") + *name;
    skipBlanks();
    auto v = value(inner, depth);
    if (!v)
      return v;
    if (!out.try_emplace(*name, std::move(*v)).second)
      twice_.push_back(inner);
    skipBlanks();
    take(',');
  }
  return JsonValue(std::move(out));
}

llvm::Expected<JsonValue> ConfigReader::value(const std::string &path, int depth) {
  if (depth == kDeepest)
    return fail(at_, "brackets are nested deeper than " + llvm::Twine(kDeepest));
  if (next() == '{')
    return object(path, depth + 1, /*isBraced=*/true);
  if (next() == '[')
    return array(path, depth + 1);
  if (next() != '"' && next() != '\'')
    return bare();
  auto text = quoted();
  if (!text)
    return text.takeError();
  return JsonValue(std::move(*text));
}

llvm::Expected<JsonValue> ConfigReader::read() {
  size_t bad;
  if (!llvm::json::isUTF8(s_, &bad))
    return fail(bad, "this is not UTF-8");
  skipBlanks();
  if (isEnd() || next() == '[')
    return error("a configuration is an object, { ... }");
  auto out = object("", 0, /*isBraced=*/next() == '{');
  if (!out)
    return out;
  skipBlanks();
  if (!isEnd())
    return fail(at_, "the configuration has ended before");
  llvm::Error errors = llvm::Error::success();
  for (const std::string &path : twice_)
    errors = llvm::joinErrors(std::move(errors), error(path + " is there twice"));
  if (errors)
    return errors;
  return out;
}

llvm::Expected<JsonValue> zcc::parseConfigText(StringRef text) { return ConfigReader(text).read(); }
