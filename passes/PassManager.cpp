// The table of passes, and their running with dumps, checks and reproducers.
#include "passes/PassManager.h"
#include "ir/Equal.h"
#include "ir/Steps.h"
#include "ir/Text.h"
#include "ir/Verifier.h"
#include "passes/Refusal.h"
#include "passes/memory/Liveness.h"
#include "llvm/ADT/ScopeExit.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Signals.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Support/thread.h"
#include <chrono>

using namespace zcc;
using llvm::StringRef;
using llvm::Twine;

static constexpr const char *kCrashFile = "zcc-crash.zir";

static constexpr PassDef kPasses[] = {
#define ZCC_PASS(NAME, FUNCTION, NEEDS, PROVIDES, SUMMARY) {NAME, FUNCTION, NEEDS, PROVIDES, SUMMARY},
#include "passes/Passes.def"
#undef ZCC_PASS
};

llvm::ArrayRef<PassDef> zcc::allPasses() { return kPasses; }

const PassDef *zcc::findPass(StringRef name) {
  auto at = llvm::find_if(kPasses, [&](auto &p) { return name == p.name; });
  return at == std::end(kPasses) ? nullptr : at;
}

// ---- what is left behind when a pass fails

namespace {
/// The pass that is running, for the case that it does not return.
struct Running {
  const PassManager *passes = nullptr;
  unsigned number = 0;
};
} // namespace

static thread_local Running running; // a fault is handled on the thread that makes it

/// The first `count` passes on what came in, as they have run before.
llvm::Error PassManager::runAgain(Module &m, unsigned count) const {
  PassContext again{context.options, context.target};
  for (unsigned i = 0;; ++i) {
    for (auto &f : m.functions)
      f->renameAll();
    if (i == count)
      return llvm::Error::success();
    if (auto changed = passes[i]->run(m, again); !changed)
      return changed.takeError();
    m.properties |= passes[i]->provides;
  }
}

/// Writes the crash file and returns the note that names it.
std::string PassManager::saveReproducer(unsigned number) const {
  const PassDef &p = *passes[number - 1];
  std::string command = "zcc-opt --" + std::string(p.name) + dump.flags;
  PrintOptions o;
  o.locs = true;
  std::string header = "// RUN: " + command + " %s\n";
  llvm::Error e = runAgain(*start, number - 1);
  if (!e)
    e = writeText(*start, kCrashFile, o, header);
  if (e)
    return "note: the module before '" + std::string(p.name) + "' could not be saved: " + llvm::toString(std::move(e));
  return "note: reproduce with '" + command + " " + kCrashFile + "'";
}

/// On a stack of its own: of the one that failed little may be left.
void PassManager::onSignal(void *) {
  if (!running.passes)
    return;
  Running r = running;
  running = {}; // a second fault must not come back here
  llvm::errs() << "note: in pass '" << r.passes->passes[r.number - 1]->name << "'\n";
  const std::optional<unsigned> kStackBytes = 64u << 20; // as of the tools' thread that compiles
  llvm::thread(kStackBytes, [&] { llvm::errs() << r.passes->saveReproducer(r.number) << '\n'; }).join();
}

/// Puts a note behind the last of possibly several errors.
static llvm::Error withNote(llvm::Error e, StringRef note) {
  std::vector<std::string> all;
  llvm::handleAllErrors(std::move(e), [&](const llvm::ErrorInfoBase &i) { all.push_back(i.message()); });
  all.back() += "\n" + note.str();
  llvm::Error out = llvm::Error::success();
  for (const std::string &s : all)
    out = llvm::joinErrors(std::move(out), error(s));
  return out;
}

// ---- before anything runs

DumpOptions DumpOptions::quiet() {
  DumpOptions d;
  d.verifyEach = d.reproduce = false;
  return d;
}

void PassManager::add(StringRef name) {
  const PassDef *p = findPass(name);
  assert(p && "not in Passes.def");
  passes.push_back(p);
}

static std::string unknownPass(StringRef name) {
  std::vector<std::string> names;
  for (const PassDef &p : allPasses())
    names.push_back(p.name);
  std::string n = nearest(name, names);
  return "unknown pass '" + name.str() + "'" + (n.empty() ? "" : "; did you mean '" + n + "'?");
}

