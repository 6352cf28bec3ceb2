// Kernels are asked for their workspace once per shape, however many pipelines run.
#include "codegen/Workspaces.h"
#include "codegen/CodePrinter.h"
#include "codegen/CpuTarget.h"
#include "ir/Op.h"
#include "ir/Text.h"
#include "passes/Pipeline.h"
#include <gtest/gtest.h>
#include <thread>

namespace workspaces_test {

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

namespace {
/// The CPU, with workspaces that can be counted.
class Counted : public Target {
public:
  mutable Workspaces workspaces{*this};

  llvm::StringRef name() const override { return cpu->name(); }
  int threads() const override { return cpu->threads(); }
  Machine machine() const override { return cpu->machine(); }
  std::string ratesFrom() const override { return cpu->ratesFrom(); }
  const zccrt_kernel_def *findKernel(llvm::StringRef name) const override { return cpu->findKernel(name); }
  int64_t workspaceBytes(const Node &n) const override { return n.op->kernel ? workspaces.bytes(n) : 0; }
  int64_t libraryBytes(const Module &m) const override { return cpu->libraryBytes(m); }
  std::unique_ptr<CodePrinter> printer(const Module &m, llvm::ArrayRef<Space> spaces) const override {
    return cpu->printer(m, spaces);
  }

private:
  std::unique_ptr<Target> cpu = cpuTarget("", 1);
};
} // namespace

static void compile(Module &m, const Target &target) {
  Options options;
  options.inference = true;
  DumpOptions dump = DumpOptions::quiet();
  PassManager passes(options, dump, &target);
  buildPipeline(passes, options);
  llvm::Error e = passes.run(m);
  EXPECT_FALSE(bool(e)) << llvm::toString(std::move(e));
}

TEST(Workspaces, AskedOncePerShape) {
  auto m = parse(kText);
  ASSERT_TRUE(bool(m)) << llvm::toString(m.takeError());
  Counted target;
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (unsigned i = 0; i < 10; ++i)
        compile(*(*m)->clone(), target);
    });
  for (std::thread &t : threads)
    t.join();
  EXPECT_EQ(target.workspaces.asked(), 2u); // two shapes of products
}

} // namespace workspaces_test
