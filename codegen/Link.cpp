// Finds out what the compiler makes of -march, runs it over each source, and links the program or the bundle.
#include "codegen/Link.h"
#include "codegen/Compilers.h"
#include "codegen/EmitTables.h"
#include "codegen/cuda/Toolkit.h"
#include "ir/Files.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Signals.h"
#include "llvm/Support/raw_ostream.h"
#include <algorithm>
#include <unistd.h>

using namespace zcc;
using llvm::StringRef;
namespace fs = llvm::sys::fs;
namespace path = llvm::sys::path;

namespace {
using RunsOn = EmittedProgram::Machine;

/// One translation unit, NAME.cpp or, for nvcc, NAME.cu.
struct Part {
  std::string name;
  StringRef source;
  std::vector<std::string> flags;
  bool isCuda = false;

  std::string file() const { return name + (isCuda ? ".cu" : ".cpp"); }
};
} // namespace

/// What compilers that failed say: that the disk is full, or a fault of ours.
static llvm::Error explain(llvm::ArrayRef<Job> failed, WorkFolder &work, StringRef what) {
  for (const Job &j : failed)
    if (auto e = work.checkRoom(j.log))
      return e;
  llvm::Error all = llvm::Error::success();
  for (const Job &j : failed) {
    work.keep();
    std::string text;
    if (auto log = llvm::MemoryBuffer::getFile(j.log))
      for (StringRef line : llvm::split((*log)->getBuffer(), '\n'))
        if (line.contains("error") && std::count(text.begin(), text.end(), '\n') < 5)
          text += "\n" + line.str();
    all = llvm::joinErrors(std::move(all),
                           error("internal: " + what + " failed; sources and log are kept in '" + work.path() + "'" + text));
  }
  return all;
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
  return *ZCC_SANITIZE ? std::vector<std::string>{"-fsanitize=" ZCC_SANITIZE} : std::vector<std::string>();
}

// ---- the machine

llvm::Expected<std::string> zcc::isaOf(StringRef march, StringRef option) {
  // Features that GCC's code may use, as the runtime and /proc/cpuinfo call them.
  constexpr StringRef kFeatures =
      "sse3 ssse3 sse4_1 sse4_2 popcnt avx avx2 fma f16c bmi bmi2 lzcnt movbe avx512f avx512cd avx512dq avx512bw avx512vl "
      "avx512vbmi avx512vbmi2 avx512vnni avx512bf16 avx512fp16 avx512bitalg avx512ifma avx512vpopcntdq avxvnni amx_tile amx_int8 "
      "amx_bf16 fma4 xop tbm sse4a gfni vaes vpclmulqdq";
  WorkFolder work;
  if (auto e = work.make())
    return e;
  auto job = start(work, {ZCC_CXX, "-march=" + march.str(), "-dM", "-E", "-x", "c", "/dev/null"}, "macros");
  if (!job)
    return job.takeError();
  int status = finish(*job);
  auto text = llvm::MemoryBuffer::getFile(job->log);
  bool isWhole = status == 0 && text && (*text)->getBuffer().contains("__STDC_VERSION__");
  if (!isWhole)
    if (auto e = work.checkRoom(job->log))
      return e;
  if (!isWhole)
    return error("the compiler does not know " + option + "=" + march);
  std::vector<std::string> found;
  for (StringRef f : llvm::split(kFeatures, ' ')) {
    std::string macro = "#define __" + f.upper() + "__ 1\n";
    if ((*text)->getBuffer().contains(macro))
      found.push_back(f == "lzcnt" ? "abm" : f.str()); // as Linux calls it
  }
  return llvm::join(found, " ");
}

// ---- files

llvm::Error zcc::checkWritable(StringRef out, Output kind) {
  if (kind == Output::Text && out == "/dev/null")
    return llvm::Error::success();
  if (kind != Output::Folder && fs::is_directory(out))
    return error("'" + out + "' is a folder");
  if (kind != Output::Folder && fs::exists(out) && !fs::is_regular_file(out))
    return error("'" + out + "' is not a regular file");
  if (kind == Output::Folder && fs::exists(out) && !fs::is_directory(out))
    return error("--bundle makes a folder, and '" + out + "' is a file");
  StringRef folder = path::parent_path(out);
  if (folder.empty())
    folder = ".";
  if (!fs::is_directory(folder))
    return error("there is no folder '" + folder + "' to write '" + out + "' to");
  if (access(folder.str().c_str(), W_OK | X_OK))
    return error("cannot write '" + out + "': folder '" + folder + "' is not writable");
  return llvm::Error::success();
}

