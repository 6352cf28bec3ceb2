// Prints grids: a thread for each element, or for neighbours (in tiles: CudaTiles.cpp); a warp or a block for each row; for
// columns blocks of 32 of them by 8 threads, each with every eighth row; for totals a block for each unit. Where rows or columns
// are few and long, too, a block has a unit of one, and who reads its sum, the next pass over the row or another kernel, adds up
// those of its units first. Where rows have sums over them beside them, a block has a unit of rows. What threads sum is added up
// in an order that the extents give.
#include "codegen/cuda/CudaLoops.h"
#include "codegen/ScalarCode.h"
#include "ir/Op.h"

using namespace zcc;
using llvm::ArrayRef;

constexpr int64_t kBlock = 256;
/// Rows below this many elements have a warp each, eight of them in a block.
constexpr int64_t kBlockRow = 1024;
constexpr int64_t kRowsOfBlock = 8;
/// Of the rows of a block that shares sums over them, those that are added one behind the other.
constexpr int64_t kSlice = kGridRows / kRowsOfBlock;

int64_t zcc::gridsOf(const LoopPlan &p) {
  if (!p.units || p.shape.hasColumns)
    return p.units ? 2 : 1;
  int64_t passes = llvm::count_if(p.passes, [](const LoopPass &w) { return !w.empty(); });
  return passes + llvm::any_of(p.kernel->results, [&](const Value *r) { return p.isReduced(r->def); });
}

