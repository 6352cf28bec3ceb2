// Which tensor of a file a model's tensor is, by names: they may differ by a prefix, by what the user says, and where several
// names of the model are one tensor.
#pragma once

#include "runtime/weights/WeightFiles.h"

namespace zccrt {

/// A tensor of a model.
struct WantedTensor {
  /// One of its names in the state_dict, and how it lies there.
  struct Name {
    std::string name;
    std::vector<int64_t> dims;
    bool isTransposed = false; ///< against the tensor
  };
  std::vector<Name> names;
  int elem = 0;         ///< zccrt_elem: a file may have another float
  bool mayLack = false; ///< it has a value without
};

/// Which tensor of the file is one that is wanted, under which of its names.
struct FoundTensor {
  int tensor = -1; ///< index into GivenFiles::tensors; -1: none
  int name = 0;
  /// Further tensors of the file under other names of this one: they must be equal.
  struct Twin {
    int tensor, name;
  };
  std::vector<Twin> twins;
};

struct FoundWeights {
  std::vector<FoundTensor> tensors;  ///< of each wanted one
  std::vector<std::string> missing;  ///< wanted, not found, and allowed to lack by the caller
  std::vector<std::string> leftOver; ///< names of the file that nothing wants
  std::vector<std::string> notes;    ///< what was done to names
};

enum class MissingWeights { Refuse, Allow };

/// `maps`: "REGEX=REPLACEMENT" each, applied to the file's names, the first that matches. Throws one Failure that lists all that
/// is missing or does not fit.
FoundWeights findWeights(const std::vector<WantedTensor> &wanted, const GivenFiles &given, const std::vector<std::string> &maps,
                         MissingWeights missing);

/// What to warn of; "": nothing.
std::string leftOverText(const FoundWeights &found, const GivenFiles &given);

/// Throws a Failure unless tensors that the model has as one are equal in the file.
void expectTwinsEqual(const std::vector<WantedTensor> &wanted, const FoundWeights &found, const GivenFiles &given);

} // namespace zccrt
