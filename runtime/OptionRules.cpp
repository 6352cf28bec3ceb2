// Reads the values of a program's options.
#include "runtime/OptionRules.h"
#include "runtime/Fail.h"
#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>

namespace zccrt {

void CommaTexts::read(const char *name, const char *, const char *text, std::vector<std::string> &to) const {
  for (std::string rest = text;;) {
    size_t comma = rest.find(',');
    std::string part = rest.substr(0, comma);
    if (part.empty())
      fail("--%s=%s names nothing between two commas", name, text);
    to.push_back(part);
    if (comma == std::string::npos)
      return;
    rest.erase(0, comma + 1);
  }
}

void NotEmpty::read(const char *name, const char *, const char *text, std::string &to) const {
  if (!*text)
    fail("--%s=: expected %s", name, what);
  to = text;
}

void Whole::read(const char *name, const char *, const char *text, int64_t &to) const {
  char *end;
  errno = 0;
  long long n = strtoll(text, &end, 10);
  if (errno || end == text || *end)
    fail("--%s=%s: expected a whole number", name, text);
  if (n < least)
    fail("--%s=%s: must be at least %lld", name, text, static_cast<long long>(least));
  to = n;
}

void Number::read(const char *name, const char *, const char *text, double &to) const {
  char *end;
  to = strtod(text, &end);
  if (end == text || *end || !std::isfinite(to) || to < 0)
    fail("--%s=%s: expected a number that is not negative", name, text);
}

int oneOf(const char *name, const std::string &text, const char *words) {
  std::string list = words;
  int index = 0;
  for (size_t at = 0; at <= list.size(); ++index) {
    size_t end = std::min(list.find('|', at), list.size());
    if (list.substr(at, end - at) == text)
      return index;
    at = end + 1;
  }
  fail("--%s=%s: expected %s", name, text.c_str(), words);
}

void ScheduleName::read(const char *name, const char *, const char *text, Schedule::Kind &to) const {
  to = static_cast<Schedule::Kind>(oneOf(name, text, kScheduleNames));
}

void Pair::read(const char *name, const char *, const char *text, Options::Pairs &to) const {
  const char *equals = strchr(text, '=');
  if (!equals)
    fail("--%s=%s: expected NAME=X", name, text);
  to.emplace_back(std::string(text, equals), equals + 1);
}

bool endsWith(const std::string &s, const char *tail) {
  size_t n = strlen(tail);
  return s.size() > n && s.compare(s.size() - n, n, tail) == 0;
}

/// NAME=FILE.npy or FILE.npz; false for what is neither.
static bool addArrays(DataFiles &d, const std::string &text) {
  size_t equals = text.find('=');
  if (endsWith(text, ".npz"))
    d.npz.push_back(text);
  else if (equals != std::string::npos && equals > 0 && equals + 1 < text.size())
    d.npy.push_back({text.substr(0, equals), text.substr(equals + 1)});
  else
    return false;
  return true;
}

void DataFile::read(const char *name, const char *, const char *text, DataFiles &to) const {
  if (addArrays(to, text))
    return;
  if (endsWith(text, ".npy"))
    fail("--%s=%s: name the input: --%s=NAME=%s", name, text, name, text);
  fail("--%s=%s: expected FILE.npz or NAME=FILE.npy", name, text);
}

void DataOrTokens::read(const char *name, const char *words, const char *text, DataFiles &to) const {
  bool isTokens = !strchr(text, '=') && !endsWith(text, ".npy") && !endsWith(text, ".npz");
  if (isTokens)
    to.tokens = text;
  else
    DataFile().read(name, words, text, to);
}

} // namespace zccrt
