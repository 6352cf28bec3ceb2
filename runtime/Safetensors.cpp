// Parses the header and checks that entries lie side by side within the data.
#include "runtime/Safetensors.h"
#include "runtime/Elem.h"
#include "runtime/Fail.h"
#include "runtime/Json.h"
#include <algorithm>
#include <sys/stat.h>
#include <unistd.h>

namespace zccrt {

const char *safetensorsType(int elem) { return kElems[elem].safetensors; }

namespace {

SafetensorsEntry readEntry(JsonReader &json, const std::string &name) {
  SafetensorsEntry e{name, {}, {}};
  std::vector<int64_t> range;
  json.members([&](const std::string &key) {
    if (key == "dtype")
      e.dtype = json.string();
    else if (key == "shape")
      e.shape = json.numbers();
    else if (key == "data_offsets")
      range = json.numbers();
    else
      json.invalid();
  });
  if (e.dtype.empty() || range.size() != 2)
    json.invalid();
  e.begin = range[0];
  e.end = range[1];
  return e;
}

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

std::vector<SafetensorsEntry> parseSafetensors(const std::string &header) {
  JsonReader json(header, "the header is not that of a safetensors file");
  std::vector<SafetensorsEntry> entries;
  json.members([&](const std::string &name) {
    if (name == "__metadata__")
      json.members([&](const std::string &) { json.string(); });
    else
      entries.push_back(readEntry(json, name));
  });
  json.end();
  return entries;
}

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
