// An output file that appears whole or not at all: written without a name, where the file system can, so that a process that is
// killed leaves nothing, or under a temporary name beside its place, which the next one that writes the file removes if its owner
// was killed. commit() gives it its own.
#pragma once

#include <cstdint>
#include <string>

namespace zccrt {

class OutFile {
public:
  OutFile() = default;
  /// Opens the temporary file. Throws a Failure if the folder does not exist or may not be written
  /// to.
  explicit OutFile(const std::string &path);
  OutFile(OutFile &&o) noexcept;
  OutFile &operator=(OutFile &&o) noexcept;
  /// Removes the temporary file if commit() was not reached.
  ~OutFile();

  bool isOpen() const { return fd >= 0; }
  int descriptor() const { return fd; }
  const std::string &path() const { return name; }

  /// Appends. Throws a Failure naming the file, for instance when the disk is full.
  void write(const void *data, uint64_t bytes);
  /// Throws if the file system has fewer bytes left.
  void expectRoom(uint64_t bytes) const;
  /// Flushes, closes and renames.
  void commit();

private:
  /// Removes the temporary files of this one that processes which were killed have left.
  void removeAbandoned() const;
  bool openNameless();
  void openNamed();
  void giveName();
  void drop();

  std::string name, temporary;
  int fd = -1;
  bool isNameless = false;
};

/// Removes the temporary files of this process; async-signal-safe.
void removeUnfinishedFiles();

/// write() until everything is out; false with errno set on an error.
bool writeAll(int fd, const void *data, uint64_t bytes);

} // namespace zccrt