/// Drops disabled passes and those behind --stop-after; an error if a pass would run without what
/// it needs.
llvm::Error PassManager::plan(const Module &m) {
  std::vector<std::string> named = dump.disabled;
  named.insert(named.end(), dump.printBefore.begin(), dump.printBefore.end());
  named.insert(named.end(), dump.printAfter.begin(), dump.printAfter.end());
  if (!dump.stopAfter.empty())
    named.push_back(dump.stopAfter);
  for (const std::string &n : named)
    if (!findPass(n))
      return error(unknownPass(n));
  llvm::erase_if(passes, [&](auto *p) { return llvm::is_contained(dump.disabled, p->name); });
  auto last = llvm::find_if(passes, [&](auto *p) { return dump.stopAfter == p->name; });
  if (last != passes.end())
    passes.erase(last + 1, passes.end());

  uint32_t have = m.properties;
  for (const PassDef *p : passes) {
    if (uint32_t missing = p->needs & ~have) {
      unsigned bit = llvm::countr_zero(missing);
      std::string msg = ("pass '" + Twine(p->name) + "' requires '" + propertyNames()[bit] + "'").str();
      for (const PassDef &q : allPasses())
        if (q.provides >> bit & 1)
          msg += "; run '" + std::string(q.name) + "' first";
      return error(msg);
    }
    have |= p->provides;
  }
  return llvm::Error::success();
}

// ---- running

static void handleSignals(void (*handler)(void *)) {
  static const bool handled = [&] {
    llvm::sys::AddSignalHandler(handler, nullptr);
    return true;
  }();
  (void)handled;
}

llvm::Error PassManager::run(Module &m) {
  if (dump.reproduce)
    handleSignals(onSignal);
  if (llvm::Error e = plan(m))
    return e;
  before.reset();
  isRenamed = false;
  start = dump.reproduce ? m.clone() : nullptr;
  if (!dump.treeDir.empty()) {
    if (auto ec = llvm::sys::fs::create_directories(dump.treeDir))
      return error("cannot make the folder '" + dump.treeDir + "': " + ec.message());
    if (llvm::Error e = showAfter(m, {}, /*changed=*/false, 0))
      return e;
  }
  using Clock = std::chrono::steady_clock;
  std::vector<double> ms;
  std::vector<uint64_t> counted;
  auto table = llvm::make_scope_exit([&] {
    if (!dump.time)
      return;
    llvm::errs() << "  milliseconds         steps  pass\n";
    for (unsigned i = 0; i < ms.size(); ++i)
      llvm::errs() << llvm::format("%14.2f%14llu  ", ms[i], (unsigned long long)counted[i]) << passes[i]->name << '\n';
  });
  for (unsigned i = 0; i < passes.size(); ++i) {
    auto start = Clock::now();
    uint64_t before = steps;
    llvm::Error e = runPass(m, *passes[i], i + 1);
    counted.push_back(steps - before);
    ms.push_back(std::chrono::duration<double, std::milli>(Clock::now() - start).count());
    if (e)
      return e;
  }
  return llvm::Error::success();
}

/// Where nothing has changed only a function that has given names to what is gone again is looked at.
void PassManager::renameAll(Module &m) {
  for (auto &f : m.functions)
    if (!isRenamed || f->hasNewNames())
      f->renameAll();
  isRenamed = true;
}

llvm::Error PassManager::runPass(Module &m, const PassDef &p, unsigned number) {
  if (dump.renames || number == 1)
    renameAll(m);
  if (llvm::Error e = showBefore(m, p))
    return e;
  if (!before && (dump.reproduce || dump.verifyEach))
    before = hashOf(m);
  if (dump.reproduce)
    running = {this, number};
  auto done = llvm::make_scope_exit([] { running = {}; });

  uint32_t properties = m.properties | p.provides; // not a change that a pass reports
  llvm::Expected<bool> changed = p.run(m, context);
  if (!changed) {
    llvm::Error e = changed.takeError();
    return e.isA<Refusal>() ? std::move(e) : explain(std::move(e), number);
  }
  bool isFirst = p.provides & ~m.properties; // rules that have not been checked
  m.properties |= p.provides;
  if (llvm::Error e = checkChanged(m, p, properties, *changed))
    return explain(std::move(e), number);
  if (*changed || isFirst || !before || number == 1)
    if (llvm::Error e = check(m, p))
      return explain(std::move(e), number);
  isRenamed &= !*changed;
  if (*changed || !dump.verifyEach)
    before.reset();
  return showAfter(m, p, *changed, number);
}

