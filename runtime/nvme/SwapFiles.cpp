// Looks at the folders, then makes the files: room first, direct I/O where the file system has it.
#include "runtime/nvme/SwapFiles.h"
#include "runtime/Fail.h"
#include "runtime/nvme/Nvme.h"
#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <linux/magic.h>
#include <map>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

namespace zccrt {

static std::string sizeText(uint64_t bytes) {
  constexpr double kKiB = 1 << 10, kMiB = 1 << 20, kGiB = 1 << 30;
  return bytes < kMiB   ? format("%.1f KiB", bytes / kKiB)
         : bytes < kGiB ? format("%.1f MiB", bytes / kMiB)
                        : format("%.1f GiB", bytes / kGiB);
}

/// A Failure if the folder cannot hold a file; its device otherwise.
static dev_t deviceOf(const std::string &path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0)
    failErrno("cannot make a swap file in '%s'", path.c_str());
  if (!S_ISDIR(info.st_mode))
    fail("cannot make a swap file in '%s': it is not a folder", path.c_str());
  if (access(path.c_str(), W_OK | X_OK) != 0)
    failErrno("cannot make a swap file in '%s'", path.c_str());
  return info.st_dev;
}

void SwapFiles::expectRoom(uint64_t each) const {
  rlimit limit;
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < each)
    fail("a swap file of %s is larger than this process may write (%s); raise the limit with 'ulimit -f unlimited'",
         sizeText(each).c_str(), sizeText(limit.rlim_cur).c_str());
  std::map<dev_t, uint64_t> needs;
  for (const File &f : all)
    needs[deviceOf(f.path)] += each;
  for (const File &f : all) {
    struct statvfs info;
    if (statvfs(f.path.c_str(), &info) != 0)
      failErrno("cannot make a swap file in '%s'", f.path.c_str());
    uint64_t left = uint64_t(info.f_bavail) * info.f_frsize, need = needs[deviceOf(f.path)];
    if (left < need)
      fail("'%s' has no room for the swap file: %s are needed, %s are free; free space there or name another folder",
           f.path.c_str(), sizeText(need).c_str(), sizeText(left).c_str());
  }
}

/// Opens a file without a name or, where the file system has none such, one whose name is gone at once.
static int openNameless(const std::string &folder, int flags) {
  int fd = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC | flags, 0600);
  if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT))
    return fd;
  std::string name = folder + "/zcc-swap-XXXXXX";
  fd = mkostemp(name.data(), O_CLOEXEC | flags);
  if (fd >= 0 || errno == EINVAL) { // some make the file all the same
    const int why = errno;
    unlink(name.c_str());
    errno = why;
  }
  return fd;
}

/// Some file systems take O_DIRECT and refuse the reading.
static bool readsDirectly(int fd) {
  alignas(kNvmePage) char page[kNvmePage];
  return pread(fd, page, sizeof page, 0) >= 0 || errno != EINVAL;
}

void SwapFiles::open(File &f, uint64_t bytes, bool direct) {
  struct statfs system;
  if (statfs(f.path.c_str(), &system) == 0 && (system.f_type == TMPFS_MAGIC || system.f_type == RAMFS_MAGIC))
    notes.push_back(format("'%s' is no disk but a file system in memory", f.path.c_str()));
  f.fd = direct ? openNameless(f.path, O_DIRECT) : -1;
  f.isDirect = f.fd >= 0;
  if (!f.isDirect && (!direct || errno == EINVAL))
    f.fd = openNameless(f.path, 0);
  if (f.fd < 0)
    failErrno("cannot make a swap file in '%s'", f.path.c_str());
  int refused;
  while ((refused = fallocate(f.fd, 0, 0, static_cast<off_t>(bytes))) != 0 && errno == EINTR)
    ;
  if (refused && errno == EOPNOTSUPP) {
    notes.push_back(
        format("the file system of '%s' cannot reserve space; the disk may become full during the run", f.path.c_str()));
    refused = ftruncate(f.fd, static_cast<off_t>(bytes));
  }
  if (refused)
    failErrno("cannot make a swap file of %s in '%s'", sizeText(bytes).c_str(), f.path.c_str());
  if (f.isDirect && !readsDirectly(f.fd)) {
    fcntl(f.fd, F_SETFL, fcntl(f.fd, F_GETFL) & ~O_DIRECT);
    f.isDirect = false;
  }
  if (direct && !f.isDirect)
    notes.push_back(format("'%s' refuses direct I/O; its data goes through the system's page cache", f.path.c_str()));
}

SwapFiles::SwapFiles(const std::vector<std::string> &paths, uint64_t bytes, uint64_t stripeBytes, bool direct)
    : size(bytes), stripe(stripeBytes) {
  for (const std::string &p : paths)
    all.push_back({p});
  const uint64_t stripes = (bytes + stripe - 1) / stripe, n = all.size();
  const uint64_t each = n == 1 ? bytes : (stripes + n - 1) / n * stripe;
  try {
    expectRoom(each);
    for (File &f : all)
      open(f, each, direct);
  } catch (...) {
    for (const File &f : all)
      if (f.fd >= 0)
        close(f.fd);
    throw;
  }
}

SwapFiles::~SwapFiles() {
  for (const File &f : all)
    close(f.fd);
}

SwapFiles::Place SwapFiles::place(uint64_t offset) const {
  if (all.size() == 1)
    return {0, offset, size - offset};
  const uint64_t number = offset / stripe, in = offset % stripe;
  return {static_cast<uint32_t>(number % all.size()), number / all.size() * stripe + in, stripe - in};
}

bool SwapFiles::areDirect() const {
  for (const File &f : all)
    if (!f.isDirect)
      return false;
  return true;
}

void SwapFiles::flush() const {
  for (const File &f : all)
    if (fdatasync(f.fd) != 0)
      failErrno("cannot write the swap file in '%s'", f.path.c_str());
}

} // namespace zccrt
