// Kernels by CudaLoops, and statements that are queued.
#include "codegen/cuda/CudaPrinter.h"
#include "codegen/EmitTables.h"
#include "codegen/cuda/CudaLoops.h"
#include "ir/Epilogue.h"
#include "llvm/Support/FormatVariadic.h"

using namespace zcc;

static KernelText printForCuda(const Function &kernel, llvm::ArrayRef<Dims> strides, int64_t parts) {
  LoopPlan plan = planLoops(kernel, strides, kGrid, parts);
  KernelText t;
  t.hasScratch = plan.scratchBytes() > 0;
  std::string casts;
  printPointers(plan, t.params, casts);
  CudaLoops loops(plan, casts);
  t.text = loops.definition();
  t.numbers = loops.openNumbers();
  return t;
}

static std::string headForCuda(const Module &m) {
  return "// Kernels of " + inComment(m.name) +
         ". Sums have the order that their extent gives: compile without contraction of products and sums.\n"
         "#include \"runtime/cuda/Loops.h\"\n\n";
}

CudaPrinter::CudaPrinter(const Module &m, llvm::ArrayRef<Space> spaces, const Target &t, CudaDevice device)
    : CpuPrinter(t, KernelEmitter(m, spaces, printForCuda, headForCuda(m))), isChecked(device == CudaDevice::Checked) {}

std::string CudaPrinter::includes() const {
  return CpuPrinter::includes() + (isChecked ? "#include \"runtime/cuda/emulate/Watch.h\"\n" : "");
}

/// ", {A + 64, 256, 0}": from the first to the last element of an operand or result.
static std::string touched(const std::string &address, const Value *v, bool isResult) {
  int64_t first = 0, last = 0, size = elemBytes(v->type.elem);
  if (auto view = isResult ? std::nullopt : viewOf(const_cast<Value *>(v)))
    for (auto [dim, stride] : llvm::zip(view->dims, view->strides))
      (stride < 0 ? first : last) += (dim - 1) * stride;
  else
    last = std::max<int64_t>(v->type.localBytes() / size, 1) - 1;
  return llvm::formatv(", {{{0} + {1}, {2}, {3}}", address, first * size, (last - first + 1) * size, int(isResult));
}

llvm::Expected<std::string> CudaPrinter::kernelCall(const Node &fused, llvm::function_ref<Place(const Value *)> placeOf) {
  auto call = CpuPrinter::kernelCall(fused, placeOf);
  if (!call || !isChecked)
    return call;
  std::string list;
  const Function &kernel = *fused.parent()->module->function(fused.attrs.s("kernel"));
  for (auto [i, v] : llvm::enumerate(kernelOperands(fused))) // a product is dense as its argument is
    list += touched(address(placeOf(v)), v ? v : kernel.args[i % kernel.args.size()].get(), /*isResult=*/false);
  for (auto &r : fused.results)
    list += touched(address(placeOf(r.get())), r.get(), /*isResult=*/true);
  if (int64_t scratch = fused.op->feedsKernel ? 0 : KernelEmitter::scratchBytes(fused, kGrid))
    list += llvm::formatv(", {{A + {0}, {1}, 1}", fused.attrs.i("scratch"), scratch);
  std::string node = cString(fused.loc && !fused.loc->nodes.empty() ? fused.loc->nodes[0] : "");
  return "zccrt::emulate::touch(" + node + ", {" + list.substr(2) + "}); " + *call;
}

std::string CudaPrinter::libraryCall(llvm::StringRef kernel, unsigned call) const {
  std::string text = CpuPrinter::libraryCall(kernel, call);
  return isChecked ? llvm::formatv("zccrt::emulate::touch(A, calls + {0}); {1}", call, text).str() : text;
}

std::string CudaPrinter::copy(Place to, Place from, int64_t bytes) const {
  return "zccrt_device_copy(" + address(to) + ", " + address(from) + ", " + std::to_string(bytes) + ");";
}

std::string CudaPrinter::choose(Place condition, llvm::StringRef then, llvm::StringRef otherwise) const {
  return llvm::formatv("if (zccrt_device_flag({0})) {1}(A, 0); else {2}(A, 0);", address(condition), then, otherwise);
}
