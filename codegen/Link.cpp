#include "codegen/Link.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/Signals.h"
#include "llvm/Support/raw_ostream.h"
#include <algorithm>
#include <unistd.h>

using namespace zcc;
using llvm::StringRef;
namespace fs = llvm::sys::fs;
namespace path = llvm::sys::path;

namespace {
/// A folder for sources and objects, removed at the end unless somebody shall look into it.
class WorkFolder {
public:
  llvm::SmallString<128> path;
  bool keep = false;
  ~WorkFolder() {
    if (!keep && !path.empty())
      fs::remove_directories(path);
  }
  std::string file(StringRef name) const {
    llvm::SmallString<128> p(path);
    path::append(p, name);
    return p.str().str();
  }
};

/// A running compiler.
struct Job {
  llvm::sys::ProcessInfo process;
  std::string log;
};

/// One translation unit, NAME.cpp.
struct Part {
  std::string name;
  StringRef source;
  std::vector<std::string> flags;
};
} // namespace

static llvm::Error writeFile(StringRef path, StringRef bytes) {
  std::error_code ec;
  llvm::raw_fd_ostream os(path, ec);
  if (!ec) {
    os << bytes;
    os.close();
    ec = os.error();
    os.clear_error();
  }
  return ec ? error("cannot write '" + path + "': " + ec.message()) : llvm::Error::success();
}

static llvm::Expected<Job> start(std::vector<std::string> args, std::string log) {
  std::vector<StringRef> refs(args.begin(), args.end());
  std::string message;
  bool failed = false;
  std::optional<StringRef> redirects[] = {StringRef(""), StringRef(log), StringRef(log)};
  Job j;
  j.log = log;
  j.process =
      llvm::sys::ExecuteNoWait(args[0], refs, std::nullopt, redirects, 0, &message, &failed);
  if (failed)
    return error("cannot run '" + args[0] + "', the compiler that zcc was built with: " + message);
  return j;
}

static llvm::Error finish(Job &j, WorkFolder &work, StringRef what) {
  std::string message;
  llvm::sys::ProcessInfo done = llvm::sys::Wait(j.process, std::nullopt, &message);
  if (done.ReturnCode == 0)
    return llvm::Error::success();
  work.keep = true;
  std::string text;
  if (auto log = llvm::MemoryBuffer::getFile(j.log))
    for (StringRef line : llvm::split((*log)->getBuffer(), '\n'))
      if (line.contains("error") && std::count(text.begin(), text.end(), '\n') < 5)
        text += "\n" + line.str();
  return error("internal: " + what + " failed; sources and log are kept in '" + work.path + "'" +
               text);
}

/// The libraries that CMake found; those outside the system's folders are named to the loader, too.
static std::vector<std::string> libraries() {
  std::vector<std::string> out;
  for (StringRef lib : llvm::split(ZCC_LINK_LIBS, '|')) {
    out.push_back(lib.str());
    StringRef folder = path::parent_path(lib);
    if (path::is_absolute(lib) && !folder.starts_with("/usr/lib") && !folder.starts_with("/lib"))
      out.push_back("-Wl,-rpath," + folder.str());
  }
  return out;
}

/// Flags of a build with sanitizers: programs are built like the runtime that they link.
static std::vector<std::string> sanitizers() {
  return *ZCC_SANITIZE ? std::vector<std::string>{"-fsanitize=" ZCC_SANITIZE}
                       : std::vector<std::string>();
}

// ---- the machine

llvm::Expected<std::string> zcc::isaOf(StringRef march) {
  // Features that GCC's code may use, as the runtime and /proc/cpuinfo call them.
  constexpr StringRef kFeatures[] = {"sse3",       "ssse3",
                                     "sse4_1",     "sse4_2",
                                     "popcnt",     "avx",
                                     "avx2",       "fma",
                                     "f16c",       "bmi",
                                     "bmi2",       "lzcnt",
                                     "movbe",      "avx512f",
                                     "avx512cd",   "avx512dq",
                                     "avx512bw",   "avx512vl",
                                     "avx512vbmi", "avx512vbmi2",
                                     "avx512vnni", "avx512bf16",
                                     "avx512fp16", "avx512bitalg",
                                     "avx512ifma", "avx512vpopcntdq",
                                     "avxvnni",    "amx_tile",
                                     "amx_int8",   "amx_bf16"};
  llvm::SmallString<128> log;
  if (auto ec = fs::createTemporaryFile("zcc-isa", "txt", log))
    return error("cannot write a temporary file: " + ec.message());
  auto job = start({ZCC_CXX, "-march=" + march.str(), "-dM", "-E", "-x", "c", "/dev/null"},
                   log.str().str());
  if (!job)
    return job.takeError();
  std::string message;
  llvm::sys::ProcessInfo done = llvm::sys::Wait(job->process, std::nullopt, &message);
  auto text = llvm::MemoryBuffer::getFile(log);
  fs::remove(log);
  if (done.ReturnCode != 0 || !text)
    return error("the compiler does not know --march=" + march);
  std::vector<std::string> found;
  for (StringRef f : kFeatures) {
    std::string macro = "#define __" + f.upper() + "__ 1\n";
    if ((*text)->getBuffer().contains(macro))
      found.push_back(f == "lzcnt" ? "abm" : f.str()); // as Linux calls it
  }
  return llvm::join(found, " ");
}