std::string CudaLoops::definition() {
  printForm();
  assert(kernelCount == gridsOf(p));
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

/// What has been printed is a kernel; the next one begins. `bounds`: what its blocks are held to.
void CudaLoops::finishKernel(const std::string &grid, const std::string &block, const std::string &bounds) {
  if (p.parts > 1)
    return finishKernelOfParts(grid, block);
  std::string name = "@SYMBOL_" + num(kernelCount++);
  kernels += "__global__ void " + bounds + name + "(@PARAMS) {\n" + casts + out.text + "}\n";
  launches += "  ZCC_LAUNCH(" + name + ", " + grid + ", " + block + ", @ARGUMENTS);\n";
  out.text.clear();
}

// ---- indices

std::vector<size_t> zcc::allAxes(const LoopPlan &p) {
  std::vector<size_t> axes(p.dims.size());
  for (size_t i = 0; i < axes.size(); ++i)
    axes[i] = i;
  return axes;
}

/// Whether 32 bits hold what numbers and places of elements become, also behind the last step of a grid.
static bool isSmall(const LoopPlan &p) {
  constexpr double kMost = 1 << 30;
  auto reach = [&](const LoopAccess &a) {
    double last = 0;
    for (size_t i = 0; i < p.dims.size(); ++i)
      last += std::abs(double(a.strides[i])) * double(p.dims[i]);
    return last;
  };
  return double(p.elementsOf(allAxes(p))) < kMost &&
         llvm::all_of(p.accesses, [&](const LoopAccess &a) { return reach(a) < kMost; });
}

CudaLoops::CudaLoops(const LoopPlan &plan, std::string casts) : LoopValues(plan), casts(std::move(casts)) {
  if (isSmall(plan))
    index = "int32_t"; // a division by an extent takes several times as long in 64 bits
}

std::string CudaLoops::element(const LoopAccess &a) {
  if (auto t = turned.find(&a); t != turned.end())
    return t->second;
  if (together == 1 || !isVector(a))
    return LoopValues::element(a);
  auto [v, isNew] = vectors.try_emplace(&a, "");
  if (isNew) {
    v->second = fresh("w");
    touched.push_back(&a);
  }
  return v->second + ".at[j]";
}

/// How many neighbours a thread takes at once of a grid without rows: 16 bytes of the widest.
int64_t CudaLoops::vectorLength() {
  int64_t widest = 2;
  auto axes = allAxes(p);
  for (isFlat = false;; isFlat = true) {
    for (const LoopAccess &a : p.accesses)
      if (together = 2; isVector(a))
        widest = std::max(widest, elemBytes(a.value->type.elem));
    together = 16 / widest;
    const bool any = llvm::any_of(p.accesses, [&](const LoopAccess &a) { return isVector(a); });
    const int64_t n = std::exchange(together, 1), count = isFlat ? p.elementsOf(axes) : p.dims.back();
    if (any && count % n == 0)
      return n;
    if (isFlat)
      return 1;
  }
}

/// Whether neighbours lie side by side: along the last axis, each as far from a multiple of their number as the first of all; or,
/// flat, along all axes of what the loop runs over.
bool CudaLoops::isVector(const LoopAccess &a) const {
  const bool isRow = p.form == LoopPlan::Rows;
  const size_t last = isRow ? p.reducedAxes.back() : p.innermost();
  if (a.kind == LoopAccess::Iota || a.strides.empty() || a.strides[last] != 1)
    return false;
  if (!isFlat) {
    for (size_t i = 0; i < p.dims.size(); ++i)
      if (i != last && p.dims[i] > 1 && a.strides[i] % together)
        return false;
    return true;
  }
  int64_t dense = 1;
  for (size_t i = p.dims.size(); i-- > 0;) {
    if (isRow && !p.reduced[i])
      continue;
    if (p.dims[i] > 1 && a.strides[i] != dense)
      return false;
    dense *= p.dims[i];
  }
  return true;
}

// ---- passes

void CudaLoops::declareSums(ArrayRef<const Node *> sums, int64_t n) {
  for (const Node *x : sums) {
    std::string values = identityCode(*x);
    for (int64_t i = 1; i < n; ++i)
      values += ", " + identityCode(*x);
    out.line(computeType(x->result()->type.elem) + " " + accumulator[x] + (n == 1 ? " = " + values : "[] = {" + values + "}") +
             ";");
  }
}

/// What the threads of a row, or of a column, have of a sum, added up.
static std::string reduced(const Node &sum, const std::string &function, const std::string &parts) {
  const std::string type = computeType(sum.result()->type.elem);
  return function + "(" + parts + ", [](" + type + " a, " + type + " b) { return " + type + "(" + combineCode(sum, "a", "b") +
         "); })";
}

/// Every thread of the row gets its sums. `each`: "[j]" of those of a thread's columns.
void CudaLoops::reduceSums(ArrayRef<const Node *> sums, const std::string &function, const std::string &each) {
  for (const Node *x : sums)
    out.line(accumulator[x] + each + " = " + reduced(*x, function, accumulator[x] + each) + ";");
}

// ---- the forms

/// A thread has an element, or neighbours, which it reads and writes at once.
void CudaLoops::elementwise() {
  auto axes = allAxes(p);
  const int64_t n = vectorLength();
  std::string count = product(axes) + (n == 1 ? "" : " / " + num(n));
  out.open("for (" + index + " e = firstIndex(); e < " + count + "; e += indexStep())");
  if (n == 1) {
    splitIndex("e", axes);
    bodyOf(p.passes[0], "");
  } else {
    neighbours(p.passes[0], n, "e * " + num(n), axes, "");
  }
  out.close();
  finishKernel("blocksFor(" + count + ")", num(kBlock));
}

/// The body for n elements from `first` of these axes on; `there`: how many of them there are, "": all; `lane`: as bodyOf() has
/// it.
void CudaLoops::neighbours(const LoopPass &w, int64_t n, const std::string &first, ArrayRef<size_t> axes,
                           const std::string &there, const std::string &lane) {
  const std::string length = num(n), last = axisName(axes.back());
  splitIndex(first, axes);
  const std::string base = isFlat ? first : fresh("first");
  if (!isFlat)
    out.line("const " + index + " " + base + " = " + last + ";");
  const std::string before = std::exchange(out.text, "");
  together = n;
  out.line("#pragma unroll");
  out.open("for (int j = 0; j < " + length + "; ++j)");
  if (!there.empty())
    out.line("if (j >= " + there + ") break;");
  if (isFlat)
    splitIndex("(" + first + " + j)", axes);
  else
    out.line("const " + index + " " + last + " = " + base + " + j;");
  bodyOf(w, lane);
  out.close();
  together = 1;
  const std::string body = std::exchange(out.text, before), count = there.empty() ? "" : ", " + there;
  std::vector<std::string> stores;
  for (const LoopAccess *a : touched) {
    const std::string &v = vectors[a], place = "&" + LoopValues::element(*a);
    const std::string whole = "Vector<" + storageType(a->value->type.elem) + ", " + length + "> " + v;
    const bool isStored = llvm::any_of(w.results, [&](unsigned r) { return &p.accesses[p.resultAccess[r]] == a; });
    out.line(isStored ? whole + ";" : "const " + whole + " = loadVector<" + length + ">(" + place + count + ");");
    if (isStored)
      stores.push_back("store(" + place + ", " + v + count + ");");
  }
  touched.clear();
  vectors.clear();
  out.text += body;
  for (const std::string &s : stores)
    out.line(s);
}

void CudaLoops::rows() {
  if (p.shape.hasColumns)
    return rowsAndSums();
  if (p.units)
    return sharedRows();
  std::string count = product(p.keptAxes);
  out.line("const " + index + " row = " + index + "(blockIdx.x)" + (isLong() ? ";" : " * blockDim.y + threadIdx.y;"));
  if (!isLong())
    out.line("if (row >= " + count + ") return;");
  row();
  if (isLong())
    finishKernel("unsigned(" + count + ")", rowsBlock());
  else
    finishKernel("unsigned((" + count + " + " + num(kRowsOfBlock - 1) + ") / " + num(kRowsOfBlock) + ")", rowsBlock());
}

bool CudaLoops::isLong() const { return p.rowElements >= kBlockRow; }

/// Of kernels of rows.
std::string CudaLoops::rowsBlock() const {
  return isLong() ? num(kBlock) : "dim3(" + num(kWarp) + ", " + num(kRowsOfBlock) + ")";
}

/// The passes over the row `row` by its threads, then its own results.
void CudaLoops::row() {
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
  out.line(isLong() ? "__syncthreads();" : "__syncwarp();");
  out.open("if (threadIdx.x == 0)");
  pushScope();
  storeWhere(Extent::Reduced);
  popScope();
  out.close();
  popScope();
}

/// How many neighbours of a row a thread has at once, by the row's extent alone: sums have its order in any kernel.
static int64_t neighboursOfRow(int64_t elements) {
  if (elements >= kBlockRow)
    return elements >= 8 * kBlock ? 8 : 4;
  return std::min<int64_t>(8, std::max<int64_t>(1, llvm::bit_floor(uint64_t(elements / kWarp))));
}

/// How many elements of a row its threads take at once.
int64_t CudaLoops::rowStep() const { return (isLong() ? kBlock : kWarp) * neighboursOfRow(p.rowElements); }

/// How many a thread has of it, at most.
int64_t CudaLoops::ofThread() const { return llvm::divideCeil(p.rowElements, rowStep()) * neighboursOfRow(p.rowElements); }

/// A loop over what a thread has of a row. Beside sums over rows its length is a number: what is kept of rows are registers then.
void CudaLoops::openRowLoop(const std::string &i, const std::string &e, const std::string &count) {
  const int64_t n = neighboursOfRow(p.rowElements), each = rowStep();
  const std::string first = "threadIdx.x" + (n == 1 ? "" : " * " + num(n));
  if (!p.shape.hasColumns)
    return out.open("for (" + index + " " + i + " = 0, " + e + " = " + first + "; " + e + " < " + count + "; ++" + i + ", " + e +
                    " += " + num(each) + ")");
  out.line("#pragma unroll");
  out.open("for (int " + i + " = 0; " + i + " < " + num(ofThread() / n) + "; ++" + i + ")");
  out.line("const " + index + " " + e + " = " + i + " * " + num(each) + " + " + first + ";");
  if (p.rowElements % each)
    out.line("if (" + e + " >= " + count + ") break;");
}

/// A thread has every 32nd or 256th element, or that many neighbours, of its row, the same ones in each pass.
void CudaLoops::rowPass(const LoopPass &w) {
  const int64_t n = neighboursOfRow(p.rowElements);
  for (const Value *v : w.buffers)
    out.line(computeType(v->type.elem) + " " + (bufferName[v] = fresh("b")) + "[" + num(ofThread()) + "];");
  declareSums(w.sums);
  const std::string i = fresh("j"), e = fresh("e"), count = p.shape.hasColumns ? num(p.rowElements) : product(p.reducedAxes);
  buffered = n == 1 ? i : i + " * " + num(n) + " + j";
  openRowLoop(i, e, count);
  if (n == 1) {
    splitIndex(e, p.reducedAxes);
    bodyOf(w, "");
  } else {
    isFlat = p.dims[p.reducedAxes.back()] % n != 0;
    std::string there;
    if (p.rowElements % n) {
      there = fresh("n");
      out.line("const int " + there + " = " + count + " - " + e + " < " + num(n) + " ? int(" + count + " - " + e +
               ") : " + num(n) + ";");
    }
    neighbours(w, n, e, p.reducedAxes, there);
  }
  out.close();
  reduceSums(w.sums, isLong() ? "blockReduce" : "warpReduce");
  finishPass(w, "");
}

/// A block has a unit of rows: each of its warps a slice of them, or, of long rows, one slice after the other. A thread has the
/// sums of its columns, in the order that columns() has; the next kernel adds up those of the units.
void CudaLoops::rowsAndSums() {
  std::vector<const Node *> sums;
  for (const LoopPass &w : p.passes)
    sums.insert(sums.end(), w.columns.begin(), w.columns.end());
  auto typeOf = [](const Node *x) { return computeType(x->result()->type.elem); };
  auto ofUnit = [&](const Node *x) { return accumulator[x] + "u"; };
  auto eachColumn = [&](llvm::function_ref<void()> body) {
    out.line("#pragma unroll");
    out.open("for (int i = 0; i < " + num(ofThread()) + "; ++i)");
    body();
    out.close();
  };
  out.line("const " + index + " unit = blockIdx.x;");
  if (isLong()) {
    for (const Node *x : sums)
      out.line(typeOf(x) + " " + ofUnit(x) + "[" + num(ofThread()) + "] = {};");
    out.open("for (int slice = 0; slice < " + num(kRowsOfBlock) + "; ++slice)");
  } else {
    out.line("const int slice = threadIdx.y;");
  }
  for (const Node *x : sums)
    out.line(typeOf(x) + " " + accumulator[x] + "[" + num(ofThread()) + "] = {};");
  out.open("for (int n = 0; n < " + num(kSlice) + "; ++n)");
  out.line("const " + index + " row = unit * " + num(kGridRows) + " + slice * " + num(kSlice) + " + n;");
  out.line("if (row >= " + product(p.keptAxes) + ") break;");
  row();
  out.close();
  if (isLong()) {
    eachColumn([&] {
      for (const Node *x : sums)
        out.line(ofUnit(x) + "[i] = " + combineCode(*x, ofUnit(x) + "[i]", accumulator[x] + "[i]") + ";");
    });
    out.close();
  }
  const std::string n = num(neighboursOfRow(p.rowElements));
  eachColumn([&] {
    out.line("const " + index + " column = i / " + n + " * " + num(rowStep()) + " + threadIdx.x * " + n + " + i % " + n + ";");
    for (const Node *x : sums) {
      const std::string sum = fresh("v");
      out.line("const " + typeOf(x) + " " + sum + " = " +
               (isLong() ? ofUnit(x) + "[i]" : reduced(*x, "columnReduce", accumulator[x] + "[i]")) + ";");
      out.line("if (threadIdx.y == 0 && column < " + num(p.rowElements) + ") " + part(*x) + "[unit * " + num(p.rowElements) +
               " + column] = " + sum + ";");
    }
  });
  // A processor has two such blocks then, one of which waits for memory while the other computes.
  finishKernel("unsigned(" + units() + ")", rowsBlock(), "__launch_bounds__(" + num(kBlock) + ", 2) ");
  sumsOverRows(sums);
}

/// What follows from the sums over rows: blocks of 32 columns by 8 threads.
void CudaLoops::sumsOverRows(ArrayRef<const Node *> sums) {
  const std::string columns = product(p.columnAxes()), within = "kept < " + columns;
  pushScope();
  out.line("const " + index + " kept = blockIdx.x * 32 + threadIdx.x;");
  splitIndex("kept", p.columnAxes());
  addParts(sums, {"threadIdx.y", "8", "columnReduce", within + " && ", "", 0});
  out.line("__syncthreads();"); // as for rows
  out.open("if (threadIdx.y == 0 && " + within + ")");
  storeWhere(Extent::Column);
  out.close();
  popScope();
  finishKernel("unsigned((" + columns + " + 31) / 32)", "dim3(32, 8)");
}

// ---- sums that blocks share

/// Where in scratch memory the parts of a sum are, by unit, then by row or column.
std::string CudaLoops::part(const Node &sum) {
  return "((" + computeType(sum.result()->type.elem) + " *)(scratch + " + open.mark({"int64_t", num(p.scratchOf(&sum))}) + "))";
}

/// A unit of a row or of columns: a slice, or every so many of its elements, by one thread, then its part of each sum.
void CudaLoops::sumUnit(const LoopPass &w, const Team &t) {
  const std::string e = fresh("e"), chunk = num(p.chunk), count = product(p.reducedAxes);
  out.line("const " + index + " unit = blockIdx.x % " + units() + ", lo = unit * " + chunk + ", hi = lo + " + chunk + " < " +
           count + " ? lo + " + chunk + " : " + count + ";");
  declareSums(w.sums, t.columns);
  if (t.slice) {
    out.line("const " + index + " from = lo + " + t.first + " * " + num(t.slice) + ", to = from + " + num(t.slice) +
             " < hi ? from + " + num(t.slice) + " : hi;");
    out.open("for (" + index + " " + e + " = from; " + t.within + e + " < to; ++" + e + ")");
  } else {
    out.open("for (" + index + " " + e + " = lo + " + t.first + "; " + t.within + e + " < hi; " + e + " += " + t.threads + ")");
  }
  splitIndex(e, p.reducedAxes);
  if (t.columns == 1)
    bodyOf(w, "");
  else
    neighbours(w, t.columns, "column", ArrayRef(p.keptAxes).take_back(), "", "j");
  out.close();
  for (unsigned r : w.results)
    stored[k.results[r]] = r;
  if (w.sums.empty())
    return;
  const bool isOne = t.columns == 1;
  const std::string each = isOne ? "" : "[j]";
  if (!isOne) {
    out.line("#pragma unroll");
    out.open("for (int j = 0; j < " + num(t.columns) + "; ++j)");
  }
  reduceSums(w.sums, t.reduce, each);
  out.open("if (" + t.within + t.first + " == 0)");
  for (const Node *x : w.sums)
    out.line(part(*x) + "[unit * " + product(p.keptAxes) + " + kept" + (isOne ? "" : " + j") + "] = " + accumulator[x] + each +
             ";");
  out.close();
  if (!isOne)
    out.close();
}

/// Names sums: every so many of the units' parts by one thread.
void CudaLoops::addParts(ArrayRef<const Node *> sums, const Team &t) {
  const std::string ofUnit = product(p.shape.hasColumns ? p.columnAxes() : ArrayRef(p.keptAxes));
  declareSums(sums);
  for (const Node *x : sums) {
    std::string s = accumulator[x], u = fresh("u");
    out.line("for (" + index + " " + u + " = " + t.first + "; " + t.within + u + " < " + units() + "; " + u + " += " + t.threads +
             ") " + s + " = " + combineCode(*x, s, part(*x) + "[" + u + " * " + ofUnit + " + kept]") + ";");
  }
  reduceSums(sums, t.reduce);
  for (const Node *x : sums)
    nameSum(*x, accumulator[x]);
}

/// A kernel for each pass, and one for what rows or columns have one of. `place` names the indices of the row of a block, or of
/// so many columns of a thread's.
void CudaLoops::sharedSums(const Team &t, llvm::function_ref<std::string(int64_t columns)> blocks,
                           llvm::function_ref<void(const std::string &block, int64_t columns)> place) {
  auto begin = [&](const std::string &block, size_t passes, int64_t columns) {
    pushScope();
    place(block, columns);
    for (size_t i = 0; columns == 1 && i <= passes && i < p.passes.size(); ++i) {
      for (const Node *n : p.passes[i].before)
        value(n->result(), *n, 0);
      if (i < passes)
        addParts(p.passes[i].sums, t);
    }
  };
  for (size_t i = 0; i < p.passes.size(); ++i) {
    if (p.passes[i].empty())
      continue;
    begin("(blockIdx.x / " + units() + ")", i, t.columns);
    sumUnit(p.passes[i], t);
    popScope();
    finishKernel("unsigned(" + blocks(t.columns) + " * " + units() + ")", t.block);
  }
  if (llvm::none_of(k.results, [&](const Value *r) { return p.isReduced(r->def); }))
    return;
  begin(index + "(blockIdx.x)", p.passes.size(), 1);
  out.line("__syncthreads();"); // as for rows
  out.open("if (" + t.within + t.first + " == 0)");
  storeWhere(Extent::Reduced);
  out.close();
  popScope();
  finishKernel("unsigned(" + blocks(1) + ")", t.block);
}

void CudaLoops::sharedRows() {
  const Team all = {"threadIdx.x", num(kBlock), "blockReduce", "", num(kBlock)};
  sharedSums(
      all, [&](int64_t) { return product(p.keptAxes); },
      [&](const std::string &block, int64_t) {
        out.line("const " + index + " kept = " + block + ";");
        if (!p.keptAxes.empty())
          splitIndex("kept", p.keptAxes);
      });
}

/// How many neighbouring columns a thread has of a unit: up to 16 bytes of the widest, where warps have as many columns and
/// blocks remain many. A thread waits for one row at a time: of single 16-bit floats too little would be on its way from memory.
int64_t CudaLoops::columnsOfThread() {
  const int64_t last = p.dims[p.keptAxes.back()], others = p.keptElements() / last;
  if (p.passes.size() > 1) // a later pass begins with the sums of one column
    return 1;
  auto variesByRow = [&](const LoopAccess &a) {
    return llvm::any_of(p.reducedAxes, [&](size_t i) { return a.strides[i] != 0; });
  };
  for (together = 8; together > 1; together /= 2) {
    int64_t widest = 0;
    for (const LoopAccess &a : p.accesses)
      widest = std::max(widest, isVector(a) && variesByRow(a) ? elemBytes(a.value->type.elem) : 0);
    const int64_t ofWarp = kWarp * together, blocks = llvm::divideCeil(last, ofWarp) * others * p.units;
    if (widest && widest * together <= 16 && last % together == 0 && last >= ofWarp && blocks >= kManyBlocks)
      break;
  }
  return std::exchange(together, 1);
}

/// Of 32 columns, or 32 times as many as a thread has at once, by 8 threads.
void CudaLoops::columns() {
  const LoopPass &w = p.passes[0];
  const size_t last = p.keptAxes.back();
  ArrayRef<size_t> others = ArrayRef(p.keptAxes).drop_back();
  const std::string within = "column < " + extent(last), block = "dim3(32, 8)";
  auto strips = [&](int64_t n) { return "((" + extent(last) + " + " + num(32 * n - 1) + ") / " + num(32 * n) + ")"; };
  auto blocks = [&](int64_t n) { return strips(n) + " * " + product(others); };
  auto place = [&](const std::string &number, int64_t n) {
    out.line("const " + index + " strip = " + number + " % " + strips(n) + ", other = " + number + " / " + strips(n) + ";");
    out.line("const " + index +
             " column = " + (n == 1 ? "strip * 32 + threadIdx.x;" : "(strip * 32 + threadIdx.x) * " + num(n) + ";"));
    if (n == 1)
      out.line("const " + index + " " + axisName(last) + " = column;");
    if (!others.empty())
      splitIndex("other", others);
  };
  if (p.units)
    return sharedSums({"threadIdx.y", "8", "columnReduce", within + " && ", block, kSlice, columnsOfThread()}, blocks,
                      [&](const std::string &number, int64_t n) {
                        place(number, n);
                        out.line("const " + index + " kept = other * " + extent(last) + " + column;");
                      });
  place("blockIdx.x", 1);
  declareSums(w.sums);
  out.open("if (" + within + ")");
  out.open("for (" + index + " r = threadIdx.y; r < " + product(p.reducedAxes) + "; r += 8)");
  splitIndex("r", p.reducedAxes);
  bodyOf(w, "");
  out.close();
  out.close();
  reduceSums(w.sums, "columnReduce");
  out.line("__syncthreads();"); // as for rows
  out.open("if (threadIdx.y == 0 && " + within + ")");
  pushScope();
  for (const Node *x : w.sums)
    nameSum(*x, accumulator[x]);
  storeWhere(Extent::Reduced);
  popScope();
  out.close();
  finishKernel("unsigned(" + blocks(1) + ")", block);
}
