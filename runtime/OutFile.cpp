#include "runtime/OutFile.h"
#include "runtime/Fail.h"
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

namespace zccrt {

// Fixed storage: read by signal handlers. A name of length 0 is a free entry.
static char unfinished[16][PATH_MAX];

static void remember(const std::string &path) {
  for (char *entry : unfinished) {
    if (entry[0] || path.size() >= PATH_MAX)
      continue;
    memcpy(entry + 1, path.c_str() + 1, path.size());
    entry[0] = path[0];
    return;
  }
}

static void forget(const std::string &path) {
  for (char *entry : unfinished)
    if (path == entry)
      entry[0] = '\0';
}

void removeUnfinishedFiles() {
  for (char *entry : unfinished)
    if (entry[0])
      unlink(entry);
}

static void onSignal(int number) {
  removeUnfinishedFiles();
  signal(number, SIG_DFL);
  raise(number);
}

void removeUnfinishedFilesOnSignals() {
  for (int number : {SIGINT, SIGTERM, SIGHUP})
    signal(number, onSignal);
}

bool writeAll(int fd, const void *data, uint64_t bytes) {
  const char *p = static_cast<const char *>(data);
  while (bytes) {
    ssize_t n = write(fd, p, bytes < (1u << 30) ? bytes : (1u << 30));
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0) {
      if (n == 0)
        errno = ENOSPC;
      return false;
    }
    p += n;
    bytes -= n;
  }
  return true;
}

OutFile::OutFile(const std::string &path) : name(path) {
  // A symbolic link keeps pointing to the file it names.
  if (char *real = realpath(path.c_str(), nullptr)) {
    name = real;
    free(real);
  }
  struct stat info;
  if (stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode))
    fail("cannot write '%s': it is not a regular file", path.c_str());
  if (access(path.c_str(), F_OK) == 0 && access(path.c_str(), W_OK) != 0)
    failErrno("cannot write '%s'", path.c_str());
  temporary = format("%s.%d.tmp", name.c_str(), static_cast<int>(getpid()));
  fd = open(temporary.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0)
    failErrno("cannot write '%s'", path.c_str());
  remember(temporary);
}

OutFile::OutFile(OutFile &&o) noexcept { *this = std::move(o); }

OutFile &OutFile::operator=(OutFile &&o) noexcept {
  if (this == &o)
    return *this;
  drop();
  name = std::move(o.name);
  temporary = std::move(o.temporary);
  fd = o.fd;
  o.fd = -1;
  return *this;
}

OutFile::~OutFile() { drop(); }

void OutFile::drop() {
  if (fd < 0)
    return;
  close(fd);
  fd = -1;
  unlink(temporary.c_str());
  forget(temporary);
}

void OutFile::write(const void *data, uint64_t bytes) {
  if (!writeAll(fd, data, bytes))
    failErrno("cannot write '%s'", name.c_str());
}

void OutFile::expectRoom(uint64_t bytes) const {
  struct statvfs info;
  if (fstatvfs(fd, &info) != 0)
    return;
  uint64_t left = uint64_t(info.f_bavail) * info.f_frsize;
  if (left < bytes)
    fail("cannot write '%s': it needs %.1f MiB, its disk has %.1f MiB left", name.c_str(),
         bytes / 1048576.0, left / 1048576.0);
}

void OutFile::commit() {
  if (fsync(fd) != 0 && errno != EINVAL && errno != EROFS)
    failErrno("cannot write '%s'", name.c_str());
  int closed = close(fd);
  fd = -1;
  if (closed != 0 || rename(temporary.c_str(), name.c_str()) != 0) {
    int code = errno;
    unlink(temporary.c_str());
    forget(temporary);
    errno = code;
    failErrno("cannot write '%s'", name.c_str());
  }
  forget(temporary);
}

} // namespace zccrt