static llvm::Error addCopy(NewFiles &files, StringRef out, StringRef from, unsigned mode) {
  return files.add(out, mode, [&](StringRef path) { return fs::copy_file(from, path); });
}

// ---- compile and link

static llvm::Error writeWork(const WorkFolder &work, StringRef name, StringRef bytes) {
  std::error_code ec = writeFile(work.file(name), bytes);
  if (!ec)
    return llvm::Error::success();
  if (auto e = work.checkRoom(""))
    return e;
  return error("cannot write '" + work.file(name) + "': " + ec.message());
}

static std::vector<std::string> compilerOf(const Part &p, const WorkFolder &work, StringRef march) {
  if (p.isCuda)
    return nvccFor(StringRef(p.flags.front()));
  std::vector<std::string> args = {ZCC_CXX,
                                   "-std=c++20",
                                   "-c",
                                   "-I" ZCC_SOURCE_DIR,
                                   "-DZCC_LITERALS=" + cString(cString(work.file("literals.bin"))),
                                   "-march=" + march.str(),
                                   "-fno-math-errno",
                                   "-fno-trapping-math",
                                   "-ffp-contract=off"};
#ifndef __clang__ // which zcc is built by, too, and which does not know it
  args.push_back("-fno-version-loops-for-strides");
#endif
  llvm::append_range(args, p.flags);
  llvm::append_range(args, sanitizers());
  return args;
}

/// Compiles each part to NAME.o, all at once.
static llvm::Error compileParts(WorkFolder &work, llvm::ArrayRef<Part> parts, StringRef march) {
  std::vector<Job> jobs, failed;
  llvm::Error notStarted = llvm::Error::success();
  for (const Part &p : parts) {
    std::vector<std::string> args = compilerOf(p, work, march);
    args.insert(args.end(), {work.file(p.file()), "-o", work.file(p.name + ".o")});
    auto job = start(work, args, p.name + ".log");
    if (job)
      jobs.push_back(*job);
    else
      notStarted = llvm::joinErrors(std::move(notStarted), job.takeError());
  }
  for (const Job &j : jobs)
    if (finish(j) != 0)
      failed.push_back(j);
  return llvm::joinErrors(std::move(notStarted), explain(failed, work, "compiling the program"));
}

/// OpenMP, and what comes with a compiler: a program for a GPU brings them along, for machines that have a driver and little
/// else.
static std::vector<std::string> compilerLibraries(RunsOn machine) {
#ifdef __clang__
  return {"-fopenmp"};
#else
  if (machine == RunsOn::Gpu && !*ZCC_SANITIZE)
    return {"-static-libstdc++", "-static-libgcc", "-l:libgomp.a"};
  return {"-fopenmp"};
#endif
}

static llvm::Error linkParts(WorkFolder &work, llvm::ArrayRef<Part> parts, RunsOn machine) {
  std::vector<std::string> args = {ZCC_CXX, "-Wl,--as-needed", "-o", work.file("program")};
  for (const Part &p : parts)
    args.push_back(work.file(p.name + ".o"));
  if (machine == RunsOn::CheckedGpu) // instead of those of the emulation's own archive
    args.insert(args.end(), {"-Wl,--whole-archive", ZCC_CHECKED_LIB, "-Wl,--no-whole-archive"});
  if (machine == RunsOn::EmulatedGpu || machine == RunsOn::CheckedGpu)
    args.push_back(ZCC_EMULATED_LIB);
  if (machine == RunsOn::Gpu)
    args.push_back(ZCC_CUDA_LIB);
  args.push_back(ZCC_RUNTIME_LIB);
  llvm::append_range(args, libraries());
  if (machine == RunsOn::Gpu)
    llvm::append_range(args, cudaLibraries());
  llvm::append_range(args, compilerLibraries(machine));
  args.insert(args.end(), {"-lpthread", "-ldl"});
  llvm::append_range(args, sanitizers());
  auto linker = start(work, args, "link.log");
  if (!linker)
    return linker.takeError();
  return finish(*linker) == 0 ? llvm::Error::success() : explain(*linker, work, "linking the program");
}

