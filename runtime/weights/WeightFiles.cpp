// Reads the headers of safetensors files, and the index that Hugging Face puts beside several of them.
#include "runtime/weights/WeightFiles.h"
#include "runtime/Fail.h"
#include "runtime/Json.h"
#include "runtime/Npy.h"
#include "runtime/Options.h"
#include "runtime/Safetensors.h"
#include <algorithm>
#include <filesystem>
#include <map>

namespace zccrt {

namespace fs = std::filesystem;

constexpr const char *kFile = ".safetensors", *kIndex = ".safetensors.index.json";

std::string listedNames(const std::vector<std::string> &names) {
  constexpr size_t kMost = 100;
  std::string s;
  for (size_t i = 0; i < std::min(names.size(), kMost); ++i)
    s += (i ? ", '" : "'") + names[i] + "'";
  return names.size() > kMost ? s + format(" and %zu more", names.size() - kMost) : s;
}

std::vector<std::string> safetensorsIn(const std::string &folder) {
  std::vector<std::string> files, indexes;
  std::error_code error;
  for (const fs::directory_entry &e : fs::directory_iterator(folder, error)) {
    const std::string path = e.path();
    if (endsWith(path, kIndex))
      indexes.push_back(path);
    else if (endsWith(path, kFile))
      files.push_back(path);
  }
  std::sort(files.begin(), files.end());
  if (indexes.size() > 1)
    fail("'%s' has several indexes, '%s' and '%s'; name one", folder.c_str(), indexes[0].c_str(), indexes[1].c_str());
  return indexes.empty() ? files : indexes;
}

static void addFile(GivenFiles &given, const std::string &path) {
  const int number = static_cast<int>(given.files.size());
  given.files.push_back(path);
  for (SafetensorsEntry &e : readSafetensors(File(path)))
    given.tensors.push_back({e.name, e.dtype, safetensorsElem(e.dtype), e.shape, number, e.begin, e.end - e.begin});
}

/// The files of an index, by the names of the tensors that are to be taken from them.
static std::map<std::string, std::string> readIndexFile(const std::string &path) {
  constexpr int64_t kMost = 100'000'000; // bytes
  const File file(path);
  if (file.bytes() > kMost)
    fail("'%s' has %lld bytes, which no index has", path.c_str(), static_cast<long long>(file.bytes()));
  std::string text(file.bytes(), ' ');
  file.read(0, text.size(), text.data());
  const std::string what = "'" + path + "' is no index of safetensors files";
  JsonReader json(text, what.c_str());
  std::map<std::string, std::string> fileOf;
  bool hasMap = false;
  json.members([&](const std::string &key) {
    if (key != "weight_map")
      return json.skip();
    hasMap = true;
    json.members([&](const std::string &name) { fileOf[name] = json.string(); });
  });
  json.end();
  if (!hasMap)
    fail("%s: it has no 'weight_map'", what.c_str());
  return fileOf;
}

static void addIndex(GivenFiles &given, const std::string &path) {
  const std::map<std::string, std::string> fileOf = readIndexFile(path);
  std::map<std::string, int> numbers;
  for (auto &[name, file] : fileOf) {
    if (fs::path(file).filename() != file || file == "..")
      fail("'%s' names '%s', which is no file beside it", path.c_str(), file.c_str());
    if (numbers.try_emplace(file, given.files.size()).second)
      addFile(given, (fs::path(path).parent_path() / file).string());
  }
  std::map<std::string, int> found;
  std::erase_if(given.tensors, [&](const GivenTensor &t) {
    auto entry = fileOf.find(t.name);
    const bool isMeant = entry != fileOf.end() && numbers[entry->second] == t.file;
    found[t.name] += isMeant;
    return !isMeant;
  });
  for (auto &[name, file] : fileOf)
    if (!found[name])
      fail("'%s' says that '%s' has '%s', and it has not", path.c_str(), file.c_str(), name.c_str());
}

GivenFiles openGiven(const std::string &path) {
  GivenFiles given{path, {}, {}};
  std::error_code error;
  const bool isFolder = fs::is_directory(path, error);
  const std::vector<std::string> files = isFolder ? safetensorsIn(path) : std::vector<std::string>{path};
  for (const std::string &file : files) {
    if (endsWith(file, kIndex))
      addIndex(given, file);
    else if (endsWith(file, kFile))
      addFile(given, file);
    else
      fail("--weights=%s: expected FILE%s, FILE%s, or a folder%s", path.c_str(), kFile, kIndex,
           fs::exists(file, error) ? "" : ", and there is nothing of that name");
  }
  if (files.empty())
    fail("'%s' has no safetensors file", path.c_str());
  std::vector<std::string> names;
  for (const GivenTensor &t : given.tensors)
    names.push_back(t.name);
  std::sort(names.begin(), names.end());
  if (auto twice = std::adjacent_find(names.begin(), names.end()); twice != names.end())
    fail("several files of '%s' have a tensor '%s'; name one file, or an index", path.c_str(), twice->c_str());
  return given;
}

} // namespace zccrt
