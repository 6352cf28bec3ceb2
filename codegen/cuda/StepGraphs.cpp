// Looks for what keeps a step from being graphs.
#include "codegen/cuda/StepGraphs.h"
#include "codegen/EmitTables.h"
#include "ir/Op.h"
#include "passes/CostModel.h"
#include "llvm/Support/FormatVariadic.h"

using namespace zcc;

std::string zcc::whyNoGraph(const Module &m) {
  auto liesOnDisk = [](Value *v) { return v->type.space == Space::Nvme; };
  for (auto &f : m.functions) {
    if (!f->isBody && f->name != "micro" && f->name != "update")
      continue;
    for (auto &n : f->nodes) {
      if (n->op->structural == Structural::Cond)
        return "the host looks which branch is taken, at " + describe(n->loc);
      if (performed(*n)->isWork() && computeSpace(*n) == Space::Host)
        return "part of a step is computed in the host's memory";
      if (transfers(*n) &&
          (llvm::any_of(n->operands(), liesOnDisk) || llvm::any_of(n->results, [&](auto &r) { return liesOnDisk(r.get()); })))
        return "a step reads and writes disks";
    }
  }
  return "";
}

std::string zcc::deviceFields(const Module &m, llvm::StringRef device) {
  if (device.empty())
    return "";
  const std::string why = whyNoGraph(m);
  return llvm::formatv("    .device = {0},\n    .no_graph = {1},\n", device, why.empty() ? "nullptr" : cString(why));
}
