// Notes on nodes of the forward whether the backward computes them again (--checkpoint-activations): the inside of segments of K
// blocks, of which only what later blocks read is kept. recompute-activations does it.
//
//   %a = matmul %x, %w                        %a = matmul %x, %w {!recompute = 0}
//   %h = gelu %a                       ->     %h = gelu %a {!recompute = 0}
//   %y = matmul %h, %v                        %y = matmul %h, %v
//   %b = matmul %y, %u                        %b = matmul %y, %u {!recompute = 1}
//
// A block is an element of the longest repeated stretch of the forward; without one, what lies between single values. With `auto`
// choose-plan does. Notes that are there already hold.
#include "ir/Op.h"
#include "passes/Pass.h"
#include "passes/memory/Activations.h"
#include "passes/memory/ForwardBlocks.h"
#include "llvm/Support/FormatVariadic.h"

using namespace zcc;

static std::string blockName(const Node &n) {
  if (n.loc && !n.loc->scope.empty())
    return "'" + n.loc->scope + "'";
  return n.loc && !n.loc->nodes.empty() ? "'" + n.loc->nodes[0] + "'" : "'%" + n.result()->name + "'";
}

static bool markEvery(Function &f, int64_t every, PassContext &ctx) {
  ForwardBlocks blocks = findBlocks(f);
  Recomputable allowed(f);
  int64_t number = 0;
  for (const ForwardBlocks::Chain &chain : blocks.chains)
    for (size_t i = 0; i + 1 < chain.cuts.size(); i += every) {
      size_t last = std::min(i + every, chain.cuts.size() - 1);
      std::vector<unsigned> inside = neededInside(blocks, chain.cuts[i], chain.cuts[last], allowed);
      for (unsigned k : inside)
        blocks.nodes[k]->attrs.set("recompute", number);
      if (!inside.empty())
        ctx.remarks.push_back(llvm::formatv("computed again in the backward, {0}: {1} nodes, from {2} to {3}, in {4} block{5}",
                                            number++, inside.size(), blockName(*blocks.nodes[chain.cuts[i]]),
                                            blockName(*blocks.nodes[chain.cuts[last] - 1]), last - i, last - i > 1 ? "s" : ""));
    }
  return number > 0;
}

llvm::Expected<bool> zcc::chooseCheckpoints(Module &m, PassContext &ctx) {
  Function *f = m.function("micro");
  // What is noted already, by hand or by a search, holds.
  bool isNoted = f && llvm::any_of(f->nodes, [](auto &n) { return n->attrs.has("recompute"); });
  if (!f || isNoted || ctx.options.checkpointActivations <= 0)
    return false;
  return markEvery(*f, ctx.options.checkpointActivations, ctx);
}
