// Statements in C++ over the arena A.
#include "codegen/CpuPrinter.h"
#include "llvm/Support/FormatVariadic.h"

using namespace zcc;
using llvm::formatv;
using llvm::StringRef;

std::string CpuPrinter::address(Place p) {
  return "A + " + std::to_string(p.offset) + (p.step ? " + " + std::to_string(p.step) + " * t" : "");
}

llvm::Expected<std::string> CpuPrinter::kernelCall(const Node &fused, llvm::function_ref<Place(const Value *)> placeOf) {
  auto call =
      kernels.call(fused, [&](const Value *v) { return address(placeOf(v)); }, [&](const Value *v) { return placeOf(v).offset; });
  if (!call)
    return call.takeError();
  return *call + ";";
}

std::string CpuPrinter::includes() const { return "#include <initializer_list>\n#include <string.h>\n"; }

std::string CpuPrinter::functionHead(StringRef symbol, bool isBody) const {
  return ("static void " + symbol + (isBody ? "(char *A, [[maybe_unused]] int64_t t)" : "(char *A)")).str();
}

std::string CpuPrinter::copy(Place to, Place from, int64_t bytes) const {
  return "memcpy(" + address(to) + ", " + address(from) + ", " + std::to_string(bytes) + ");";
}

std::string CpuPrinter::libraryCall(StringRef kernel, unsigned call) const {
  return formatv("{0}_{1}(A, calls + {2});", target.name(), kernel, call);
}

std::string CpuPrinter::repeat(StringRef body, int64_t slices, bool reverse) const {
  const char *loop = reverse ? "for (int64_t t = {0}; t-- > 0;) {1}(A, t);" : "for (int64_t t = 0; t < {0}; ++t) {1}(A, t);";
  return formatv(loop, slices, body);
}

std::string CpuPrinter::choose(Place condition, StringRef then, StringRef otherwise) const {
  return formatv("if (*(const bool *)({0})) {1}(A, 0); else {2}(A, 0);", address(condition), then, otherwise);
}
