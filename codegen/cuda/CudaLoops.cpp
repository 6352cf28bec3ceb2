// Prints grids: a thread for each element; a warp or a block for each row; for columns blocks of 32 of them by 8 threads, each
// with every eighth row; for totals a block for each unit, then one thread for their sums. What threads sum is added up in an
// order that the extents give.
#include "codegen/cuda/CudaLoops.h"
#include "codegen/ScalarCode.h"
#include "ir/Op.h"

using namespace zcc;
using llvm::ArrayRef;

constexpr int64_t kBlock = 256, kWarp = 32;
/// Rows below this many elements have a warp each, eight of them in a block.
constexpr int64_t kLongRow = 1024;
constexpr int64_t kRowsOfBlock = 8;

std::string CudaLoops::definition() {
  printForm();
  return kernels + "void @SYMBOL(@PARAMS) {\n" + launches + "}\n";
}

/// The same for several parts, side by side in a grid; as many as one launch can be told the places of.
void CudaLoops::finishKernelOfParts(const std::string &grid, const std::string &block) {
  std::string name = "@SYMBOL_" + num(kernelCount++), each = num(k.args.size() + k.results.size());
  std::string scratch = p.scratchBytes() ? "scratches" : "";
  kernels +=
      "__global__ void " + name + "(char *A, Parts<" + each + "> parts" + (scratch.empty() ? "" : ", char *scratches") +
      "@NUMBERS) {\n  const int64_t part = parts.first + blockIdx.y;\n  const int64_t *const at = parts.offsets + blockIdx.y * " +
      each + ";\n" + casts + out.text + "}\n";
  launches += "  for (Parts<" + each + "> parts(offsets); parts.count; parts.next())\n    ZCC_LAUNCH(" + name + ", dim3(" + grid +
              ", parts.count), " + block + ", A, parts" + (scratch.empty() ? "" : ", scratches") + "@GIVEN);\n";
  out.text.clear();
}

/// What has been printed is a kernel; the next one begins.
void CudaLoops::finishKernel(const std::string &grid, const std::string &block) {
  if (p.parts > 1)
    return finishKernelOfParts(grid, block);
  std::string name = "@SYMBOL_" + num(kernelCount++);
  kernels += "__global__ void " + name + "(@PARAMS) {\n" + casts + out.text + "}\n";
  launches += "  ZCC_LAUNCH(" + name + ", " + grid + ", " + block + ", @ARGUMENTS);\n";
  out.text.clear();
}

// ---- indices

std::string CudaLoops::product(ArrayRef<size_t> axes) {
  std::string s;
  for (size_t a : axes)
    s += (s.empty() ? "int64_t(" : " * int64_t(") + extent(a) + ")";
  return s.empty() ? "int64_t(1)" : s;
}

/// Names the axes' indices of an element, the last axis changing fastest.
void CudaLoops::splitIndex(const std::string &index, ArrayRef<size_t> axes) {
  if (axes.size() == 1) {
    out.line("const int64_t " + axisName(axes[0]) + " = " + index + ";");
    return;
  }
  std::string rest = index;
  for (size_t i = axes.size(); i-- > 0;) {
    std::string d = extent(axes[i]);
    out.line("const int64_t " + axisName(axes[i]) + " = " + (i ? rest + " % " + d : rest) + ";");
    if (i == 0)
      break;
    std::string next = fresh("q");
    out.line("const int64_t " + next + " = " + rest + " / " + d + ";");
    rest = next;
  }
}

// ---- passes

void CudaLoops::declareSums(const LoopPass &w) {
  for (const Node *x : w.sums)
    out.line(computeType(x->result()->type.elem) + " " + accumulator[x] + " = " + identityCode(*x) + ";");
}

/// Every thread of the row gets its sums.
void CudaLoops::reduceSums(const LoopPass &w, const std::string &function) {
  for (const Node *x : w.sums) {
    std::string type = computeType(x->result()->type.elem), s = accumulator[x];
    out.line(s + " = " + function + "(" + s + ", [](" + type + " a, " + type + " b) { return " + type + "(" +
             combineCode(*x, "a", "b") + "); });");
  }
}

// ---- the forms

static std::vector<size_t> allAxes(const LoopPlan &p) {
  std::vector<size_t> axes(p.dims.size());
  for (size_t i = 0; i < axes.size(); ++i)
    axes[i] = i;
  return axes;
}

void CudaLoops::elementwise() {
  auto axes = allAxes(p);
  std::string count = product(axes);
  out.open("for (int64_t e = firstIndex(); e < " + count + "; e += indexStep())");
  splitIndex("e", axes);
  bodyOf(p.passes[0], "");
  out.close();
  finishKernel("blocksFor(" + count + ")", num(kBlock));
}

