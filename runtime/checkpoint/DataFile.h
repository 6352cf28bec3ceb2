// A checkpoint's file of data: bytes of arenas, one behind the other, written past the page cache through a buffer.
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

  /// Appends bytes of an arena and returns their hash. Throws a Failure that names the file.
  uint64_t append(const Arena &from, int64_t offset, int64_t bytes);
  int64_t bytes() const { return written + filled; }
  /// Returns when all of it is on the disk.
  void finish();

private:
  void flush(int64_t n);
  void writeOut(int64_t n);
  [[noreturn]] void failed() const;

  std::string path;
  std::span<char> buffer;
  int fd;
  bool isDirect = true;
  int64_t written = 0, filled = 0; ///< bytes in the file; in the buffer behind them
};

} // namespace zccrt
