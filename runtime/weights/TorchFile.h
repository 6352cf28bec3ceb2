// A file of torch.save: which tensors it has, and where their bytes are.
#pragma once

#include "runtime/weights/Pickle.h"
#include "runtime/weights/WeightFiles.h"
#include <map>
#include <memory>
#include <optional>

namespace zccrt {

class TorchFile {
public:
  /// Reads the pickle, no tensor. Throws a Failure that names the file.
  explicit TorchFile(const std::string &path);

  const Pickle &pickle() const { return *values; }
  /// The tensors of a state_dict: the file's one dict, or the one under a name such as "model", which `under` gets.
  std::vector<GivenTensor> stateDict(std::string *under = nullptr) const;
  /// The one tensor of a file that has no more, or a dict with "param".
  GivenTensor onlyTensor() const;
  const std::string path;

private:
  struct Storage {
    int64_t offset, bytes;
  };
  void readMembers();
  std::vector<GivenTensor> tensorsOf(const PickleValue &dict) const;
  GivenTensor tensorOf(const std::string &name, const PickleValue &v) const;

  std::string what; ///< "'x.pt'"
  std::string text;
  std::map<std::string, Storage> storages; ///< by key
  std::unique_ptr<Pickle> values;
};

} // namespace zccrt
