// What a pass that fails leaves behind: a reproducer where zcc is at fault, nothing where the request is.
#include "passes/PassManager.h"
#include "ir/Op.h"
#include "ir/Text.h"
#include "passes/Refusal.h"
#include "llvm/ADT/ScopeExit.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include <gtest/gtest.h>

using namespace zcc;
namespace fs = llvm::sys::fs;

static llvm::Expected<bool> refuses(Module &, PassContext &) { return refuse("not like this"); }
static llvm::Expected<bool> fails(Module &, PassContext &) { return error("this cannot be"); }
/// Leaves a node before what it reads.
static llvm::Expected<bool> breaks(Module &m, PassContext &) {
  Function &f = *m.functions[0];
  f.first()->setOperand(0, f.last()->result());
  return true;
}

/// Runs a pass in a folder of its own; returns its error, and what is in zcc-crash.zir.
static std::pair<std::string, std::string> run(PassFn fn) {
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
  const PassDef pass = {"spoil", fn, 0, 0, ""};
  Options options;
  DumpOptions dump;
  PassManager passes(options, dump);
  passes.add(pass);
  std::string text = llvm::toString(passes.run(**m));
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

TEST(PassManager, BrokenModuleLeavesReproducer) {
  auto [text, file] = run(breaks);
  EXPECT_NE(text.find("[V1] '%z' is used before it is defined"), std::string::npos) << text;
  EXPECT_NE(text.find("note: this is what pass 'spoil' left"), std::string::npos) << text;
  EXPECT_NE(file.find("exp %x"), std::string::npos) << file;
}
