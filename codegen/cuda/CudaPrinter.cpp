// Kernels by CudaLoops, and statements that are queued.
#include "codegen/cuda/CudaPrinter.h"
#include "codegen/cuda/CudaLoops.h"
#include "llvm/Support/FormatVariadic.h"

using namespace zcc;

static KernelText printForCuda(const Function &kernel, llvm::ArrayRef<Dims> strides) {
  LoopPlan plan = planLoops(kernel, strides, /*threads=*/1);
  KernelText t;
  t.hasScratch = plan.scratchBytes() > 0;
  std::string casts;
  printPointers(kernel, t.hasScratch, t.params, casts);
  CudaLoops loops(plan, casts);
  t.text = loops.definition();
  t.numbers = loops.openNumbers();
  return t;
}

static std::string headForCuda(const Module &m) {
  return "// Kernels of " + m.name +
         ". Sums have the order that their extent gives: compile without contraction of products and sums.\n"
         "#include \"runtime/cuda/Loops.h\"\n\n";
}

CudaPrinter::CudaPrinter(const Module &m, llvm::ArrayRef<Space> spaces, const Target &t)
    : CpuPrinter(t, KernelEmitter(m, spaces, printForCuda, headForCuda(m))) {}

std::string CudaPrinter::copy(Place to, Place from, int64_t bytes) const {
  return "zccrt_device_copy(" + address(to) + ", " + address(from) + ", " + std::to_string(bytes) + ");";
}

std::string CudaPrinter::choose(Place condition, llvm::StringRef then, llvm::StringRef otherwise) const {
  return llvm::formatv("if (zccrt_device_flag({0})) {1}(A, 0); else {2}(A, 0);", address(condition), then, otherwise);
}
