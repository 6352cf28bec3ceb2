// Reads JSON from its beginning to its end, and writes its strings and lists.
#include "runtime/Json.h"
#include <algorithm>
#include <charconv>
#include <cstring>

namespace zccrt {

void JsonReader::skipBlanks() { at = std::min(text.find_first_not_of(" \t\r\n", at), text.size()); }

bool JsonReader::take(char c) {
  skipBlanks();
  bool is = isAt(c);
  at += is;
  return is;
}

void JsonReader::expect(char c) {
  if (!take(c))
    invalid();
}

int64_t JsonReader::number() {
  skipBlanks();
  int64_t n = 0;
  auto [end, error] = std::from_chars(text.data() + at, text.data() + text.size(), n);
  if (error != std::errc())
    invalid();
  at = end - text.data();
  return n;
}

std::vector<int64_t> JsonReader::numbers() {
  std::vector<int64_t> r;
  items([&] { r.push_back(number()); });
  return r;
}

std::string JsonReader::string() {
  std::string s;
  for (expect('"'); !isAt('"'); ++at) {
    if (at >= text.size() || static_cast<unsigned char>(text[at]) < 0x20)
      invalid();
    if (text[at] == '\\')
      ++at, escaped(s);
    else
      s += text[at];
  }
  ++at;
  return s;
}

/// A UTF-16 code unit, of the digits behind the 'u'.
uint32_t JsonReader::codeUnit() {
  constexpr int kDigits = 4;
  uint32_t unit = 0;
  const char *begin = text.data() + at + 1, *end = begin + kDigits;
  if (text.size() - at <= kDigits || std::from_chars(begin, end, unit, 16).ptr != end)
    invalid();
  at += kDigits;
  return unit;
}

/// Halves of a character beyond 16 bits.
static bool isHigh(uint32_t unit) { return unit >> 10 == 0xd800 >> 10; }
static bool isLow(uint32_t unit) { return unit >> 10 == 0xdc00 >> 10; }

static void addUtf8(std::string &s, uint32_t c) {
  auto add = [&](uint32_t byte) { s += static_cast<char>(byte); };
  auto rest = [&](int shift) { add(0x80 | (c >> shift & 0x3f)); };
  if (c < 0x80)
    return add(c);
  if (c < 0x800)
    return add(0xc0 | c >> 6), rest(0);
  if (c < 0x10000)
    return add(0xe0 | c >> 12), rest(6), rest(0);
  add(0xf0 | c >> 18), rest(12), rest(6), rest(0);
}

void JsonReader::escaped(std::string &s) {
  constexpr const char *from = "\"\\/bfnrt", *to = "\"\\/\b\f\n\r\t";
  if (isAt('u')) {
    uint32_t c = codeUnit();
    if (isHigh(c) && text.compare(at + 1, 2, "\\u") == 0) {
      const size_t behind = at;
      at += 2;
      if (uint32_t low = codeUnit(); isLow(low))
        c = 0x10000 + ((c & 0x3ff) << 10 | (low & 0x3ff));
      else
        at = behind; // a character of its own
    }
    return addUtf8(s, c);
  }
  const char *c = at < text.size() && text[at] ? strchr(from, text[at]) : nullptr;
  if (!c)
    invalid();
  s += to[c - from];
}

void JsonReader::skip() { skipNested(0); }

void JsonReader::skipNested(int depth) {
  constexpr int kDeepest = 64;
  skipBlanks();
  if (depth == kDeepest || at >= text.size())
    invalid();
  if (text[at] == '{')
    return members([&](const std::string &) { skipNested(depth + 1); });
  if (text[at] == '[')
    return items([&] { skipNested(depth + 1); });
  if (text[at] == '"')
    return void(string());
  const size_t begin = at; // a number or a word
  at = std::min(text.find_first_of(",]} \t\r\n", at), text.size());
  if (at == begin)
    invalid();
}

void JsonReader::end() {
  skipBlanks();
  if (at != text.size())
    invalid();
}

std::string jsonString(const std::string &text) {
  std::string s = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\')
      s += '\\';
    if (static_cast<unsigned char>(c) < 0x20)
      s += format("\\u%04x", c);
    else
      s += c;
  }
  return s + '"';
}

std::string jsonNumbers(const std::vector<int64_t> &numbers) {
  std::string s;
  for (int64_t n : numbers)
    s += (s.empty() ? "" : ",") + std::to_string(n);
  return "[" + s + "]";
}

} // namespace zccrt
