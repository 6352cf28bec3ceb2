// Computes what is noted (`labelled`, by choose-labelled or by hand) only for so many rows: those whose label counts, in order,
// and others behind them, whose loss is 0. The program ends where a batch has more of them.
//
//   %l = matmul %h, %w {!labelled = 2} : f32[8x50]      %r = slice %first, 0 to 2          : i64[2]
//   %c, %s = cross_entropy %l, %t      : f32[8], ...    %k = gather %h, %r                 : f32[2x16]
//                                                ->     %l = matmul %k, %w                 : f32[2x50]
//                                                       %d, %s = cross_entropy %l, %t2     : f32[2], ...
//                                                       %c = scatter_add %zero, %r, %d     : f32[8]
#include "passes/Pass.h"
#include "passes/Refusal.h"
#include "passes/tile/RowRegion.h"
#include "passes/tile/TileOrder.h"

using namespace zcc;

llvm::Expected<bool> zcc::keepLabelled(Module &m, PassContext &) {
  bool changed = false;
  for (auto &f : m.functions) {
    auto noted = llvm::find_if(f->nodes, [](auto &n) { return n->attrs.has("labelled"); });
    if (noted == f->nodes.end())
      continue;
    Node &n = **noted;
    const int64_t rows = n.attrs.i("labelled");
    NodeOrder order = orderOf(*f);
    std::optional<RowRegion> region;
    if (n.is(ops::matmul))
      region.emplace(n, order);
    const bool isWhole = !region || !region->whyNot().empty() || !region->returned().empty();
    const Node *losses = isWhole ? nullptr : region->rowLosses(m);
    if (!losses || rows < 1 || rows > region->rows())
      return refuseAt(n.loc, "this cannot be computed for " + llvm::Twine(rows) + " labelled rows");
    region->keepLabelled(rows, *losses);
    sortByUse(*f);
    changed = true;
  }
  return changed;
}
