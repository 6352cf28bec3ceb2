// A checkpoint's file of data: bytes of arenas, one behind the other, written past the page cache: what lies in host memory from
// where it lies, without a copy, all else through a buffer.
#pragma once

#include "runtime/Arena.h"
#include <span>
#include <string>

namespace zccrt {

class DataFile {
public:
  /// A new file. The buffer begins at a page, is whole pages long, and has room for all that will be appended, or for more than a
  /// block of the hash and a page.
  DataFile(const std::string &path, std::span<char> buffer);
  ~DataFile();
  DataFile(const DataFile &) = delete;
  DataFile &operator=(const DataFile &) = delete;

  struct Place {
    int64_t offset; ///< in the file
    uint64_t hash;
  };
  /// Appends bytes of an arena, behind fewer zeros than a page has; the arena's may change when this returns. Throws a Failure
  /// that names the file.
  Place append(const Arena &from, int64_t offset, int64_t bytes);
  int64_t bytes() const { return written + filled; }
  /// Returns when all of it is on the disk.
  void finish();

private:
  uint64_t appendInPlace(const char *from, int64_t bytes);
  uint64_t appendCopy(const Arena &from, int64_t offset, int64_t bytes);
  void fill(const char *from, int64_t n);
  void flush();
  void writeOut(const char *from, int64_t n);
  [[noreturn]] void failed() const;

  std::string path;
  std::span<char> buffer;
  int fd;
  bool isDirect = true;
  int64_t written = 0, filled = 0; ///< bytes in the file; in the buffer behind them
};

} // namespace zccrt
