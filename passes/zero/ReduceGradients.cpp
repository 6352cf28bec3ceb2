// Sums over the ranks become collectives.
//
//   %s = sum_ranks %a {mean = 1}            : f32[8x4]
//   %g = sum_ranks %b {mean = 1, scatter = 1} : f32[8x4]/2
// becomes
//   %s = all_reduce %a {mean = 1}           : f32[8x4]
//   %g = reduce_scatter %b {mean = 1}       : f32[8x4]/2
//
// Each stands right behind its addend; schedule-prefetch lets the backward overlap it.
#include "ir/Builder.h"
#include "passes/Pass.h"

using namespace zcc;

static bool lower(Function &f) {
  std::vector<Node *> sums;
  for (auto &n : f.nodes)
    if (n->op->structural == Structural::SumRanks)
      sums.push_back(n.get());
  for (Node *sum : sums) {
    Value *addend = sum->operand(0), *result = sum->result();
    const OpDef &op = sum->attrs.i("scatter") ? ops::reduce_scatter : ops::all_reduce;
    Node *behind = addend->def ? addend->def->next() : f.first();
    Value *total = Builder(f, behind, sum->loc).make(op, {addend}, {{"mean", sum->attrs.i("mean", 1)}});
    total->def->phase = sum->phase;
    std::swap(total->name, result->name);
    result->replaceAllUsesWith(total);
    sum->erase();
  }
  return !sums.empty();
}

llvm::Expected<bool> zcc::reduceGradients(Module &m, PassContext &ctx) {
  bool changed = false;
  for (auto &f : m.functions)
    if (!f->isKernel)
      changed |= lower(*f);
  return changed;
}
