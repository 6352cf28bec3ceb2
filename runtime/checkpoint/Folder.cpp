// Lists, reads, verifies, names and removes the folders of checkpoints.
#include "runtime/checkpoint/Folder.h"
#include "runtime/Elem.h"
#include "runtime/Fail.h"
#include "runtime/Hash.h"
#include "runtime/Npy.h"
#include "runtime/OutFile.h"
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <linux/fs.h>
#include <memory>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace zccrt {

namespace fs = std::filesystem;

constexpr const char *kStepPrefix = "step-";
constexpr const char *kUnfinished = ".step-"; // what begins like this is nobody's when a run starts

std::string stepFolder(const std::string &dir, int64_t step) { return dir + "/" + kStepPrefix + std::to_string(step); }

std::string temporaryFolder(const std::string &dir, int64_t step, uint64_t run) {
  return format("%s/%s%lld.%016llx.tmp", dir.c_str(), kUnfinished, static_cast<long long>(step),
                static_cast<unsigned long long>(run));
}

/// The number of a folder "step-N"; -1: it is called otherwise.
static int64_t stepOf(const std::string &name) {
  const std::string digits = name.rfind(kStepPrefix, 0) == 0 ? name.substr(strlen(kStepPrefix)) : "";
  const bool isNumber = !digits.empty() && digits.size() <= 18 && digits.find_first_not_of("0123456789") == std::string::npos;
  return isNumber ? std::stoll(digits) : -1;
}

std::vector<int64_t> stepsIn(const std::string &dir) {
  std::vector<int64_t> steps;
  std::error_code error;
  for (const fs::directory_entry &e : fs::directory_iterator(dir, error))
    if (int64_t step = stepOf(e.path().filename()); step >= 0 && e.is_directory(error))
      steps.push_back(step);
  std::sort(steps.begin(), steps.end());
  return steps;
}

/// A folder's path without a slash at its end; in full where it ends in "." or "..", which name no step.
static std::string withName(const std::string &dir) {
  fs::path p = fs::path(dir).lexically_normal();
  if (!p.has_filename())
    p = p.parent_path();
  std::error_code error;
  if (p == "." || p.filename() == "..")
    if (fs::path whole = fs::canonical(p, error); !error)
      p = whole;
  return p.string();
}

std::vector<std::string> checkpointsFrom(const std::string &dir) {
  const std::string self = withName(dir);
  const int64_t step = stepOf(fs::path(self).filename());
  const bool isOne = step >= 0 || access((self + "/" + kManifestName).c_str(), F_OK) == 0;
  const std::string above = isOne ? fs::path(self).parent_path().string() : self, parent = above.empty() ? "." : above;
  std::vector<std::string> folders;
  if (isOne)
    folders.push_back(self);
  std::vector<int64_t> steps = stepsIn(parent);
  for (auto s = steps.rbegin(); s != steps.rend(); ++s)
    if (!isOne || *s < step)
      folders.push_back(stepFolder(parent, *s));
  return folders;
}

// ---- reading

static std::string readText(const std::string &folder, const std::string &name) {
  const File file(folder + "/" + name);
  std::string text(file.bytes(), ' ');
  file.read(0, text.size(), text.data());
  return text;
}

/// Runs `read`; what it throws is said of a damaged checkpoint.
template <class Fn> static auto ofCheckpoint(const std::string &folder, const std::string &name, Fn read) {
  try {
    return read();
  } catch (const Failure &e) {
    fail("checkpoint '%s' is damaged: '%s': %s", folder.c_str(), name.c_str(), e.what());
  }
}

Checkpoint openCheckpoint(const std::string &folder) {
  Checkpoint c{folder, {}, {}};
  c.manifest = ofCheckpoint(folder, kManifestName, [&] { return readManifest(readText(folder, kManifestName)); });
  for (const SavedFile &f : c.manifest.files) {
    c.runs.push_back(ofCheckpoint(folder, f.index, [&] {
      std::string text = readText(folder, f.index);
      if (hashBytes(text.data(), text.size()) != f.indexHash)
        fail("its bytes are not those that were written");
      return readIndex(text);
    }));
    ofCheckpoint(folder, f.data, [&] {
      if (int64_t bytes = File(folder + "/" + f.data).bytes(); bytes != f.bytes)
        fail("it has %lld bytes, %lld were written", static_cast<long long>(bytes), static_cast<long long>(f.bytes));
    });
  }
  return c;
}

