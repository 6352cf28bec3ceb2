// Files of weights that others have written: what tensors they have, and where. Only headers are read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace zccrt {

/// A tensor of a file.
struct GivenTensor {
  std::string name, dtype;
  int elem = -1; ///< zccrt_elem; -1: a type that zcc has not
  std::vector<int64_t> dims;
  int file = 0; ///< index into GivenFiles::files
  int64_t offset = 0, bytes = 0;
  std::vector<int64_t> strides; ///< elements, of a view of a file's numbers; empty: they lie in order
};

struct GivenFiles {
  std::string path;               ///< as given
  std::vector<std::string> files; ///< their paths
  std::vector<GivenTensor> tensors;
};

/// The file that tells what a folder of safetensors files holds, or all of them; none: the folder has none.
std::vector<std::string> safetensorsIn(const std::string &folder);

/// Of FILE.safetensors, FILE.safetensors.index.json, or a folder with such files. Throws a Failure that names the file.
GivenFiles openGiven(const std::string &path);

/// "'a', 'b' and 20 more"
std::string listedNames(const std::vector<std::string> &names);

} // namespace zccrt
