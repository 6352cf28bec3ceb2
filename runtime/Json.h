// As much of JSON as headers and manifests are made of: objects, lists, strings, whole numbers.
#pragma once

#include "runtime/Fail.h"
#include <cstdint>
#include <string>
#include <vector>

namespace zccrt {

class JsonReader {
public:
  /// `what` is said of a text that is none of this: "the header is not that of a safetensors file".
  JsonReader(const std::string &text, const char *what) : text(text), what(what) {}

  /// Calls member(key) for each member of an object, which must read its value.
  template <typename F> void members(F member) {
    expect('{');
    if (take('}'))
      return;
    do {
      std::string key = string();
      expect(':');
      member(key);
    } while (take(','));
    expect('}');
  }
  /// Calls item() for each item of a list, which must read it.
  template <typename F> void items(F item) {
    expect('[');
    if (take(']'))
      return;
    do
      item();
    while (take(','));
    expect(']');
  }
  int64_t number();
  std::vector<int64_t> numbers();
  /// In UTF-8; half a surrogate pair is written as if it were a character.
  std::string string();
  /// Reads any value and leaves it.
  void skip();
  /// Nothing but blanks may follow.
  void end();
  [[noreturn]] void invalid() const { fail("%s, at byte %zu", what, at); }

private:
  void skipBlanks();
  bool isAt(char c) const { return at < text.size() && text[at] == c; }
  bool take(char c);
  void expect(char c);
  uint32_t codeUnit();
  void escaped(std::string &s);
  void skipNested(int depth);

  const std::string &text;
  const char *what;
  size_t at = 0;
};

/// A string in quotes.
std::string jsonString(const std::string &text);
/// "[1,2,3]"
std::string jsonNumbers(const std::vector<int64_t> &numbers);

} // namespace zccrt
