// Cuts parameters that are noted (`tiles`, boxes along each axis, by choose-tiles or by hand) into boxes of the tensor that they
// were: products with them, gradients, states of the optimizer and what moves them go by tile (memory-centric tiling:
// ZeRO-Infinity, arXiv 2104.07857, section 5.1.3).
//
//   param %w : f32[8x4] = zero {tiles = [2, 1], trained}       tensor %w : f32[8x4] = zero
//                                                              param %w.t0 : f32[4x4] = %w[0:4, 0:4] {trained}
//                                                        ->    param %w.t1 : f32[4x4] = %w[4:8, 0:4] {trained}
//   %y = matmul %x, %w : f32[2x4]                              %y0 = matmul %x0, %w.t0          : f32[2x4]
//                                                              %y = add_matmul %y0, %x1, %w.t1  : f32[2x4]
//
// Boxes of columns give columns of the product, which are joined. A lookup adds up what each box has.
#include "passes/Pass.h"
#include "passes/Refusal.h"
#include "passes/tile/ParameterTiles.h"

using namespace zcc;

llvm::Expected<bool> zcc::splitParameters(Module &m, PassContext &) {
  std::vector<GlobalValue *> noted;
  for (auto &g : m.globals)
    if (g->attrs.has("tiles"))
      noted.push_back(g.get());
  for (GlobalValue *g : noted) {
    std::vector<int64_t> grid = g->attrs.ints("tiles");
    if (g->role != GlobalValue::Param || grid.size() != g->type.ndim() || llvm::any_of(grid, [](int64_t n) { return n < 1; }))
      return refuseAt(g->loc, "'%" + g->name + "': tiles must be a number of boxes for each axis of a param");
    ParameterTiles tiles(m, *g);
    if (!tiles.whyNot().empty())
      return refuseAt(g->loc, "parameter '" + g->name + "' cannot be split into tiles: " + tiles.whyNot());
    tiles.split(grid);
  }
  return !noted.empty();
}
