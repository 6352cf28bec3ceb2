// Elements of a tensor as a file has them: perhaps of another type, perhaps with the last two axes swapped.
#pragma once

#include "runtime/Npy.h"
#include "runtime/checkpoint/Boxes.h"

namespace zccrt {

/// Files are read and written in pieces of so many bytes.
constexpr int64_t kChunkBytes = 4 << 20;

/// Where a file has a tensor.
struct TensorInFile {
  int64_t offset = 0; ///< bytes
  int elem = 0;
  std::vector<int64_t> dims;
  bool isTransposed = false; ///< the file has the last two of `dims` swapped
};

/// Reads at most a few MiB at a time.
class RunReader {
public:
  /// Elements of a run of the tensor, as `elem`.
  void read(const File &file, const TensorInFile &t, const Run &run, int elem, char *to);

private:
  void readRow(const File &file, const TensorInFile &t, int64_t first, int64_t count, int elem, char *to);
  void readTransposed(const File &file, const TensorInFile &t, const Run &run, int elem, char *to);
  void readColumns(const File &file, int64_t base, int64_t row, int64_t rows, int64_t column, int64_t columns, int64_t width,
                   int64_t size);
  const char *inElement(int from, int to, int64_t count);

  std::vector<char> buffer, converted;
};

} // namespace zccrt
