// Grids of square tiles: where an operand lies along another axis than the results, a block reads a tile of it as it lies, and
// computes the tile as the results lie, so that neighbouring threads are at neighbouring elements of both.
#include "codegen/ScalarCode.h"
#include "codegen/cuda/CudaLoops.h"

using namespace zcc;

constexpr int64_t kLines = 8; ///< of threads, each as long as a line of a tile

bool CudaLoops::isOfTile(size_t axis) const { return axis == p.tiledAxis || axis == p.innermost(); }
std::string CudaLoops::beginOf(size_t axis) { return "b" + num(axis); }
/// How many there are along an axis: tiles of one that they divide, elements of another.
std::string CudaLoops::tilesOf(size_t axis) {
  return isOfTile(axis) ? "((" + extent(axis) + " + " + num(p.tile - 1) + ") / " + num(p.tile) + ")" : extent(axis);
}

/// `inTile` for the elements of a tile that are there, a warp along `across`.
void CudaLoops::eachOfTile(size_t across, size_t along, llvm::function_ref<void()> inTile) {
  out.open("for (int line = threadIdx.y; line < " + num(p.tile) + "; line += " + num(kLines) + ")");
  out.line("const " + index + " " + axisName(across) + " = " + beginOf(across) + " + threadIdx.x, " + axisName(along) + " = " +
           beginOf(along) + " + line;");
  out.open("if (" + axisName(across) + " < " + extent(across) + " && " + axisName(along) + " < " + extent(along) + ")");
  inTile();
  out.close();
  out.close();
}

void CudaLoops::tiles() {
  constexpr size_t kMost = 5; // whose tiles a block's static shared memory holds, of 8 bytes an element
  const size_t outer = p.tiledAxis, inner = p.innermost();
  const int64_t fewest = p.tile / 2;            // elements along an axis that tiles are worth
  const std::string lineStep = num(p.tile + 1); // so that neither way through a tile has conflicts of banks
  std::vector<const LoopAccess *> across;
  for (const LoopAccess &a : p.accesses)
    if (a.kind == LoopAccess::Operand && a.strides[outer] == 1 && a.strides[inner] > 1 && across.size() < kMost)
      across.push_back(&a);
  if (across.empty() || std::min(p.dims[outer], p.dims[inner]) < fewest)
    return elementwise();
  std::string count;
  for (size_t i = 0; i < p.dims.size(); ++i)
    count += (i ? " * " : "") + index + "(" + tilesOf(i) + ")";
  std::vector<std::string> names;
  for (const LoopAccess *a : across) {
    names.push_back(fresh("t"));
    out.line("__shared__ " + storageType(a->value->type.elem) + " " + names.back() + "[" + num(p.tile * (p.tile + 1)) + "];");
  }
  out.open("for (" + index + " tile = blockIdx.x; tile < " + count + "; tile += gridDim.x)");
  splitNumber(
      "tile", allAxes(p), [&](size_t axis) { return tilesOf(axis); },
      [&](size_t axis, const std::string &at) {
        out.line("const " + index + " " +
                 (isOfTile(axis) ? beginOf(axis) + " = (" + at + ") * " + num(p.tile) : axisName(axis) + " = " + at) + ";");
      });
  eachOfTile(outer, inner, [&] {
    for (size_t i = 0; i < across.size(); ++i)
      out.line(names[i] + "[line * " + lineStep + " + threadIdx.x] = " + LoopValues::element(*across[i]) + ";");
  });
  out.line("__syncthreads();");
  for (size_t i = 0; i < across.size(); ++i)
    turned[across[i]] = names[i] + "[threadIdx.x * " + lineStep + " + line]";
  eachOfTile(inner, outer, [&] { bodyOf(p.passes[0], ""); });
  turned.clear();
  out.line("__syncthreads();"); // before the next tile
  out.close();
  finishKernel("blocksFor(" + count + ", 1)", "dim3(" + num(p.tile) + ", " + num(kLines) + ")");
}
