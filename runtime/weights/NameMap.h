// --weights-map=REGEX=REPLACEMENT
#pragma once

#include <memory>
#include <regex.h>
#include <string>
#include <vector>

namespace zccrt {

/// Replacements in names: POSIX extended, unanchored; "\1" is the first group.
class NameMap {
public:
  /// Throws a Failure for what is none.
  explicit NameMap(const std::string &text);
  /// Whether it matches; then `name` has the replacement in the place of the first match.
  bool apply(std::string &name);
  /// How it was given.
  const std::string &text() const { return given; }
  bool hasMatched() const { return matched; }

private:
  struct Free {
    void operator()(regex_t *r) const {
      regfree(r);
      delete r;
    }
  };
  std::string given, replacement;
  std::unique_ptr<regex_t, Free> regex;
  bool matched = false;
};

} // namespace zccrt
