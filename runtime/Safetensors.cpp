// Parses the header and checks that entries lie side by side within the data.
#include "runtime/Safetensors.h"
#include "runtime/Elem.h"
#include "runtime/Fail.h"
#include <algorithm>
#include <cstring>
#include <sys/stat.h>
#include <unistd.h>

namespace zccrt {

const char *safetensorsType(int elem) { return kElems[elem].safetensors; }

namespace {

/// As much of JSON as a header is made of: objects, strings, lists of whole numbers.
class Reader {
public:
  explicit Reader(const std::string &text) : text(text) {}

  std::vector<SafetensorsEntry> read() {
    std::vector<SafetensorsEntry> entries;
    members([&](const std::string &name) {
      if (name == "__metadata__")
        members([&](const std::string &) { string(); });
      else
        entries.push_back(entry(name));
    });
    skipBlanks();
    if (at != text.size())
      invalid();
    return entries;
  }

private:
  SafetensorsEntry entry(const std::string &name) {
    SafetensorsEntry e{name, {}, {}};
    std::vector<int64_t> range;
    members([&](const std::string &key) {
      if (key == "dtype")
        e.dtype = string();
      else if (key == "shape")
        e.shape = numbers();
      else if (key == "data_offsets")
        range = numbers();
      else
        invalid();
    });
    if (e.dtype.empty() || range.size() != 2)
      invalid();
    e.begin = range[0];
    e.end = range[1];
    return e;
  }

  [[noreturn]] void invalid() const { fail("the header is not that of a safetensors file, at byte %zu", at); }
  void skipBlanks() {
    while (at < text.size() && strchr(" \t\r\n", text[at]))
      ++at;
  }
  bool take(char c) {
    skipBlanks();
    bool is = at < text.size() && text[at] == c;
    at += is;
    return is;
  }
  void expect(char c) {
    if (!take(c))
      invalid();
  }
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
  std::vector<int64_t> numbers() {
    std::vector<int64_t> r;
    expect('[');
    if (take(']'))
      return r;
    do {
      skipBlanks();
      size_t digits = std::min(text.find_first_not_of("0123456789", at), text.size()) - at;
      if (digits == 0 || digits > 18)
        invalid();
      r.push_back(std::stoll(text.substr(at, digits)));
      at += digits;
    } while (take(','));
    expect(']');
    return r;
  }
  std::string string() {
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
  bool isAt(char c) const { return at < text.size() && text[at] == c; }
  void escaped(std::string &s) {
    constexpr const char *from = "\"\\/bfnrt", *to = "\"\\/\b\f\n\r\t";
    if (isAt('u') && at + 4 < text.size()) { // as it is: only equality counts
      s += "\\" + text.substr(at, 5);
      at += 4;
      return;
    }
    const char *c = at < text.size() && text[at] ? strchr(from, text[at]) : nullptr;
    if (!c)
      invalid();
    s += to[c - from];
  }

  const std::string &text;
  size_t at = 0;
};

int64_t bytesOf(const SafetensorsEntry &e) {
  auto type = std::find_if(std::begin(kElems), std::end(kElems), [&](const ElemDef &d) { return e.dtype == d.safetensors; });
  if (type == std::end(kElems))
    fail("'%s' has the unknown type %s", e.name.c_str(), e.dtype.c_str());
  int64_t bytes = type->bytes;
  for (int64_t d : e.shape)
    if (__builtin_mul_overflow(bytes, d, &bytes))
      fail("the shape of '%s' is too large", e.name.c_str());
  return bytes;
}

} // namespace

std::vector<SafetensorsEntry> parseSafetensors(const std::string &header) { return Reader(header).read(); }

void checkEntries(std::vector<SafetensorsEntry> entries, int64_t dataBytes) {
  auto sort = [&](auto key) { std::sort(entries.begin(), entries.end(), [&](auto &a, auto &b) { return key(a) < key(b); }); };
  sort([](auto &e) -> auto & { return e.name; });
  for (size_t i = 1; i < entries.size(); ++i)
    if (entries[i].name == entries[i - 1].name)
      fail("two tensors are called '%s'", entries[i].name.c_str());
  sort([](auto &e) { return std::pair(e.begin, e.end); });
  int64_t at = 0;
  for (const SafetensorsEntry &e : entries) {
    if (e.begin != at || e.end < e.begin || e.end - e.begin != bytesOf(e))
      fail("the data of '%s' is not where its type and shape put it", e.name.c_str());
    at = e.end;
  }
  if (at != dataBytes)
    fail("its tensors take %lld of %lld bytes", static_cast<long long>(at), static_cast<long long>(dataBytes));
}

void checkSafetensors(int descriptor, const std::string &name) {
  struct stat s;
  uint64_t length = 0;
  bool isRead = fstat(descriptor, &s) == 0 && pread(descriptor, &length, 8, 0) == 8 && length <= uint64_t(s.st_size) - 8;
  std::string header(isRead ? length : 0, ' ');
  for (uint64_t done = 0; isRead && done < length;) {
    ssize_t n = pread(descriptor, &header[done], length - done, 8 + done);
    isRead = n > 0;
    done += n;
  }
  if (!isRead)
    failErrno("cannot read '%s' back", name.c_str());
  try {
    checkEntries(parseSafetensors(header), s.st_size - 8 - int64_t(length));
  } catch (const Failure &e) {
    fail("internal: what was written as '%s' is no safetensors file: %s", name.c_str(), e.what());
  }
}

} // namespace zccrt