std::string readExports(const Checkpoint &c) {
  const std::string &name = c.manifest.exports;
  if (name.empty())
    return "";
  return ofCheckpoint(c.folder, name, [&] {
    std::string text = readText(c.folder, name);
    if (hashBytes(text.data(), text.size()) != c.manifest.exportsHash)
      fail("its bytes are not those that were written");
    return text;
  });
}

static int64_t bytesOf(const SavedRun &r) { return r.run.count * elemBytes(r.elem); }

static void verifyRun(const File &file, const SavedRun &r, std::vector<char> &buffer) {
  uint64_t sum = 0;
  const int64_t bytes = bytesOf(r), part = buffer.size();
  for (int64_t at = 0; at < bytes; at += part) {
    const int64_t n = std::min(part, bytes - at);
    file.read(r.offset + at, n, buffer.data());
    sum += hashBlocks(buffer.data(), n, at / kHashBlockBytes);
  }
  if (hashFinish(sum, bytes) != r.hash)
    fail("the bytes of tensor '%s' are not those that were written", r.tensor.c_str());
}

void verifyData(const Checkpoint &c, int share, int shares) {
  std::vector<char> buffer(16 * kHashBlockBytes);
  int64_t total = 0, at = 0;
  for (auto &runs : c.runs)
    for (const SavedRun &r : runs)
      total += bytesOf(r);
  for (size_t i = 0; i < c.runs.size(); ++i) {
    const std::string &name = c.manifest.files[i].data;
    std::unique_ptr<File> file;
    for (const SavedRun &r : c.runs[i]) {
      // Whole runs: whose first byte is in the share.
      bool isMine = total == 0 || (at * shares / total) == share;
      at += bytesOf(r);
      if (!isMine)
        continue;
      ofCheckpoint(c.folder, name, [&] {
        if (!file)
          file = std::make_unique<File>(c.folder + "/" + name);
        verifyRun(*file, r, buffer);
      });
    }
  }
}

// ---- writing

void makeFolder(const std::string &path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error)
    fail("cannot make the folder '%s': %s", path.c_str(), error.message().c_str());
}

/// Closes a file, if it is open, and leaves errno as it is.
static void closeWithErrno(int fd) {
  int code = errno;
  if (fd >= 0)
    close(fd);
  errno = code;
}

void flushFolder(const std::string &path) {
  int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  bool isDone = fd >= 0 && (fsync(fd) == 0 || errno == EINVAL);
  closeWithErrno(fd);
  if (!isDone)
    failErrno("cannot write the folder '%s'", path.c_str());
}

void writeDurably(const std::string &path, const std::string &text) {
  int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  bool isDone = fd >= 0 && writeAll(fd, text.data(), text.size()) && fsync(fd) == 0;
  closeWithErrno(fd);
  if (!isDone)
    failErrno("cannot write '%s'", path.c_str());
}

void nameCheckpoint(const std::string &temporary, const std::string &name) {
  bool isNamed = rename(temporary.c_str(), name.c_str()) == 0;
  if (!isNamed && (errno == ENOTEMPTY || errno == EEXIST)) {
    isNamed = syscall(SYS_renameat2, AT_FDCWD, temporary.c_str(), AT_FDCWD, name.c_str(), RENAME_EXCHANGE) == 0;
    std::error_code stays; // removed with what a run has not finished
    if (isNamed)
      fs::remove_all(temporary, stays);
  }
  if (!isNamed)
    failErrno("cannot write '%s'", name.c_str());
  flushFolder(fs::path(name).parent_path());
}

void removeOlder(const std::string &dir, const std::vector<int64_t> &steps, int64_t keep) {
  for (int64_t i = 0; i + keep < int64_t(steps.size()); ++i) {
    std::string nameless = temporaryFolder(dir, steps[i], 0);
    std::error_code error;
    fs::rename(stepFolder(dir, steps[i]), nameless, error);
    if (!error)
      fs::remove_all(nameless, error);
  }
}

void removeUnfinished(const std::string &dir) {
  std::error_code error;
  std::vector<fs::path> found;
  for (const fs::directory_entry &e : fs::directory_iterator(dir, error))
    if (std::string name = e.path().filename(); name.rfind(kUnfinished, 0) == 0 && e.path().extension() == ".tmp")
      found.push_back(e.path());
  for (const fs::path &p : found)
    fs::remove_all(p, error);
}

} // namespace zccrt