/// Makes "program" in the folder.
static llvm::Error build(WorkFolder &work, const EmittedProgram &program, StringRef march) {
  if (auto e = work.make())
    return e;
  // The schedule is straight calls: registers for them would cost a compiler's seconds and save a
  // step nothing.
  std::vector<Part> parts = {{"program", program.program, {"-O0"}}};
  auto add = [&](llvm::ArrayRef<std::string> sources, const std::vector<std::string> &flags, bool isCuda = false) {
    for (const std::string &source : sources)
      parts.push_back({"kernels" + std::to_string(parts.size() - 1), source, flags, isCuda});
  };
  const std::string level = "-O" + std::to_string(program.optLevel);
  const std::string emulated = "-O" + std::to_string(std::min(program.optLevel, 2)); // its threads are no loops to vectorise
  if (program.machine == RunsOn::Gpu)
    add(program.kernels, {program.gpu}, /*isCuda=*/true);
  else if (program.machine == RunsOn::EmulatedGpu)
    add(program.kernels, {emulated, "-fopenmp"});
  else if (program.machine == RunsOn::CheckedGpu)
    add(program.kernels, {emulated, "-fopenmp", "-fsanitize=thread", "-fsanitize=bounds"}); // Watch.cpp has what they call
  else
    add(program.kernels, {level, "-fopenmp"});
  add(program.hostKernels, {level, "-fopenmp"});
  for (const Part &p : parts)
    if (auto e = writeWork(work, p.file(), p.source))
      return e;
  if (auto e = writeWork(work, "literals.bin", program.literals))
    return e;
  if (auto e = compileParts(work, parts, march))
    return e;
  return linkParts(work, parts, program.machine);
}

/// The program comes last: without it nothing reads the other files.
static llvm::Error addProgram(NewFiles &files, const EmittedProgram &program, const WorkFolder &work, StringRef out) {
  if (!program.weights.empty())
    if (auto e = files.add((out + ".weights").str(), 0666, [&](StringRef path) { return writeFile(path, program.weights); }))
      return e;
  return addCopy(files, out, work.file("program"), 0777);
}

/// The model's files, from which the program will read its weights, stay.
static llvm::Error checkSources(const EmittedProgram &program, StringRef out) {
  for (const WeightsFile &f : program.files)
    for (const std::string &made : {out.str(), (out + ".weights").str()})
      if (llvm::sys::fs::equivalent(made, f.path))
        return error("'" + made + "' would overwrite the weights of the model; -o OUT names another");
  return llvm::Error::success();
}

llvm::Error zcc::link(const EmittedProgram &program, StringRef march, StringRef out) {
  if (auto e = checkSources(program, out))
    return e;
  WorkFolder work;
  NewFiles files;
  if (auto e = build(work, program, march))
    return e;
  if (auto e = addProgram(files, program, work, out))
    return e;
  return files.putInPlace();
}

llvm::Error zcc::bundle(const EmittedProgram &program, StringRef march, StringRef out) {
  auto inside = [&](StringRef name) {
    llvm::SmallString<256> p(out);
    path::append(p, name);
    return p.str().str();
  };
  StringRef name = path::filename(out);
  for (const WeightsFile &f : program.files)
    if (f.name == name || f.name == (name + ".weights").str())
      return error("the model's file '" + f.path + "' is called like the program; choose another name with -o");
  WorkFolder work;
  NewFiles files;
  if (auto e = build(work, program, march))
    return e;
  if (auto e = files.addFolder(out))
    return e;
  for (const WeightsFile &f : program.files) {
    std::string to = inside(f.name);
    if (auto e = files.addFolder(path::parent_path(to)))
      return e;
    if (fs::equivalent(f.path, to))
      continue; // the model lies in the bundle's folder
    if (auto e = addCopy(files, to, f.path, 0666))
      return e;
  }
  if (auto e = addProgram(files, program, work, inside(name)))
    return e;
  return files.putInPlace();
}
