// Hashes what is to be written, and writes whole pages of it or of the buffer.
#include "runtime/checkpoint/DataFile.h"
#include "runtime/Fail.h"
#include "runtime/Hash.h"
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

namespace zccrt {

// Read from an arena at a time; a good read of a disk, and a good write. Less than that is not worth a write of its own.
constexpr int64_t kPiece = 1 << 20;

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

/// Behind what is written.
void DataFile::writeOut(const char *from, int64_t n) {
  for (int64_t at = 0; at < n;) {
    ssize_t done = pwrite(fd, from + at, n - at, written + at);
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
  written += n;
}

/// Writes the buffer's whole pages, and moves the rest to its head.
void DataFile::flush() {
  const int64_t n = filled / kPage * kPage;
  writeOut(buffer.data(), n);
  filled -= n;
  std::memmove(buffer.data(), buffer.data() + n, filled);
}

/// Puts n bytes, less than a page, into the buffer; nullptr: zeros.
void DataFile::fill(const char *from, int64_t n) {
  if (int64_t(buffer.size()) - filled < n)
    flush();
  if (from)
    std::memcpy(buffer.data() + filled, from, n);
  else
    std::memset(buffer.data() + filled, 0, n);
  filled += n;
}

static int64_t inPage(const char *p) { return reinterpret_cast<uintptr_t>(p) % kPage; }

/// What lies at the same place of a page in memory and in the file is written from where it lies, but for the ends.
uint64_t DataFile::appendInPlace(const char *from, int64_t bytes) {
  const int64_t head = (kPage - inPage(from)) % kPage;
  fill(from, head);
  flush();
  const char *to = from + head;
  uint64_t sum = 0;
  for (int64_t at = 0, n; at < bytes; at += n) {
    n = std::min(bytes - at, kPiece);
    sum += hashBlocks(from + at, n, at / kHashBlockBytes);
    const char *end = from + at + n;
    end -= inPage(end);
    writeOut(to, end - to);
    to = end;
  }
  fill(to, from + bytes - to);
  return sum;
}

uint64_t DataFile::appendCopy(const Arena &from, int64_t offset, int64_t bytes) {
  constexpr int64_t kBlock = kHashBlockBytes;
  uint64_t sum = 0;
  for (int64_t at = 0, n; at < bytes; at += n) {
    if (int64_t(buffer.size()) - filled < std::min(bytes - at, kBlock))
      flush();
    int64_t room = buffer.size() - filled;
    n = std::min(bytes - at, kPiece);
    if (n > room) // whole blocks, but for the last
      n = room / kBlock * kBlock;
    from.copyFrom(buffer.data() + filled, offset + at, n);
    sum += hashBlocks(buffer.data() + filled, n, at / kBlock);
    filled += n;
  }
  return sum;
}

DataFile::Place DataFile::append(const Arena &from, int64_t offset, int64_t bytes) {
  const char *inPlace = bytes < kPiece ? nullptr : from.onHost(offset);
  if (inPlace)
    fill(nullptr, (inPage(inPlace) - filled % kPage + kPage) % kPage);
  const int64_t at = this->bytes();
  return {at, hashFinish(inPlace ? appendInPlace(inPlace, bytes) : appendCopy(from, offset, bytes), bytes)};
}

void DataFile::finish() {
  const int64_t length = bytes(), whole = (filled + kPage - 1) / kPage * kPage;
  std::memset(buffer.data() + filled, 0, whole - filled);
  writeOut(buffer.data(), whole);
  if (ftruncate(fd, length) != 0 || fdatasync(fd) != 0)
    failed();
  int closed = close(fd);
  fd = -1;
  if (closed != 0)
    failed();
}

} // namespace zccrt
