// Notes on nodes of the forward whether the backward computes them again (--checkpoint-activations): the inside of segments of K
// blocks, of which only what later blocks read is kept. recompute-activations does it.
//
//   %a = matmul %x, %w                        %a = matmul %x, %w {!recompute = 0}
//   %h = gelu %a                       ->     %h = gelu %a {!recompute = 0}
//   %y = matmul %h, %v                        %y = matmul %h, %v
//   %b = matmul %y, %u                        %b = matmul %y, %u {!recompute = 1}
//
// A block is an element of the longest repeated stretch of the forward; without one, what lies between single values.
#include "ir/Op.h"
#include "passes/Pass.h"
#include "passes/memory/Activations.h"
#include "passes/memory/ForwardBlocks.h"
#include "llvm/Support/FormatVariadic.h"

using namespace zcc;

namespace {
class Marker {
public:
  Marker(const Function &f, const ForwardBlocks &b) : blocks(b), fixed(fixedNodes(f)), written(writtenGlobals(f)) {}
  unsigned mark(unsigned begin, unsigned end, int64_t number) const;

private:
  const ForwardBlocks &blocks;
  llvm::DenseSet<const Node *> fixed;
  llvm::DenseSet<const Value *> written;
};
} // namespace

/// Whether the backward, or a node of `again`, reads a value, or a view of it.
static bool isReadAgain(const Value &v, const llvm::DenseSet<const Node *> &again) {
  return llvm::any_of(v.uses, [&](const Value::Use &u) {
    return u.node->op->view ? isReadAgain(*u.node->result(), again) : u.node->phase != Phase::Forward || again.contains(u.node);
  });
}

/// Notes what the backward needs of the nodes from `begin` to `end` and nothing behind them reads in the forward; returns how
/// many there are.
unsigned Marker::mark(unsigned begin, unsigned end, int64_t number) const {
  llvm::DenseSet<const Node *> again;
  for (unsigned i = end; i-- > begin;) {
    Node &n = *blocks.nodes[i];
    if (blocks.last[i] >= int(end) || whyKept(n, fixed, written) ||
        llvm::none_of(n.results, [&](auto &r) { return isReadAgain(*r, again); }))
      continue;
    n.attrs.set("recompute", number);
    again.insert(&n);
  }
  return again.size();
}

static std::string blockName(const Node &n) {
  if (n.loc && !n.loc->scope.empty())
    return "'" + n.loc->scope + "'";
  return n.loc && !n.loc->nodes.empty() ? "'" + n.loc->nodes[0] + "'" : "'%" + n.result()->name + "'";
}

llvm::Expected<bool> zcc::chooseCheckpoints(Module &m, PassContext &ctx) {
  Function *f = m.function("micro");
  int64_t every = ctx.options.checkpointActivations;
  if (!f || every == 0)
    return false;
  ForwardBlocks blocks = findBlocks(*f);
  Marker marker(*f, blocks);
  int64_t number = 0;
  for (const ForwardBlocks::Chain &chain : blocks.chains)
    for (size_t i = 0; i + 1 < chain.cuts.size(); i += every) {
      size_t last = std::min(i + every, chain.cuts.size() - 1);
      if (unsigned count = marker.mark(chain.cuts[i], chain.cuts[last], number))
        ctx.remarks.push_back(llvm::formatv("computed again in the backward, {0}: {1} nodes, from {2} to {3}, in {4} block{5}",
                                            number++, count, blockName(*blocks.nodes[chain.cuts[i]]),
                                            blockName(*blocks.nodes[chain.cuts[last] - 1]), last - i, last - i > 1 ? "s" : ""));
    }
  return number > 0;
}
