// Where NVIDIA's libraries may lie.
#include "runtime/cuda/real/Library.h"
#include <cstdlib>
#include <glob.h>
#include <sstream>
#include <string>
#include <unistd.h>
#include <vector>

namespace zccrt::cuda {

namespace {

std::string variable(const char *name) {
  const char *value = getenv(name);
  return value ? value : "";
}

/// The folder that the first python3 of PATH is installed in: of an active environment, that.
std::string pythonPrefix() {
  std::istringstream path(variable("PATH"));
  for (std::string folder; std::getline(path, folder, ':');)
    if (!access((folder + "/python3").c_str(), X_OK))
      return folder + "/..";
  return "";
}

/// Patterns of folders, the likeliest first.
std::vector<std::string> folders() {
  std::vector<std::string> out;
  for (const std::string &root : {variable("CUDA_HOME"), std::string(ZCC_CUDA_ROOT), std::string("/usr/local/cuda")})
    if (!root.empty())
      for (const char *folder : {"/lib64", "/lib", "/targets/*/lib"})
        out.push_back(root + folder);
  std::string home = variable("HOME"), data = variable("XDG_DATA_HOME");
  out.push_back((data.empty() ? home + "/.local/share" : data) + "/zcc/cuda/nvidia/*/lib");
  for (const std::string &prefix : {variable("VIRTUAL_ENV"), variable("CONDA_PREFIX"), pythonPrefix(), home + "/.local",
                                    std::string("/usr/local"), std::string("/usr")})
    if (!prefix.empty())
      out.push_back(prefix + "/lib/python3*/*-packages/nvidia/*/lib");
  return out;
}

void *openMatching(const std::string &pattern) {
  glob_t found = {};
  void *library = nullptr;
  if (!glob(pattern.c_str(), 0, nullptr, &found))
    for (size_t i = 0; i < found.gl_pathc && !library; ++i)
      library = dlopen(found.gl_pathv[i], RTLD_NOW | RTLD_LOCAL);
  globfree(&found);
  return library;
}

} // namespace

void *openLibrary(std::initializer_list<const char *> names) {
  const std::vector<std::string> all = folders();
  for (const char *name : names) {
    if (void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL))
      return library;
    for (const std::string &folder : all)
      if (void *library = openMatching(folder + "/" + name))
        return library;
  }
  return nullptr;
}

} // namespace zccrt::cuda
