// Runs passes in order: checks what they need, verifies what they leave, times, dumps and reproduces.
#pragma once

#include "passes/Pass.h"

namespace zcc {

/// What to show and check between passes; set from the options of the same names.
struct DumpOptions {
  using Strings = std::vector<std::string>;
  // verifyEach: after each pass that changed something the rules hold, and a pass that said it changed nothing changed nothing.
  // verifyRoundtrip: after each such pass the text parses to the same text, and a pass that said it changed something did (always
  // checked in builds with assertions).
#define ZCC_DUMP_OPTION(NAME, TYPE, FIELD, OTHERWISE, ...) TYPE FIELD = OTHERWISE;
#include "passes/options/Options.def"

  std::string flags; ///< of zcc-opt, each behind a blank: how a dump or a reproducer says what the options were
  /// Keeps the module as it came in. Where a pass fails the others before it run again on that, and what they leave is written.
  bool reproduce = true;
  bool renames = true; ///< before each pass names are made unique, and forgotten where their values are gone: dumps show them

  /// Nothing is shown, checked, kept or written, and nothing shared is touched: for a search that runs many pipelines, on several
  /// threads.
  static DumpOptions quiet();
};

class PassManager {
public:
  /// `target`: PassContext::target.
  PassManager(const Options &o, const DumpOptions &d, const Target *target = nullptr) : context{o, target}, dump(d) {}

  /// Adds a pass of Passes.def.
  void add(llvm::StringRef name);
  void add(const PassDef &p) { passes.push_back(&p); }
  /// Runs all. Where a pass fails, other than by a refusal (passes/Refusal.h), the module as it was
  /// before it is in zcc-crash.zir, and the error says how to go on from there.
  llvm::Error run(Module &m);
  /// What the passes found worth telling.
  llvm::ArrayRef<std::string> remarks() const { return context.remarks; }
  std::shared_ptr<const PlanReport> search() const { return context.search; }

private:
  PassContext context;
  const DumpOptions &dump;
  std::vector<const PassDef *> passes;
  std::unique_ptr<Module> start;  ///< a copy of what came in, to reproduce a failure from
  std::optional<uint64_t> before; ///< hashOf() the module before the pass that runs, if something asks for it
  bool isRenamed = false;         ///< nothing has changed since the values got their names

  llvm::Error plan(const Module &m);
  llvm::Error runPass(Module &m, const PassDef &p, unsigned number);
  llvm::Error runAgain(Module &m, unsigned count) const;
  std::string saveReproducer(unsigned number) const;
  static void onSignal(void *);
  llvm::Error explain(llvm::Error e, unsigned number);
  void renameAll(Module &m);
  llvm::Error check(const Module &m, const PassDef &p);
  llvm::Error checkChanged(const Module &m, const PassDef &p, uint32_t properties, bool changed);
  llvm::Error showBefore(const Module &m, const PassDef &p);
  llvm::Error showAfter(const Module &m, const PassDef &p, bool changed, unsigned number);
  std::string fileName(unsigned number) const;
};

/// Whether text and module agree: printed, parsed and printed again, it is the same. The error
/// shows the first line that is not.
llvm::Error verifyRoundtrip(const Module &m);

} // namespace zcc
