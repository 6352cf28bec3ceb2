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

void JsonReader::escaped(std::string &s) {
  constexpr const char *from = "\"\\/bfnrt", *to = "\"\\/\b\f\n\r\t";
  if (isAt('u') && at + 4 < text.size()) {
    s += "\\" + text.substr(at, 5);
    at += 4;
    return;
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
