// Starts compilers, waits for them, and cleans up after them, also where a signal ends zcc.
#include "codegen/Compilers.h"
#include "ir/Files.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"
#include <csignal>
#include <mutex>
#include <sys/wait.h>
#include <unistd.h>

using namespace zcc;
using llvm::StringRef;
namespace fs = llvm::sys::fs;
namespace path = llvm::sys::path;

namespace {
/// What has to go when a signal ends zcc.
struct Live {
  std::mutex mutex;
  std::vector<pid_t> compilers;
  std::string folder;
};
} // namespace

static Live &live() {
  static Live l;
  return l;
}

void zcc::stopCompilers() {
  Live &l = live();
  l.mutex.lock(); // for good: the thread that compiles must not go on
  for (pid_t p : l.compilers) {
    kill(p, SIGKILL); // which may not lead its own group yet
    kill(-p, SIGKILL);
  }
  for (pid_t p : l.compilers)
    waitpid(p, nullptr, 0);
  if (!l.folder.empty())
    fs::remove_directories(l.folder);
}

// ---- the folder

llvm::Error WorkFolder::make() {
  std::lock_guard lock(live().mutex);
  if (auto ec = fs::createUniqueDirectory("zcc", path_)) {
    llvm::SmallString<128> temp;
    path::system_temp_directory(/*ErasedOnReboot=*/true, temp);
    return error("cannot make a temporary folder in '" + temp + "': " + ec.message() +
                 "; the environment variable TMPDIR names another place");
  }
  live().folder = path_.str();
  return llvm::Error::success();
}

WorkFolder::~WorkFolder() {
  std::lock_guard lock(live().mutex);
  if (!keep_ && !path_.empty())
    fs::remove_directories(path_);
  live().folder.clear();
}

std::string WorkFolder::file(StringRef name) const {
  llvm::SmallString<128> p(path_);
  path::append(p, name);
  return p.str().str();
}

/// What keeps a file of some size from being written; success where nothing does.
static std::error_code probe(const std::string &file) {
  constexpr size_t kBytes = size_t(16) << 20; // more than a compiler's largest output here
  std::error_code ec = writeFile(file, std::string(kBytes, '\0'));
  fs::remove(file);
  return ec;
}

llvm::Error WorkFolder::checkRoom(StringRef log) const {
  std::string why;
  for (StringRef known : {"No space left on device", "Disk quota exceeded", "File too large"})
    if (auto text = llvm::MemoryBuffer::getFile(log); text && (*text)->getBuffer().contains(known))
      why = known.str();
  if (auto ec = probe(file("probe")); ec && why.empty())
    why = ec.message();
  if (why.empty())
    return llvm::Error::success();
  return error("cannot write to '" + path::parent_path(path_) + "': " + why +
               "; free space there, or name another folder in the environment variable TMPDIR");
}

// ---- compilers

/// This process's environment, with the folder as the place for temporary files.
static std::vector<std::string> environment(const WorkFolder &work) {
  std::vector<std::string> r;
  for (char **e = environ; *e; ++e)
    if (!StringRef(*e).starts_with("TMPDIR="))
      r.push_back(*e);
  r.push_back("TMPDIR=" + work.path().str());
  return r;
}

llvm::Expected<Job> zcc::start(const WorkFolder &work, const std::vector<std::string> &args, StringRef logName) {
  std::vector<StringRef> refs(args.begin(), args.end());
  std::vector<std::string> variables = environment(work);
  std::vector<StringRef> env(variables.begin(), variables.end());
  std::string message;
  bool failed = false;
  Job j;
  j.log = work.file(logName);
  std::optional<StringRef> redirects[] = {StringRef(""), StringRef(j.log), StringRef(j.log)};
  std::lock_guard lock(live().mutex);
  j.process = llvm::sys::ExecuteNoWait(args[0], refs, env, redirects, 0, &message, &failed,
                                       /*AffinityMask=*/nullptr, /*DetachProcess=*/true);
  if (failed)
    return error("cannot run '" + args[0] + "', the compiler that zcc was built with: " + message);
  live().compilers.push_back(j.process.Pid);
  return j;
}

int zcc::finish(const Job &job) {
  std::string message;
  llvm::sys::ProcessInfo done = llvm::sys::Wait(job.process, std::nullopt, &message);
  std::lock_guard lock(live().mutex);
  llvm::erase(live().compilers, job.process.Pid);
  return done.ReturnCode;
}
