// Sums over the ranks become collectives that are started as soon as their addend is there and
// waited for where the sum is first read, so that the backward in between overlaps them.
//
//   %s = sum_ranks %a {mean = 1}              : f32[8x4]
// becomes, with other nodes in between,
//   %f = start %a {mean = 1, op = "all_reduce"} : future<f32[8x4]>
//   %s = wait %f                              : f32[8x4]
//
// Every rank runs the same nodes in the same order, so the collectives meet.
#include "ir/Builder.h"
#include "passes/Pass.h"
#include "llvm/ADT/DenseMap.h"

using namespace zcc;

/// The first node that reads `v`, by position.
static Node *firstReader(const Value &v, const llvm::DenseMap<const Node *, size_t> &order) {
  Node *first = nullptr;
  for (auto &u : v.uses)
    if (!first || order.lookup(u.node) < order.lookup(first))
      first = u.node;
  return first;
}

static bool lower(Function &f, bool overlap) {
  llvm::DenseMap<const Node *, size_t> order;
  std::vector<Node *> sums;
  for (auto &n : f.nodes) {
    order.insert({n.get(), order.size()});
    if (n->op == &ops::sum_ranks)
      sums.push_back(n.get());
  }
  for (Node *sum : sums) {
    Value *addend = sum->operand(0), *result = sum->result();
    Attrs attrs = sum->attrs;
    Value *whole;
    if (overlap) {
      attrs.set("op", "all_reduce");
      Node *behind = addend->def ? addend->def->next() : f.first();
      Value *future = Builder(f, behind, sum->loc).make(ops::start, {addend}, attrs);
      Node *reader = firstReader(*result, order);
      whole = Builder(f, reader ? reader : sum, sum->loc).make(ops::wait, {future});
    } else {
      whole = Builder(f, sum, sum->loc).make(ops::all_reduce, {addend}, attrs);
    }
    std::swap(whole->name, result->name);
    result->replaceAllUsesWith(whole);
    sum->erase();
  }
  return !sums.empty();
}

llvm::Expected<bool> zcc::reduceGradients(Module &m, PassContext &ctx) {
  bool changed = false;
  for (auto &f : m.functions)
    if (!f->isKernel)
      changed |= lower(*f, ctx.options.overlap);
  return changed;
}
