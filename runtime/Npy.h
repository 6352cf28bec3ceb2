// Arrays in .npy files and .npz archives, read on demand.
//
// A .npy file and a stored (uncompressed) member of an .npz stay in their file; a deflated member is inflated once, where there
// is memory for it, else as it is read. Files are read with pread rather than through a mapping: one that is cut short while the
// program runs is then an error message and no SIGBUS, and what was read does not count as the program's memory.
#pragma once

#include "runtime/zccrt.h"
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace zccrt {

/// Bytes in a file or in memory.
class Source {
public:
  virtual ~Source() = default;
  /// Copies bytes [at, at + n). Throws a Failure naming the file.
  virtual void read(int64_t at, int64_t n, void *to) const = 0;
  /// " of 'FILE'", where the bytes are of several files; else "".
  virtual std::string fileOf(int64_t) const { return ""; }
  /// Why they are only read from the first to the last, which begins anew where less than what was read is asked for; "" where
  /// any order is as good.
  virtual std::string onlyInOrder() const { return ""; }
};

struct Array {
  std::string name; ///< "labels"; of a .npy file its path
  std::string file; ///< where it lies
  zccrt_elem elem = ZCCRT_F32;
  std::vector<int64_t> dims;
  std::shared_ptr<const Source> source;
  int64_t offset = 0; ///< in bytes, of element 0
  int64_t elements() const;
  int64_t inMemory = 0; ///< bytes that inflating took
};

struct NpyHeader {
  zccrt_elem elem;
  std::vector<int64_t> dims;
  int64_t headerBytes; ///< the data begin here
};

/// Reads the header at the front of a .npy file. `where` names it in messages.
/// Throws a Failure for anything but dense little-endian C-order numbers and booleans.
NpyHeader parseNpyHeader(std::string_view front, const std::string &where);
/// The header numpy writes for this type and shape.
std::string npyHeader(int elem, const std::vector<int64_t> &dims);

/// A regular file, opened for reading.
class File : public Source {
public:
  explicit File(const std::string &path);
  ~File() override;
  File(const File &) = delete;
  File &operator=(const File &) = delete;
  void read(int64_t at, int64_t n, void *to) const override;
  int64_t bytes() const { return size; }
  const std::string &path() const { return name; }

private:
  std::string name;
  int fd;
  int64_t size;
};

/// The array whose header begins at `at` of a source with `bytes` bytes from there.
Array arrayAt(std::shared_ptr<const Source> source, int64_t at, int64_t bytes, const std::string &name, const std::string &where);

Array openNpy(const std::string &path);
/// Arrays of the same rows, one behind the other along axis 0. Nothing is read or copied.
Array joinArrays(const std::vector<Array> &parts);
/// The arrays of an .npz whose names are in `wanted`; `others` gets the names of the rest.
std::vector<Array> openNpz(const std::string &path, const std::vector<std::string> &wanted, std::vector<std::string> &others);

} // namespace zccrt
