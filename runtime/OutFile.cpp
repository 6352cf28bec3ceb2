// Creates, writes and names output files, and removes what was not finished.
#include "runtime/OutFile.h"
#include "runtime/Fail.h"
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
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
  removeAbandoned();
  if (!openNameless())
    openNamed();
}

static std::string folderOf(const std::string &path) {
  size_t slash = path.rfind('/');
  return slash == std::string::npos ? "./" : path.substr(0, slash + 1);
}

/// Takes the lock that a temporary file's owner holds as long as it lives; false if another process has it.
static bool isOurs(int fd) {
  return flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK; // some file systems have no locks
}

/// Whether `entry` is "out.onnx.1234.tmp" for the file "out.onnx".
static bool isTemporaryOf(const std::string &file, const std::string &entry) {
  size_t digits = file.size() + 1, end = entry.size() - strlen(".tmp");
  return entry.size() > digits + strlen(".tmp") && entry.compare(0, digits, file + ".") == 0 &&
         entry.compare(end, std::string::npos, ".tmp") == 0 && entry.find_first_not_of("0123456789", digits) == end;
}

void OutFile::removeAbandoned() const {
  std::string folder = folderOf(name), file = name.substr(name.rfind('/') + 1);
  DIR *entries = opendir(folder.c_str());
  if (!entries)
    return;
  while (dirent *entry = readdir(entries)) {
    if (!isTemporaryOf(file, entry->d_name))
      continue;
    std::string path = folder + entry->d_name;
    int left = open(path.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (left >= 0 && flock(left, LOCK_EX | LOCK_NB) == 0)
      unlink(path.c_str());
    if (left >= 0)
      close(left);
  }
  closedir(entries);
}

/// The descriptor's name in /proc, by which it is linked into its folder.
static std::string nameInProc(int fd) { return format("/proc/self/fd/%d", fd); }

bool OutFile::openNameless() {
  fd = open(folderOf(name).c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0666);
  if (fd >= 0 && access(nameInProc(fd).c_str(), F_OK) != 0) {
    close(fd);
    fd = -1;
  }
  isNameless = fd >= 0;
  if (isNameless)
    isOurs(fd); // it has a name for a moment in the end
  return isNameless;
}

void OutFile::openNamed() {
  constexpr int kTries = 100; // between opening and locking a process that starts may take it for abandoned
  for (int tries = 0; fd < 0; ++tries) {
    fd = open(temporary.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
      failErrno("cannot write '%s'", name.c_str());
    struct stat info;
    if (isOurs(fd) && fstat(fd, &info) == 0 && info.st_nlink)
      break;
    close(fd);
    fd = -1;
    if (tries == kTries)
      fail("cannot write '%s': another process has '%s' open", name.c_str(), temporary.c_str());
  }
  remember(temporary);
}

/// A link does not replace a file that is there: then it gets the temporary name for a moment.
void OutFile::giveName() {
  const std::string from = nameInProc(fd);
  auto link = [&](const std::string &to) { return linkat(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), AT_SYMLINK_FOLLOW) == 0; };
  isNameless = false;
  if (link(name)) {
    temporary = name;
    return;
  }
  bool isThere = errno == EEXIST;
  if (isThere)
    unlink(temporary.c_str());
  remember(temporary);
  if (!isThere || !link(temporary))
    failErrno("cannot write '%s'", name.c_str());
}

OutFile::OutFile(OutFile &&o) noexcept { *this = std::move(o); }

OutFile &OutFile::operator=(OutFile &&o) noexcept {
  if (this == &o)
    return *this;
  drop();
  name = std::move(o.name);
  temporary = std::move(o.temporary);
  fd = o.fd;
  isNameless = o.isNameless;
  o.fd = -1;
  return *this;
}

OutFile::~OutFile() { drop(); }

void OutFile::drop() {
  if (fd < 0)
    return;
  close(fd);
  fd = -1;
  if (isNameless)
    return;
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
    fail("cannot write '%s': it needs %.1f MiB, its disk has %.1f MiB left", name.c_str(), bytes / 1048576.0, left / 1048576.0);
}

void OutFile::commit() {
  if (fsync(fd) != 0 && errno != EINVAL && errno != EROFS)
    failErrno("cannot write '%s'", name.c_str());
  if (isNameless)
    giveName();
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
