// Reads the values of a program's options.
#include "runtime/OptionRules.h"
#include "runtime/Fail.h"
#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <glob.h>
#include <unistd.h>

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
  const std::string key(text, equals), value = equals + 1;
  for (auto &[other, before] : to)
    if (other == key && before != value)
      fail("--%s=%s: '%s' is %s already", name, text, key.c_str(), before.c_str());
  to.emplace_back(key, value);
}

void Range::read(const char *name, const char *, const char *text, StepRange &to) const {
  long long from, behind;
  int length = 0;
  if (sscanf(text, "%lld:%lld%n", &from, &behind, &length) != 2 || text[length] || from < 0 || behind <= from)
    fail("--%s=%s: expected FROM:TO, two steps, FROM before TO", name, text);
  to = {from, behind};
}

bool endsWith(const std::string &s, const char *tail) {
  size_t n = strlen(tail);
  return s.size() > n && s.compare(s.size() - n, n, tail) == 0;
}

static bool exists(const std::string &path) { return access(path.c_str(), F_OK) == 0; }

/// The files whose names match, in the order of their bytes, whatever the user's language.
static std::vector<std::string> matching(const char *name, const char *text, const std::string &pattern) {
  glob_t found = {};
  const int status = glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found);
  std::vector<std::string> files(found.gl_pathv, found.gl_pathv + (status == 0 ? found.gl_pathc : 0));
  globfree(&found);
  if (files.empty())
    fail("--%s=%s: no file matches '%s'", name, text, pattern.c_str());
  std::sort(files.begin(), files.end());
  return files;
}

void FileList::read(const char *name, const char *, const char *text, std::vector<std::string> &to) const {
  std::vector<std::string> parts = {text};
  if (!exists(text)) { // else a name with a comma
    parts.clear();
    CommaTexts().read(name, "", text, parts);
  }
  for (const std::string &part : parts) {
    std::vector<std::string> files = {part};
    if (part.find_first_of("*?[") != std::string::npos && !exists(part))
      files = matching(name, text, part);
    for (const std::string &file : files) {
      if (std::find(to.begin(), to.end(), file) != to.end())
        fail("--%s=%s: '%s' is given twice", name, text, file.c_str());
      to.push_back(file);
    }
  }
}

/// NAME=FILES
static void readNamed(const char *name, const std::string &text, DataFiles &to) {
  const size_t equals = text.find('=');
  const std::string input = text.substr(0, equals);
  std::vector<std::string> files;
  for (const DataFiles::Named &f : to.npy)
    if (f.input == input)
      files.push_back(f.file);
  const size_t before = files.size();
  FileList().read((name + ("=" + input)).c_str(), "", text.c_str() + equals + 1, files);
  for (size_t i = before; i < files.size(); ++i)
    to.npy.push_back({input, files[i]});
}

/// "x=A,B,y=C" as "x=A,B" and "y=C". Commas and "=" in the names of files that there are belong to them.
static std::vector<std::string> byInput(const std::string &text) {
  if (exists(text.substr(text.find('=') + 1)))
    return {text};
  std::vector<std::string> inputs;
  for (size_t at = 0; at <= text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    const std::string part = text.substr(at, comma - at);
    const size_t equals = part.find('=');
    const bool names = equals != std::string::npos && equals > 0 && part.find('/') > equals && !exists(part);
    if (inputs.empty() || names)
      inputs.push_back(part);
    else
      inputs.back() += "," + part;
    at = comma + 1;
  }
  return inputs;
}

void NpyOrNpz::read(const char *name, const char *, const char *text, DataFiles &to) const {
  const char *equals = strchr(text, '=');
  if (equals && equals != text && equals[1] && !endsWith(text, ".npz")) {
    for (const std::string &input : byInput(text))
      readNamed(name, input, to);
    return;
  }
  const size_t before = to.npz.size();
  if (*text)
    FileList().read(name, "", text, to.npz);
  for (size_t i = before; i < to.npz.size(); ++i) {
    const std::string &file = to.npz[i];
    const std::string which = file == text ? "" : "'" + file + "': ";
    if (endsWith(file, ".npy"))
      fail("--%s=%s: %sname the input: --%s=NAME=%s", name, text, which.c_str(), name, file.c_str());
    if (!endsWith(file, ".npz"))
      fail("--%s=%s: %sexpected FILE.npz or NAME=FILE.npy", name, text, which.c_str());
  }
  if (to.npz.size() == before)
    fail("--%s=%s: expected FILE.npz or NAME=FILE.npy", name, text);
}

void DataOrTokens::read(const char *name, const char *words, const char *text, DataFiles &to) const {
  std::vector<std::string> files;
  if (*text && (!strchr(text, '=') || exists(text)))
    FileList().read(name, words, text, files);
  auto isArray = [](const std::string &file) { return endsWith(file, ".npy") || endsWith(file, ".npz"); };
  auto array = std::find_if(files.begin(), files.end(), isArray), tokens = std::find_if_not(files.begin(), files.end(), isArray);
  if (tokens == files.end())
    return NpyOrNpz().read(name, words, text, to);
  if (array != files.end())
    fail("--%s=%s: '%s' has arrays, and '%s' tokens; give one kind", name, text, array->c_str(), tokens->c_str());
  FileList().read(name, words, text, to.tokens);
}

} // namespace zccrt
