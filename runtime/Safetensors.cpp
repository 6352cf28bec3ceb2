// Parses the header and checks that entries lie side by side within the data.
#include "runtime/Safetensors.h"
#include "runtime/Elem.h"
#include "runtime/Fail.h"
#include "runtime/Json.h"
#include "runtime/Npy.h"
#include <algorithm>
#include <sys/stat.h>
#include <unistd.h>

namespace zccrt {

const char *safetensorsType(int elem) { return kElems[elem].safetensors; }

int safetensorsElem(const std::string &dtype) {
  auto type = std::find_if(std::begin(kElems), std::end(kElems), [&](const ElemDef &d) { return dtype == d.safetensors; });
  return type == std::end(kElems) ? -1 : static_cast<int>(type - kElems);
}

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
  const int elem = safetensorsElem(e.dtype);
  if (elem < 0)
    return e.end - e.begin;
  int64_t bytes = elemBytes(elem);
  for (int64_t d : e.shape)
    if (d < 0 || __builtin_mul_overflow(bytes, d, &bytes))
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

std::vector<SafetensorsEntry> readSafetensors(const File &file) {
  constexpr int64_t kMostHeader = 100'000'000; // bytes: the published reader's limit
  try {
    int64_t length = 0;
    if (file.bytes() < 8)
      fail("it has %lld bytes", static_cast<long long>(file.bytes()));
    file.read(0, 8, &length);
    if (length < 0 || length > file.bytes() - 8 || length > kMostHeader)
      fail("its header is said to have %llu bytes", static_cast<unsigned long long>(length));
    std::string header(length, ' ');
    file.read(8, length, header.data());
    std::vector<SafetensorsEntry> entries = parseSafetensors(header);
    checkEntries(entries, file.bytes() - 8 - length);
    for (SafetensorsEntry &e : entries) {
      e.begin += 8 + length;
      e.end += 8 + length;
    }
    return entries;
  } catch (const Failure &e) {
    fail("'%s' is no safetensors file, or it is cut short or damaged: %s", file.path().c_str(), e.what());
  }
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