void CudaLoops::rows() {
  bool isLong = p.rowElements >= kLongRow;
  std::string count = product(p.keptAxes);
  out.line(isLong ? "const int64_t row = blockIdx.x;" : "const int64_t row = int64_t(blockIdx.x) * blockDim.y + threadIdx.y;");
  if (!isLong)
    out.line("if (row >= " + count + ") return;");
  if (!p.keptAxes.empty())
    splitIndex("row", p.keptAxes);
  pushScope();
  for (const LoopPass &w : p.passes) {
    for (const Node *n : w.before)
      value(n->result(), *n, 0);
    if (!w.empty())
      rowPass(w);
  }
  // A row's result may lie where an operand did that other threads have yet to read.
  out.line(isLong ? "__syncthreads();" : "__syncwarp();");
  out.open("if (threadIdx.x == 0)");
  pushScope();
  storeReduced();
  popScope();
  out.close();
  popScope();
  if (isLong)
    finishKernel("unsigned(" + count + ")", num(kBlock));
  else
    finishKernel("unsigned((" + count + " + " + num(kRowsOfBlock - 1) + ") / " + num(kRowsOfBlock) + ")",
                 "dim3(" + num(kWarp) + ", " + num(kRowsOfBlock) + ")");
}

/// A thread has every 32nd or 256th element of its row, the same ones in each pass.
void CudaLoops::rowPass(const LoopPass &w) {
  int64_t threads = p.rowElements >= kLongRow ? kBlock : kWarp;
  for (const Value *v : w.buffers)
    out.line(computeType(v->type.elem) + " " + (bufferName[v] = fresh("b")) + "[" + num((p.rowElements + threads - 1) / threads) +
             "];");
  declareSums(w);
  std::string j = fresh("j"), e = fresh("e");
  buffered = j;
  out.open("for (int64_t " + j + " = 0, " + e + " = threadIdx.x; " + e + " < " + product(p.reducedAxes) + "; ++" + j + ", " + e +
           " += " + num(threads) + ")");
  splitIndex(e, p.reducedAxes);
  bodyOf(w, "");
  out.close();
  reduceSums(w, threads == kWarp ? "warpReduce" : "blockReduce");
  finishPass(w, "");
}

void CudaLoops::columns() {
  const LoopPass &w = p.passes[0];
  size_t last = p.keptAxes.back();
  ArrayRef<size_t> others = ArrayRef(p.keptAxes).drop_back();
  std::string strips = "((" + extent(last) + " + 31) / 32)";
  out.line("const int64_t strip = blockIdx.x % " + strips + ", other = blockIdx.x / " + strips + ";");
  out.line("const int64_t " + axisName(last) + " = strip * 32 + threadIdx.x;");
  if (!others.empty())
    splitIndex("other", others);
  declareSums(w);
  out.open("if (" + axisName(last) + " < " + extent(last) + ")");
  out.open("for (int64_t r = threadIdx.y; r < " + product(p.reducedAxes) + "; r += 8)");
  splitIndex("r", p.reducedAxes);
  bodyOf(w, "");
  out.close();
  out.close();
  reduceSums(w, "columnReduce");
  out.line("__syncthreads();"); // as for rows
  out.open("if (threadIdx.y == 0 && " + axisName(last) + " < " + extent(last) + ")");
  pushScope();
  for (const Node *x : w.sums)
    nameSum(*x, accumulator[x]);
  storeReduced();
  popScope();
  out.close();
  finishKernel("unsigned(" + strips + " * " + product(others) + ")", "dim3(32, 8)");
}

void CudaLoops::total() {
  const LoopPass &w = p.passes[0];
  auto part = [&](size_t i) { return "((double *)scratch + " + num(i * p.units) + ")"; };
  declareSums(w);
  if (p.chunk) {
    std::string chunk = num(p.chunk), count = num(p.dims[0]);
    out.line("const int64_t lo = blockIdx.x * int64_t(" + chunk + "), hi = lo + " + chunk + " < " + count + " ? lo + " + chunk +
             " : " + count + ";");
    out.open("for (int64_t i0 = lo + threadIdx.x; i0 < hi; i0 += blockDim.x)");
  } else {
    ArrayRef<size_t> inner = ArrayRef(p.reducedAxes).drop_front();
    out.line("const int64_t i0 = blockIdx.x;");
    out.open("for (int64_t e = threadIdx.x; e < " + product(inner) + "; e += blockDim.x)");
    splitIndex("e", inner);
  }
  bodyOf(w, "");
  out.close();
  reduceSums(w, "blockReduce");
  out.open("if (threadIdx.x == 0)");
  for (size_t i = 0; i < w.sums.size(); ++i)
    out.line(part(i) + "[blockIdx.x] = double(" + accumulator[w.sums[i]] + ");");
  out.close();
  finishKernel(num(p.units), num(kBlock));

  addUnits(w, part);
  finishKernel("1", "1");
}
