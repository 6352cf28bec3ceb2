// Splits what is noted (`tiles`, by choose-tiles or by hand): a product and what follows from it row by row are computed for some
// rows after the other, so that what is wide, logits for one, is never whole (memory-centric tiling: ZeRO-Infinity, arXiv
// 2104.07857, section 5.1.3).
//
//   %l = matmul %h, %w {!tiles = 2} : f32[8x50]        %h0 = slice %h ...                : f32[4x16]
//   %c, %s = cross_entropy %l, %t   : f32[8], ...      %l0 = matmul %h0, %w {!tile = [0, 0]} : f32[4x50]
//                                                ->    %c0, %s0 = cross_entropy %l0, %t0 : f32[4], ...
//                                                      ...
//                                                      %c = concat %c0, %c1              : f32[8]
//
// The notes `tile` say of which split, and which tile of it, a node is; interleave-tiles reads them in the backward.
#include "passes/Pass.h"
#include "passes/Refusal.h"
#include "passes/tile/RowRegion.h"
#include "passes/tile/TileOrder.h"

using namespace zcc;

static llvm::Error split(Function &f, int64_t &number) {
  std::vector<Node *> seeds;
  for (auto &n : f.nodes)
    if (n->attrs.has("tiles"))
      seeds.push_back(n.get());
  while (!seeds.empty()) {
    Node *n = seeds.back();
    int64_t count = n->attrs.i("tiles");
    if (!n->is(ops::matmul))
      return refuseAt(n->loc, "'" + llvm::Twine(n->op->name) + "' cannot be split into tiles: it is no matrix product");
    NodeOrder order = orderOf(f);
    RowRegion region(*n, order);
    std::string why = region.whyNot();
    if (why.empty() && !region.returned().empty())
      why = "it is a result";
    if (count < 1 || !why.empty())
      return refuseAt(n->loc,
                      "this product cannot be split into " + llvm::Twine(count) + " tiles" + (why.empty() ? "" : ": " + why));
    llvm::erase_if(seeds, [&](Node *s) { return region.contains(*s); });
    region.split(count, number++);
    sortByUse(f);
  }
  return llvm::Error::success();
}

llvm::Expected<bool> zcc::tileOperators(Module &m, PassContext &) {
  bool changed = false;
  int64_t number = 0;
  for (auto &f : m.functions) {
    int64_t before = number;
    if (auto e = split(*f, number))
      return e;
    changed |= number != before;
    if (f->name != "micro")
      for (auto &n : f->nodes)
        n->attrs.erase("tile");
  }
  return changed;
}
