// Looks for what keeps a step from being graphs.
#include "codegen/cuda/StepGraphs.h"
#include "codegen/EmitTables.h"
#include "codegen/Plan.h"
#include "ir/Op.h"
#include "llvm/Support/FormatVariadic.h"

using namespace zcc;

std::string zcc::whyNoGraph(const Module &m) {
  for (auto &f : m.functions)
    for (auto &n : f->nodes)
      if (n->op->structural == Structural::Cond)
        return "the host looks which branch is taken, at " + describe(n->loc);
  return "";
}

std::string zcc::deviceFields(const Module &m, const Target &target) {
  const llvm::StringRef device = target.deviceSymbol();
  if (device.empty())
    return "";
  const std::string why = whyNoGraph(m);
  return llvm::formatv("    .device = {0},\n    .no_graph = {1},\n    .staging_bytes = {2},\n    .tf32 = {3:d},\n", device,
                       why.empty() ? "nullptr" : cString(why), stagingBytes(m), target.multipliesInTf32());
}
