// Fills the buffer, hashes what came into it, and writes its whole pages.
#include "runtime/checkpoint/DataFile.h"
#include "runtime/Fail.h"
#include "runtime/Hash.h"
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

namespace zccrt {

constexpr int64_t kPage = 4096;
// From an arena at a time: from memory so little that it is in the nearest cache when it is hashed, from a disk a good read.
constexpr int64_t kFromMemory = kHashBlockBytes, kFromDisk = 1 << 20;

DataFile::DataFile(const std::string &path, std::span<char> buffer) : path(path), buffer(buffer) {
  constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
  fd = open(path.c_str(), kFlags | O_DIRECT, 0666);
  if (fd < 0 && errno == EINVAL) { // a file system in memory; some make the file all the same
    unlink(path.c_str());
    fd = open(path.c_str(), kFlags, 0666);
    isDirect = false;
  }
  if (fd < 0)
    failed();
}

DataFile::~DataFile() {
  if (fd >= 0)
    close(fd);
}

void DataFile::failed() const { failErrno("cannot write '%s'", path.c_str()); }

void DataFile::writeOut(int64_t n) {
  for (int64_t at = 0; at < n;) {
    ssize_t done = pwrite(fd, buffer.data() + at, n - at, written + at);
    if (done < 0 && errno == EINTR)
      continue;
    if (done < 0 && errno == EINVAL && isDirect) { // this disk asks for larger pages
      isDirect = false;
      fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_DIRECT);
      continue;
    }
    if (done == 0)
      errno = ENOSPC;
    if (done <= 0)
      failed();
    at += done;
  }
}

/// Writes n bytes of the buffer, whole pages, and moves the rest to its head.
void DataFile::flush(int64_t n) {
  writeOut(n);
  written += n;
  filled -= n;
  std::memmove(buffer.data(), buffer.data() + n, filled);
}

uint64_t DataFile::append(const Arena &from, int64_t offset, int64_t bytes) {
  constexpr int64_t kBlock = kHashBlockBytes;
  const int64_t most = from.onHost(offset) ? kFromMemory : kFromDisk;
  uint64_t sum = 0;
  for (int64_t at = 0, n; at < bytes; at += n) {
    if (int64_t(buffer.size()) - filled < std::min(bytes - at, kBlock))
      flush(filled / kPage * kPage);
    int64_t room = buffer.size() - filled;
    n = std::min(bytes - at, most);
    if (n > room) // whole blocks, but for the last
      n = room / kBlock * kBlock;
    from.copyFrom(buffer.data() + filled, offset + at, n);
    sum += hashBlocks(buffer.data() + filled, n, at / kBlock);
    filled += n;
  }
  return hashFinish(sum, bytes);
}

void DataFile::finish() {
  const int64_t length = bytes(), whole = (filled + kPage - 1) / kPage * kPage;
  std::memset(buffer.data() + filled, 0, whole - filled);
  writeOut(whole);
  if (ftruncate(fd, length) != 0 || fdatasync(fd) != 0)
    failed();
  int closed = close(fd);
  fd = -1;
  if (closed != 0)
    failed();
}

} // namespace zccrt