// ---- files

llvm::Error zcc::checkWritable(StringRef out) {
  if (fs::is_directory(out))
    return error("'" + out + "' is a folder");
  StringRef folder = path::parent_path(out);
  if (folder.empty())
    folder = ".";
  if (!fs::is_directory(folder))
    return error("there is no folder '" + folder + "' to write '" + out + "' to");
  if (access(folder.str().c_str(), W_OK | X_OK))
    return error("cannot write '" + out + "': folder '" + folder + "' is not writable");
  return llvm::Error::success();
}

/// Writes beside `out`, on the same file system, and renames.
static llvm::Error install(StringRef from, const std::string *bytes, StringRef out) {
  llvm::SmallString<128> temp;
  int fd;
  if (auto ec = fs::createUniqueFile(out + ".%%%%%%", fd, temp))
    return error("cannot write '" + out + "': " + ec.message());
  ::close(fd);
  llvm::sys::RemoveFileOnSignal(temp);
  llvm::Error e = llvm::Error::success();
  std::error_code ec;
  if (bytes)
    e = writeFile(temp, *bytes);
  else
    ec = fs::copy_file(from, temp);
  if (!e && !ec && !bytes)
    ec = fs::setPermissions(temp, fs::perms(0777 & ~fs::getUmask()));
  else if (!e && !ec)
    ec = fs::setPermissions(temp, fs::perms(0666 & ~fs::getUmask()));
  if (!e && !ec)
    ec = fs::rename(temp, out);
  if (e || ec)
    fs::remove(temp);
  llvm::sys::DontRemoveFileOnSignal(temp);
  if (e)
    return e;
  return ec ? error("cannot write '" + out + "': " + ec.message()) : llvm::Error::success();
}

// ---- compile and link

/// Compiles NAME.cpp to NAME.o for each part, all at once.
static llvm::Error compileParts(WorkFolder &work, llvm::ArrayRef<Part> parts, StringRef march) {
  std::vector<Job> jobs;
  llvm::Error failed = llvm::Error::success();
  for (const Part &p : parts) {
    std::vector<std::string> args = {ZCC_CXX,
                                     "-std=c++20",
                                     "-c",
                                     "-I" ZCC_SOURCE_DIR,
                                     "-Wa,-I" + work.path.str().str(),
                                     "-march=" + march.str(),
                                     "-fno-math-errno",
                                     "-fno-trapping-math",
                                     "-ffp-contract=off"};
    llvm::append_range(args, p.flags);
    llvm::append_range(args, sanitizers());
    args.insert(args.end(), {work.file(p.name + ".cpp"), "-o", work.file(p.name + ".o")});
    auto job = start(args, work.file(p.name + ".log"));
    if (job)
      jobs.push_back(*job);
    else
      failed = llvm::joinErrors(std::move(failed), job.takeError());
  }
  for (Job &j : jobs)
    failed = llvm::joinErrors(std::move(failed), finish(j, work, "compiling the program"));
  return failed;
}

static llvm::Error linkParts(WorkFolder &work, llvm::ArrayRef<Part> parts) {
  std::vector<std::string> args = {ZCC_CXX, "-fopenmp", "-o", work.file("program")};
  for (const Part &p : parts)
    args.push_back(work.file(p.name + ".o"));
  args.push_back(ZCC_RUNTIME_LIB);
  llvm::append_range(args, libraries());
  args.push_back("-lpthread");
  llvm::append_range(args, sanitizers());
  auto linker = start(args, work.file("link.log"));
  return linker ? finish(*linker, work, "linking the program") : linker.takeError();
}

llvm::Error zcc::link(const EmittedProgram &program, StringRef march, StringRef out) {
  WorkFolder work;
  if (auto ec = fs::createUniqueDirectory("zcc", work.path))
    return error("cannot make a temporary folder: " + ec.message());
  std::vector<Part> parts = {{"program", program.program, {"-O1"}}};
  for (size_t i = 0; i < program.kernels.size(); ++i)
    parts.push_back({"kernels" + std::to_string(i), program.kernels[i], {"-O3", "-fopenmp"}});
  for (const Part &p : parts)
    if (auto e = writeFile(work.file(p.name + ".cpp"), p.source))
      return e;
  if (auto e = writeFile(work.file("literals.bin"), program.literals))
    return e;
  if (auto e = compileParts(work, parts, march))
    return e;
  if (auto e = linkParts(work, parts))
    return e;

  if (!program.weights.empty())
    if (auto e = install("", &program.weights, (out + ".weights").str()))
      return e;
  return install(work.file("program"), nullptr, out);
}
