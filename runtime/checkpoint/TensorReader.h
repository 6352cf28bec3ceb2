// Elements of a checkpoint's tensors, from the files that have them.
#pragma once

#include "runtime/Npy.h"
#include "runtime/checkpoint/Folder.h"
#include <map>
#include <memory>

namespace zccrt {

class TensorReader {
public:
  /// The checkpoint stays where it is.
  explicit TensorReader(const Checkpoint &c);

  struct Place {
    const SavedRun *run;
    size_t file;
  };
  /// The runs whose values a rank takes: everybody's, or one rank's own. `wanted` names the tensor and the rank.
  std::vector<Place> placesOf(const SavedRun &wanted) const;
  /// Reads the elements of a run of a tensor, as `wanted.elem`. Throws a Failure if the checkpoint lacks some.
  void read(const SavedRun &wanted, char *out);
  /// The tensors' names, each once, in order.
  std::vector<std::string> names() const;

private:
  const File &file(size_t i);
  void readFrom(const Place &p, int64_t first, int64_t count, int elem, char *out);

  const Checkpoint &checkpoint;
  std::map<std::string, std::vector<Place>> tensors;
  std::map<size_t, std::unique_ptr<File>> files;
  std::vector<char> buffer;
};

} // namespace zccrt
