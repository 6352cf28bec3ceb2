// Declares and reads zcc's options, and the configuration.
#include "tools/ZccOptions.h"
#include "codegen/CheckSchedule.h"
#include "llvm/ADT/ScopeExit.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/Errno.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace zcc;
using llvm::StringRef;
namespace cl = llvm::cl;

using Strings = ImportOptions::Strings;

static cl::opt<std::string> model(cl::Positional, cl::desc("model.onnx"), cl::cat(optionCategory()));

void zcc::declareZccOptions() {
  declareOptions(sharedOptions());
  const ImportOptions import;
  const ToolOptions tool;
  declareOptions({
#define ZCC_IMPORT_OPTION(NAME, TYPE, FIELD, OTHERWISE, RULE, VALUE, HELP) rowOf(NAME, RULE, import.FIELD, VALUE, HELP),
#define ZCC_TOOL_OPTION(NAME, TYPE, FIELD, OTHERWISE, RULE, VALUE, HELP) rowOf(NAME, RULE, tool.FIELD, VALUE, HELP),
#include "passes/options/Options.def"
  });
}

/// There are times when none is missing.
llvm::Error zcc::refuseMissing(int argc, const char *const *argv) {
  static const std::vector<StringRef> kLater = {
#define ZCC_LATER_OPTION(NAME, KEYS) NAME,
#include "passes/options/Options.def"
  };
  for (int i = 1; i < argc; ++i) {
    StringRef a = argv[i];
    if (!a.consume_front("-"))
      continue;
    a.consume_front("-");
    StringRef name = a.split('=').first;
    if (llvm::is_contained(kLater, name))
      return error("--" + name + " is not supported yet");
  }
  return llvm::Error::success();
}

/// The command without --ranks.
static std::string compileLine(int argc, const char *const *argv) {
  std::string line = "zcc";
  for (int i = 1; i < argc; ++i) {
    StringRef a = argv[i];
    StringRef name = a.ltrim('-').split('=').first;
    if (a.starts_with("-") && name == "ranks")
      i += !a.contains('=');
    else
      line += " " + shellWord(a);
  }
  return line;
}

Request zcc::readRequest(int argc, const char *const *argv) {
  Request r;
  r.model = model;
  r.given = givenFlags(argc, argv);
  r.compileLine = compileLine(argc, argv);
  return r;
}

// ---- the configuration

/// The configuration's text: a file's or, as from `<(...)`, what is written to a pipe.
static llvm::Expected<std::unique_ptr<llvm::MemoryBuffer>> readText(const std::string &path) {
  auto because = [](const llvm::Twine &why) { return error("cannot read it: " + why); };
  constexpr int kPatienceMs = 5000; // for a pipe's first byte
  int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0)
    return because(llvm::sys::StrError());
  auto close = llvm::make_scope_exit([&] { ::close(fd); });
  struct stat info = {};
  ::fstat(fd, &info);
  pollfd wanted = {fd, POLLIN, 0};
  if (S_ISFIFO(info.st_mode) && ::poll(&wanted, 1, kPatienceMs) == 0)
    return because("it is a pipe that nobody writes to");
  if (!S_ISREG(info.st_mode) && !S_ISFIFO(info.st_mode))
    return because("it is neither a file nor a pipe");
  ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) & ~O_NONBLOCK);
  auto text = llvm::MemoryBuffer::getOpenFile(fd, path, /*FileSize=*/-1);
  if (!text)
    return because(text.getError().message());
  return std::move(*text);
}

std::string zcc::configFile() {
  std::vector<std::string> texts = textsOf("config");
  return texts.empty() ? "" : texts.back();
}

llvm::Error zcc::readConfig(Request &r) {
  std::string file = configFile();
  if (file.empty())
    return llvm::Error::success();
  auto text = readText(file);
  if (!text)
    return text.takeError();
  auto config = resolveConfig((*text)->getBuffer(), r.given, optionNames());
  if (!config)
    return config.takeError();
  if (auto e = checkSchedule(config->schedule, config->scheduleParams))
    return e;
  StringRef name = llvm::sys::path::filename(file);
  for (const std::string &w : config->warnings)
    llvm::errs() << name << ": warning: " << w << '\n';
  for (const std::string &n : config->notes)
    llvm::errs() << name << ": note: " << n << '\n';
  for (auto &[flag, value] : config->flags)
    if (auto e = setFlag(flag, value))
      return e;
  r.config = std::move(*config);
  return llvm::Error::success();
}

/// An error about an option that the configuration set says so.
static llvm::Error withOrigin(const Request &r, llvm::Error e) {
  if (!e || !r.config)
    return e;
  std::string text = llvm::toString(std::move(e));
  for (auto &[flag, value] : r.config->flags)
    if (StringRef(text).contains("--" + flag))
      text += "\nnote: --" + flag + "=" + value + " comes from '" + configFile() + "'";
  return error(text);
}

// ---- reading

llvm::Error zcc::readToolOptions(Request &r) {
#define ZCC_TOOL_OPTION(NAME, TYPE, FIELD, OTHERWISE, RULE, VALUE, HELP)                                                         \
  if (llvm::Error e = readOption(NAME, RULE, r.tool.FIELD))                                                                      \
    return withOrigin(r, std::move(e));
#include "passes/options/Options.def"
  if (r.tool.emulate && r.tool.target != "cuda")
    return error("--emulate stands for a GPU: give --target=cuda, too");
  if (r.tool.checkKernels && !r.tool.emulate)
    return error("--check-kernels looks at emulated kernels: give --target=cuda --emulate, too");
  if (r.tool.tf32 && r.tool.target != "cuda")
    return error("--fp32-precision=tf32 is what GPUs have: give --target=cuda, too");
  if (r.tool.target != "cuda" && !textsOf("host-march").empty())
    return error("--host-march is the CPU beside a GPU: give --target=cuda, too, or name the CPU by --march");
  return llvm::Error::success();
}

llvm::Expected<ImportOptions> zcc::importOptions(const Request &r) {
  ImportOptions o;
#define ZCC_IMPORT_OPTION(NAME, TYPE, FIELD, OTHERWISE, RULE, VALUE, HELP)                                                       \
  if (llvm::Error e = readOption(NAME, RULE, o.FIELD))                                                                           \
    return e;
#include "passes/options/Options.def"
  o.inference = o.loss == "none";
  if (o.inference)
    o.loss.clear();
  o.ownOptimizer = !textsOf("optimizer").empty();
  if (r.config)
    o.batch = r.config->microBatch;
  return o;
}

llvm::Expected<Options> zcc::readPassOptions(const Request &r) {
  auto o = passOptions();
  if (!o)
    return withOrigin(r, o.takeError());
  if (r.tool.target == "cuda") {
    o->separateHost = true;
    if (o->channelBlock > 1)
      return error("--channel-block=" + llvm::Twine(o->channelBlock) + ": convolutions on a GPU read channels in no blocks");
  }
  return o;
}
