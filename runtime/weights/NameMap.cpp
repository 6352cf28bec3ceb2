// Compiles and applies regular expressions.
#include "runtime/weights/NameMap.h"
#include "runtime/Fail.h"

namespace zccrt {

constexpr size_t kGroups = 10; // \0 is the whole match

NameMap::NameMap(const std::string &text) : given(text) {
  const size_t split = text.rfind('='); // no name of a tensor has one
  if (split == std::string::npos || split == 0)
    fail("--weights-map=%s: expected REGEX=REPLACEMENT, as in '^bert\\.=encoder.'", text.c_str());
  replacement = text.substr(split + 1);
  auto compiled = std::make_unique<regex_t>();
  if (int code = regcomp(compiled.get(), text.substr(0, split).c_str(), REG_EXTENDED)) {
    char why[256];
    regerror(code, compiled.get(), why, sizeof why);
    fail("--weights-map=%s: %s", text.c_str(), why);
  }
  regex.reset(compiled.release());
  for (size_t i = 0; i + 1 < replacement.size(); ++i)
    if (replacement[i] == '\\' && replacement[i + 1] >= '0' && replacement[i + 1] <= '9' &&
        size_t(replacement[i + 1] - '0') > regex->re_nsub)
      fail("--weights-map=%s: there is no group %c", text.c_str(), replacement[i + 1]);
}

bool NameMap::apply(std::string &name) {
  regmatch_t groups[kGroups];
  if (regexec(regex.get(), name.c_str(), kGroups, groups, 0) != 0)
    return false;
  matched = true;
  std::string with;
  for (size_t i = 0; i < replacement.size(); ++i) {
    const char next = i + 1 < replacement.size() ? replacement[i + 1] : '\0';
    if (replacement[i] != '\\' || !next) {
      with += replacement[i];
      continue;
    }
    ++i;
    if (next < '0' || next > '9')
      with += next;
    else if (const regmatch_t &g = groups[next - '0']; g.rm_so >= 0)
      with.append(name, g.rm_so, g.rm_eo - g.rm_so);
  }
  name.replace(groups[0].rm_so, groups[0].rm_eo - groups[0].rm_so, with);
  return true;
}

} // namespace zccrt
