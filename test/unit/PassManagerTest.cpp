// What a pass that fails leaves behind: a reproducer where zcc is at fault, nothing where the request is.
#include "passes/PassManager.h"
#include "ir/Op.h"
#include "ir/Text.h"
#include "passes/Pipeline.h"
#include "passes/Refusal.h"
#include "llvm/ADT/ScopeExit.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include <gtest/gtest.h>
#include <thread>

namespace pass_manager_test {

using namespace zcc;
namespace fs = llvm::sys::fs;

static llvm::Expected<bool> refuses(Module &, PassContext &) { return refuse("not like this"); }
static llvm::Expected<bool> deniesChange(Module &m, PassContext &) {
  m.functions[0]->last()->attrs.set("axis", int64_t(1));
  return false;
}
static llvm::Expected<bool> fails(Module &, PassContext &) { return error("this cannot be"); }
/// Leaves a node before what it reads.
static llvm::Expected<bool> breaks(Module &m, PassContext &) {
  Function &f = *m.functions[0];
  f.first()->setOperand(0, f.last()->result());
  return true;
}

/// Changes what the text says, in the same way each time.
static llvm::Expected<bool> negates(Module &m, PassContext &) {
  Function &f = *m.functions[0];
  Node *n = f.insert(std::make_unique<Node>(&ops::neg, f.last()->loc), f.last());
  n->addOperand(f.first()->result());
  n->results.push_back(std::make_unique<Value>(Value::Result, f.unique("n"), n->operand(0)->type));
  n->result()->def = n;
  f.last()->setOperand(0, n->result());
  return true;
}
static llvm::Expected<bool> faults(Module &m, PassContext &) {
  m.functions.clear();
  abort();
}

/// Runs passes in a folder of its own; returns the last one's error, and what is in zcc-crash.zir.
static std::pair<std::string, std::string> run(llvm::ArrayRef<PassFn> functions, const DumpOptions &dump = {},
                                               llvm::function_ref<void(llvm::function_ref<void()>)> around = nullptr) {
  auto m = parse("module @m {\n"
                 "  func @eval(%x : f32[4]) -> (f32[4]) {\n"
                 "    %y = exp %x : f32[4]\n"
                 "    %z = exp %y : f32[4]\n"
                 "    return %z\n"
                 "  }\n"
                 "}\n");
  if (!m)
    return {llvm::toString(m.takeError()), ""};
  llvm::SmallString<128> before, folder;
  fs::current_path(before);
  fs::createUniqueDirectory("zcc-unit", folder);
  fs::set_current_path(folder);
  auto back = llvm::make_scope_exit([&] {
    fs::set_current_path(before);
    fs::remove_directories(folder);
  });
  std::vector<PassDef> defs;
  for (PassFn fn : functions)
    defs.push_back({"spoil", fn, 0, 0, ""});
  Options options;
  PassManager passes(options, dump);
  for (const PassDef &d : defs)
    passes.add(d);
  std::string text;
  auto runAll = [&] { text = llvm::toString(passes.run(**m)); };
  if (around)
    around(runAll);
  else
    runAll();
  auto file = llvm::MemoryBuffer::getFile("zcc-crash.zir");
  return {text, file ? (*file)->getBuffer().str() : ""};
}

TEST(PassManager, RefusalLeavesNothing) {
  auto [text, file] = run(refuses);
  EXPECT_EQ(text, "not like this");
  EXPECT_EQ(file, "");
}

TEST(PassManager, FailureLeavesReproducer) {
  auto [text, file] = run(fails);
  EXPECT_EQ(text, "this cannot be\nnote: reproduce with 'zcc-opt --spoil zcc-crash.zir'");
  EXPECT_NE(file.find("exp %x"), std::string::npos) << file;
}

TEST(PassManager, ReproducerHoldsWhatThePassesBeforeLeft) {
  auto [text, file] = run({negates, negates, fails});
  EXPECT_EQ(text, "this cannot be\nnote: reproduce with 'zcc-opt --spoil zcc-crash.zir'");
  EXPECT_NE(file.find("%n = neg %y"), std::string::npos) << file;
  EXPECT_NE(file.find("%z = exp %n.1"), std::string::npos) << file;
}

#ifndef ZCC_SANITIZED // which handle faults themselves
TEST(PassManager, FaultLeavesReproducer) {
  auto dies = [](llvm::function_ref<void()> body) {
    EXPECT_DEATH(body(), "note: in pass 'spoil'\nnote: reproduce with 'zcc-opt --spoil zcc-crash.zir'");
  };
  auto [text, file] = run({negates, faults}, {}, dies);
  EXPECT_NE(file.find("%z = exp %n"), std::string::npos) << file;
}
#endif

TEST(PassManager, BrokenModuleLeavesReproducer) {
  auto [text, file] = run(breaks);
  EXPECT_NE(text.find("[V1] '%z' is used before it is defined"), std::string::npos) << text;
  EXPECT_NE(text.find("note: this is what pass 'spoil' left"), std::string::npos) << text;
  EXPECT_NE(file.find("exp %x"), std::string::npos) << file;
}

TEST(PassManager, ChangeIsNotDenied) {
  auto [text, file] = run(deniesChange);
  EXPECT_NE(text.find("pass 'spoil' changed the module and said that it did not"), std::string::npos) << text;
  EXPECT_NE(file.find("exp %x"), std::string::npos) << file;
}

TEST(PassManager, QuietRunWritesNothing) {
  auto [text, file] = run(fails, DumpOptions::quiet());
  EXPECT_EQ(text, "this cannot be");
  EXPECT_EQ(file, "");
}

/// The text that the whole pipeline makes of a module.
static std::string compiled(Module &m, const DumpOptions &dump) {
  Options options;
  PassManager passes(options, dump);
  buildPipeline(passes, options);
  if (llvm::Error e = passes.run(m))
    return llvm::toString(std::move(e));
  return toText(m);
}

TEST(PassManager, ThreadsRunPipelinesSideBySide) {
  auto m = parse("module @m {\n"
                 "  param %w : f32[8x8] = normal(0.0, 0.1) {trained}\n"
                 "  param %b : f32[8] = zero {trained}\n"
                 "  func @micro(%x : f32[4x8], %t : f32[4x8]) -> (f32[]) {\n"
                 "    %h = matmul %x, %w : f32[4x8]\n"
                 "    %a = add %h, %b : f32[4x8]\n"
                 "    %s = softmax %a {axis = 1} : f32[4x8]\n"
                 "    %d = sub %s, %t : f32[4x8]\n"
                 "    %q = mul %d, %d : f32[4x8]\n"
                 "    %r = reduce_sum %q {axes = [0, 1]} : f32[1x1]\n"
                 "    %l = reshape %r {dims = []} : f32[]\n"
                 "    return %l\n"
                 "  }\n"
                 "}\n");
  ASSERT_TRUE(bool(m)) << llvm::toString(m.takeError());
  std::string want = compiled(*(*m)->clone(), {});
  ASSERT_NE(want.find("planned"), std::string::npos) << want;
  constexpr unsigned kThreads = 4, kRuns = 25;
  std::vector<unsigned> same(kThreads, 0);
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      for (unsigned i = 0; i < kRuns; ++i)
        same[t] += compiled(*(*m)->clone(), DumpOptions::quiet()) == want;
    });
  for (std::thread &t : threads)
    t.join();
  EXPECT_EQ(same, std::vector<unsigned>(kThreads, kRuns));
}

} // namespace pass_manager_test
