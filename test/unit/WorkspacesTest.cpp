// Kernels are asked for their workspace once per shape, however many pipelines run.
#include "codegen/Workspaces.h"
#include "ir/Text.h"
#include "passes/Pipeline.h"
#include <gtest/gtest.h>
#include <thread>

using namespace zcc;

static constexpr const char *kText = "module @m {\n"
                                     "  param %a : f32[8x8] = normal(0.0, 0.1)\n"
                                     "  param %b : f32[8x8] = normal(0.0, 0.1)\n"
                                     "  param %c : f32[8x2] = normal(0.0, 0.1)\n"
                                     "  func @eval(%x : f32[4x8]) -> (f32[4x2]) {\n"
                                     "    %p = matmul %x, %a : f32[4x8]\n"
                                     "    %q = matmul %p, %b : f32[4x8]\n"
                                     "    %r = matmul %q, %a : f32[4x8]\n"
                                     "    %y = matmul %r, %c : f32[4x2]\n"
                                     "    return %y\n"
                                     "  }\n"
                                     "}\n";

static void compile(Module &m, Workspaces &workspaces) {
  Options options;
  options.inference = true;
  DumpOptions dump = DumpOptions::quiet();
  PassManager passes(options, dump);
  passes.setWorkspace([&](const Node &n) { return workspaces.bytes(n); });
  buildPipeline(passes, options);
  llvm::Error e = passes.run(m);
  EXPECT_FALSE(bool(e)) << llvm::toString(std::move(e));
}

TEST(Workspaces, AskedOncePerShape) {
  auto m = parse(kText);
  ASSERT_TRUE(bool(m)) << llvm::toString(m.takeError());
  Workspaces workspaces(1);
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (unsigned i = 0; i < 10; ++i)
        compile(*(*m)->clone(), workspaces);
    });
  for (std::thread &t : threads)
    t.join();
  EXPECT_EQ(workspaces.asked(), 2u); // two shapes of products
}
