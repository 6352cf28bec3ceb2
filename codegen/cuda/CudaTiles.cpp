// Grids of square tiles: where an operand lies along another axis than the results, a block reads a tile of it as it lies, and
// computes the tile as the results lie, so that neighbouring threads are at neighbouring elements of both.
#include "codegen/ScalarCode.h"
#include "codegen/cuda/CudaLoops.h"

using namespace zcc;

constexpr int64_t kSide = 32;          ///< of a tile: a warp
constexpr int64_t kStep = kSide + 1;   ///< from one line of a tile to the next, so that neither way has conflicts of banks
constexpr int64_t kLines = 8;          ///< of threads
constexpr int64_t kFewest = kSide / 2; ///< elements along an axis that tiles are worth

/// The number of a block's tile, as where it begins along the two axes and the indices of the others.
void CudaLoops::splitTile(const std::string &tile) {
  std::string rest = tile;
  for (size_t i = p.dims.size(); i-- > 0;) {
    const std::string n = isOfTile(i) ? tilesOf(i) : extent(i), at = i ? rest + " % " + n : rest;
    out.line("const " + index + " " + (isOfTile(i) ? beginOf(i) + " = (" + at + ") * " + num(kSide) : axisName(i) + " = " + at) +
             ";");
    if (!i)
      return;
    const std::string next = fresh("q");
    out.line("const " + index + " " + next + " = " + rest + " / " + n + ";");
    rest = next;
  }
}

bool CudaLoops::isOfTile(size_t axis) const { return axis == p.tiledAxis || axis == p.innermost(); }
std::string CudaLoops::beginOf(size_t axis) { return "b" + num(axis); }
std::string CudaLoops::tilesOf(size_t axis) { return "((" + extent(axis) + " + " + num(kSide - 1) + ") / " + num(kSide) + ")"; }

/// `inTile` for the elements of a tile that are there, a warp along `across`.
void CudaLoops::eachOfTile(size_t across, size_t along, llvm::function_ref<void()> inTile) {
  out.open("for (int line = threadIdx.y; line < " + num(kSide) + "; line += " + num(kLines) + ")");
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
  std::vector<const LoopAccess *> across;
  for (const LoopAccess &a : p.accesses)
    if (a.kind == LoopAccess::Operand && a.strides[outer] == 1 && a.strides[inner] > 1 && across.size() < kMost)
      across.push_back(&a);
  if (across.empty() || std::min(p.dims[outer], p.dims[inner]) < kFewest)
    return elementwise();
  std::string count;
  for (size_t i = 0; i < p.dims.size(); ++i)
    count += (i ? " * " : "") + index + "(" + (isOfTile(i) ? tilesOf(i) : extent(i)) + ")";
  std::vector<std::string> names;
  for (const LoopAccess *a : across) {
    names.push_back(fresh("t"));
    out.line("__shared__ " + storageType(a->value->type.elem) + " " + names.back() + "[" + num(kSide * kStep) + "];");
  }
  out.open("for (" + index + " tile = blockIdx.x; tile < " + count + "; tile += gridDim.x)");
  splitTile("tile");
  eachOfTile(outer, inner, [&] {
    for (size_t i = 0; i < across.size(); ++i)
      out.line(names[i] + "[line * " + num(kStep) + " + threadIdx.x] = " + LoopValues::element(*across[i]) + ";");
  });
  out.line("__syncthreads();");
  for (size_t i = 0; i < across.size(); ++i)
    turned[across[i]] = names[i] + "[threadIdx.x * " + num(kStep) + " + line]";
  eachOfTile(inner, outer, [&] { bodyOf(p.passes[0], ""); });
  turned.clear();
  out.line("__syncthreads();"); // before the next tile
  out.close();
  finishKernel("blocksFor(" + count + ", 1)", "dim3(" + num(kSide) + ", " + num(kLines) + ")");
}