/// With the note that says how to come here again.
llvm::Error PassManager::explain(llvm::Error e, unsigned number) {
  return dump.reproduce ? withNote(std::move(e), saveReproducer(number)) : std::move(e);
}

/// Whether a pass has changed the module is what it says.
llvm::Error PassManager::checkChanged(const Module &m, const PassDef &p, uint32_t properties, bool changed) {
#ifdef NDEBUG
  bool isStrict = dump.verifyRoundtrip;
#else
  bool isStrict = true;
#endif
  // That nothing has changed is relied on: the module is not verified again.
  if (!before || (changed && !isStrict))
    return llvm::Error::success();
  bool isEqual = properties == m.properties && *before == hashOf(m);
  if (isEqual != changed)
    return llvm::Error::success();
  return error("pass '" + Twine(p.name) +
               (changed ? "' said that it changed the module and did not" : "' changed the module and said that it did not"));
}

llvm::Error PassManager::check(const Module &m, const PassDef &p) {
  llvm::Error e = llvm::Error::success();
  if (dump.verifyEach) {
    e = verify(m);
    if (!e && m.has(Property::Planned))
      e = verifyPlan(m);
  }
  if (!e && dump.verifyRoundtrip)
    e = verifyRoundtrip(m);
  return e ? withNote(std::move(e), "note: this is what pass '" + std::string(p.name) + "' left") : std::move(e);
}

// ---- dumps

static void show(const Module &m, const DumpOptions &d, const Twine &title) {
  PrintOptions o;
  o.locs = d.locs;
  llvm::errs() << "// " << title << '\n';
  print(m, llvm::errs(), o);
}

llvm::Error PassManager::showBefore(const Module &m, const PassDef &p) {
  if (llvm::is_contained(dump.printBefore, p.name))
    show(m, dump, "before " + Twine(p.name));
  return llvm::Error::success();
}

/// "07-fuse.zir"; "00-input.zir" is what came in.
std::string PassManager::fileName(unsigned number) const {
  StringRef name = number ? passes[number - 1]->name : "input";
  return (Twine(number < 10 ? "0" : "") + Twine(number) + "-" + name + ".zir").str();
}

llvm::Error PassManager::showAfter(const Module &m, const PassDef &p, bool changed, unsigned number) {
  if (number && (dump.printAfterAll || (dump.printAfterChange && changed) || llvm::is_contained(dump.printAfter, p.name)))
    show(m, dump, "after " + Twine(p.name));
  if (dump.treeDir.empty())
    return llvm::Error::success();
  std::string header;
  if (number)
    header = "// zcc-opt --" + std::string(p.name) + dump.flags + " " + fileName(number - 1) + " -o " + fileName(number) + "\n";
  PrintOptions o;
  o.locs = dump.locs;
  llvm::SmallString<128> path(dump.treeDir);
  llvm::sys::path::append(path, fileName(number));
  return writeText(m, path, o, header);
}

llvm::Error zcc::verifyRoundtrip(const Module &m) {
  PrintOptions o;
  o.locs = true;
  o.folder = m.folder;
  std::string first = toText(m, o);
  auto again = parse(first, "<printed text>", m.folder);
  if (!again)
    return again.takeError();
  std::string second = toText(**again, o);
  if (first == second)
    return llvm::Error::success();
  // Shown from a little before where they part.
  size_t at = 0;
  while (first[at] == second[at])
    ++at;
  auto shown = [&](StringRef s) {
    constexpr size_t kBefore = 60, kLength = 120;
    size_t line = s.rfind('\n', at ? at - 1 : 0) + 1;
    return s.substr(std::max(line, at < kBefore ? 0 : at - kBefore), kLength).split('\n').first.trim();
  };
  return error("the text reads back differently: '" + shown(first) + "' became '" + shown(second) + "'");
}
