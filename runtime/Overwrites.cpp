// Compares files by their numbers, and those that are not there yet by their names.
#include "runtime/Overwrites.h"
#include "runtime/Fail.h"
#include "runtime/Weights.h"
#include "runtime/checkpoint/Folder.h"
#include <filesystem>

namespace fs = std::filesystem;

namespace zccrt {

namespace {

struct Named {
  std::string option, file;
};

} // namespace

static std::vector<Named> read(const zccrt_program &p, const Options &o, const std::string &folder) {
  std::vector<Named> all = {{"the program", "/proc/self/exe"}};
  auto addData = [&](const DataFiles &data, const char *option, const char *tokens) {
    for (const std::string &f : data.npz)
      all.push_back({option, f});
    for (const DataFiles::Named &n : data.npy)
      all.push_back({option, n.file});
    for (const std::string &f : data.tokens)
      all.push_back({tokens, f});
  };
  addData(o.data, "--data", "--tokens");
  addData(o.evalData, "--eval-data", "--eval-data");
  if (!o.weights.empty())
    all.push_back({"--weights", o.weights});
  std::error_code ec;
  for (const std::string &folder :
       o.resume.empty() || o.resume == "auto" ? std::vector<std::string>() : checkpointsFrom(o.resume))
    for (fs::directory_iterator e(folder, ec), end; !ec && e != end; e.increment(ec))
      all.push_back({"--resume", e->path().string()});
  for (int i = -1; i < p.nfiles; ++i)
    all.push_back({"a file that holds the model's weights", weightsPath(p, i, folder)});
  return all;
}

bool areSameFile(const std::string &a, const std::string &b) {
  std::error_code ec;
  return fs::equivalent(a, b, ec) || fs::absolute(a, ec).lexically_normal() == fs::absolute(b, ec).lexically_normal();
}

void checkOverwrites(const zccrt_program &p, const Options &o, const std::string &folder) {
  std::vector<Named> known = read(p, o, folder);
  for (const Named &out : std::initializer_list<Named>{{"--log", o.log},
                                                       {"--trace", o.trace},
                                                       {"--report", o.report},
                                                       {"--outputs", o.outputs},
                                                       {"--export", o.exportFile}}) {
    std::error_code ec;
    if (out.file.empty() || fs::is_character_file(out.file, ec)) // such as /dev/null
      continue;
    for (const Named &k : known)
      if (areSameFile(out.file, k.file))
        fail("%s=%s would overwrite %s", out.option.c_str(), out.file.c_str(),
             k.option.starts_with("--") ? ("what " + k.option + " names").c_str() : k.option.c_str());
    known.push_back(out);
  }
}

} // namespace zccrt
