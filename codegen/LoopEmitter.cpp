// Prints the loops of a kernel: parallel loops, pieces, passes over a row, and the innermost loops.
#include "codegen/LoopEmitter.h"
#include "codegen/ScalarCode.h"
#include "ir/Op.h"
#include <map>
#include <utility>

using namespace zcc;
using llvm::ArrayRef;

std::string LoopEmitter::body() {
  printForm();
  return isOfParts() ? out.text : pointers + out.text;
}

/// The loop over the parts, if there are several; another one may follow at once, and then pointToPart().
void LoopEmitter::openParts() {
  if (isOfParts())
    out.open("for (int64_t part = 0; part < int64_t(offsets.size()) / " + num(k.args.size() + k.results.size()) + "; ++part)");
}

void LoopEmitter::pointToPart() {
  if (!isOfParts())
    return;
  out.line("const int64_t *const at = offsets.begin() + part * " + num(k.args.size() + k.results.size()) + ";");
  out.text += pointers;
}

// ---- loops and their numbers

void LoopEmitter::parallel(size_t collapse) {
  if (p.threads > 1)
    out.text += "#pragma omp parallel for" + (collapse > 1 ? " collapse(" + num(collapse) + ")" : std::string()) +
                " schedule(static) num_threads(" + num(p.threads) + ")\n";
}

void LoopEmitter::openLoop(size_t a) {
  out.open("for (int64_t " + axisName(a) + " = 0; " + axisName(a) + " < " + extent(a) + "; ++" + axisName(a) + ")");
}

void LoopEmitter::openLoops(ArrayRef<size_t> axes) {
  for (size_t a : axes)
    openLoop(a);
}

void LoopEmitter::closeLoops(size_t count) {
  for (size_t i = 0; i < count; ++i)
    out.close();
}

// ---- sums

void LoopEmitter::declareSums(ArrayRef<const Node *> sums, int64_t n) {
  for (const Node *x : sums) {
    std::string name = accumulator[x];
    std::string array = "alignas(64) " + computeType(x->result()->type.elem) + " " + name + "[" + num(n) + "]";
    if (x->op->reduction == Reduction::Sum) {
      out.line(array + " = {};");
      continue;
    }
    out.line(array + ";");
    out.line("for (int l = 0; l < " + num(n) + "; ++l) " + name + "[l] = " + identityCode(*x) + ";");
  }
}

void LoopEmitter::combineLanes(const LoopPass &w) {
  if (p.lanes == 1)
    return;
  for (const Node *x : w.sums) {
    std::string name = accumulator[x];
    if (x->op->reduction == Reduction::Sum && x->result()->type.elem != Elem::Bool)
      out.line("z_sum_lanes<" + num(p.lanes) + ">(" + name + ");");
    else
      out.line("for (int w = " + num(p.lanes / 2) + "; w; w >>= 1) for (int l = 0; l < w; ++l) " + name +
               "[l] = " + combineCode(*x, name + "[l]", name + "[l + w]") + ";");
  }
}

// ---- innermost loops

void LoopEmitter::loadSteady(const LoopPass &w) {
  for (unsigned a : w.steady)
    load(a);
}

/// Loops that take angles are there twice: what is right for large ones, too, takes three times as long, so a loop before them
/// looks whether there are any.
void LoopEmitter::guardAngles(const LoopPass &w, llvm::function_ref<void()> openLoop, llvm::function_ref<void()> loops) {
  if (w.angles.empty()) {
    loops();
    return;
  }
  std::string far = fresh("f");
  out.line("int " + far + " = 0;");
  pushScope();
  openLoop();
  isNear = true;
  for (const Node *n : w.angles)
    out.line(far + " |= z_is_far(" + value(n->operand(0), *n, 0) + ");");
  isNear = false;
  out.close();
  popScope();
  out.open("if (" + far + ")");
  loops();
  out.close();
  out.open("else");
  isNear = true;
  loops();
  isNear = false;
  out.close();
}

/// Draws of `count` elements, at most kZDraws, from the `first` of the innermost axis on.
void LoopEmitter::fillDraws(const LoopPass &w, const std::string &first, const std::string &count) {
  for (const Node *n : w.draws) {
    std::vector<std::string> operands;
    for (unsigned i = 0; i + 1 < n->numOperands(); ++i)
      operands.push_back(value(n->operand(i), *n, i));
    operands.push_back(offset(p.counterOf(*n)));
    const std::vector<std::string> a = callArguments(*n, operands);
    const std::string run = fresh("d"), buffer = fresh("b");
    out.line("alignas(64) float " + buffer + "[kZDrawBuffer];");
    out.line("const float *" + run + ";");
    out.open("");
    out.line("const int64_t " + axisName(p.innermost()) + " = " + first + ";");
    out.line(run + " = z_uniform_run(" + buffer + ", " + a[0] + ", " + count + ", " + a[1] + ", " + a[2] + ");");
    out.close();
    drawn[n] = run + "[" + axisName(p.innermost()) + " - " + first + "]";
  }
}

/// The innermost loop, in runs if random numbers are drawn in it.
void LoopEmitter::innerLoop(const LoopPass &w, int64_t lanes, const std::string &lo, const std::string &hi) {
  loadSteady(w);
  if (takesBlocks(w))
    return rowBlocks(w);
  if (w.draws.empty())
    return plainInnerLoop(w, lanes, lo, hi);
  const std::string first = fresh("f"), end = fresh("e");
  out.open("for (int64_t " + first + " = " + lo + ", " + end + "; " + first + " < " + hi + "; " + first + " = " + end + ")");
  out.line(end + " = " + first + " + kZDraws < " + hi + " ? " + first + " + kZDraws : " + hi + ";");
  pushScope();
  fillDraws(w, first, end + " - " + first);
  plainInnerLoop(w, lanes, first, end);
  drawn.clear();
  popScope();
  out.close();
}

void LoopEmitter::plainInnerLoop(const LoopPass &w, int64_t lanes, const std::string &lo, const std::string &hi) {
  std::string i = axisName(p.innermost());
  auto openLoop = [&] { out.open("for (int64_t " + i + " = " + lo + "; " + i + " < " + hi + "; ++" + i + ")"); };
  auto openFree = [&] {
    out.text += kNoAlias;
    openLoop();
  };
  guardAngles(w, openFree, [&] {
    if (!w.sums.empty() && lanes > 1) {
      lanesLoops(w, lanes, lo, hi);
      return;
    }
    w.sums.empty() ? openFree() : openLoop();
    bodyOf(w, "0");
    out.close();
  });
}

/// The innermost loop in steps of as many elements as there are sums side by side, and the rest. If lanes turn, the first
/// elements go to the last lanes.
void LoopEmitter::lanesLoops(const LoopPass &w, int64_t lanes, const std::string &lo, const std::string &hi) {
  std::string i = axisName(p.innermost()), j = fresh("j"), l = fresh("l");
  auto step = [&](const std::string &count, const std::string &lane) {
    out.text += kNoAlias;
    out.open("for (int " + l + " = 0; " + l + " < " + count + "; ++" + l + ")");
    out.line("const int64_t " + i + " = " + j + " + " + l + ";");
    bodyOf(w, lane);
    out.close();
  };
  out.line("int64_t " + j + " = " + lo + ";");
  if (p.isTurning) {
    const std::string n = fresh("n"), left = num(lanes) + " - " + turn;
    out.line("const int64_t " + n + " = " + left + " < " + hi + " - " + j + " ? " + left + " : " + hi + " - " + j + ";");
    step(n, turn + " + " + l);
    out.line(j + " += " + n + ";");
  }
  out.open("for (; " + j + " + " + num(lanes) + " <= " + hi + "; " + j + " += " + num(lanes) + ")");
  step(num(lanes), l);
  out.close();
  step(hi + " - " + j, l);
}

void LoopEmitter::startLanes() {
  if (p.isTurning)
    out.line("int64_t " + (turn = fresh("o")) + " = 0;");
}

/// So many elements of the innermost axis are done.
void LoopEmitter::turnLanes(const std::string &count) {
  if (p.isTurning)
    out.line(turn + " = (" + turn + " + " + count + ") % " + num(p.lanes) + ";");
}

// ---- the forms

void LoopEmitter::elementwise() {
  const LoopPass &w = p.passes[0];
  size_t inner = p.innermost();
  if (p.chunk) {
    parallel(isOfParts() ? 2 : 1);
    openParts();
    out.open("for (int64_t c = 0; c < " + extent(0) + "; c += " + num(p.chunk) + ")");
    out.line("const int64_t e = c + " + num(p.chunk) + " < " + extent(0) + " ? c + " + num(p.chunk) + " : " + extent(0) + ";");
    pointToPart();
    innerLoop(w, 1, "c", "e");
    closeLoops(isOfParts() ? 2 : 1);
    return;
  }
  if (inner > 0)
    parallel(inner);
  openParts();
  pointToPart();
  openLoops(ArrayRef(p.keptAxes).drop_back());
  guarded([&] { innerLoop(w, 1, "0", extent(inner)); },
          [&] {
            openLoop(inner);
            storeZeros(w);
            out.close();
          });
  closeLoops(isOfParts() ? 1 : inner);
}

void LoopEmitter::rows() {
  if (p.shape.hasColumns)
    return rowsInBlocks();
  if (!p.keptAxes.empty() || isOfParts())
    parallel(isOfParts() ? 1 : p.keptAxes.size());
  openParts();
  pointToPart();
  openLoops(p.keptAxes);
  row();
  closeLoops(p.keptAxes.size() + isOfParts());
}

void LoopEmitter::row() {
  auto passes = [&] {
    for (const LoopPass &w : p.passes) {
      for (const Node *n : w.before)
        value(n->result(), *n, 0);
      if (!w.empty())
        rowPass(w);
    }
    storeWhere(Extent::Reduced);
  };
  auto zeros = [&] {
    for (const LoopPass &w : p.passes)
      if (!w.results.empty()) {
        openLoops(p.reducedAxes);
        storeZeros(w);
        closeLoops(p.reducedAxes.size());
      }
    for (unsigned r = 0; r < k.results.size(); ++r)
      if (p.isReduced(k.results[r]->def))
        store(r, "0");
  };
  pushScope();
  guarded(passes, zeros);
  popScope();
}

/// Threads share blocks of rows; what follows from the sums over rows comes after all of them.
void LoopEmitter::rowsInBlocks() {
  std::vector<const Node *> sums;
  for (const LoopPass &w : p.passes)
    sums.insert(sums.end(), w.columns.begin(), w.columns.end());
  blocksApart(sums, p.keptAxes, [&] { row(); });
  parallel(1);
  strips(sums, Extent::Column, [&](const std::string &width) { addBlocks(sums, width); });
}

void LoopEmitter::rowPass(const LoopPass &w) {
  for (const Value *v : w.buffers)
    out.line("alignas(64) " + computeType(v->type.elem) + " " + (bufferName[v] = fresh("b")) + "[" + num(p.rowElements) + "];");
  declareSums(w.sums, p.lanes);
  out.open("");
  pushScope();
  openLoops(ArrayRef(p.reducedAxes).drop_back(p.rowAxes().size()));
  startLanes();
  openLoops(p.rowAxes().drop_back());
  innerLoop(w, p.lanes, "0", extent(p.innermost()));
  turnLanes(extent(p.innermost()));
  closeLoops(p.reducedAxes.size());
  popScope();
  combineLanes(w);
  finishPass(w, "0");
}

/// A loop over a strip of columns; returns its index.
std::string LoopEmitter::openStrip(const std::string &first, const std::string &width) {
  std::string l = fresh("l");
  out.text += kNoAlias;
  out.open("for (int64_t " + l + " = 0; " + l + " < " + width + "; ++" + l + ")");
  const std::string column = first + " + " + l;
  splitIndex(p.columnAxes().size() > 1 ? "(" + column + ")" : column, p.columnAxes());
  for (auto &[v, array] : ofColumns)
    scopes.back()[v] = array + "[" + l + "]";
  return place = l;
}

/// A loop over strips of columns, and along each what follows from its sums, which `add` prints.
void LoopEmitter::strips(ArrayRef<const Node *> sums, Extent extent, llvm::function_ref<void(const std::string &width)> add) {
  const int64_t last = p.elementsOf(p.columnAxes());
  out.open("for (int64_t c = 0; c < " + num(last) + "; c += " + num(p.stripWidth) + ")");
  bool isWhole = last % p.stripWidth == 0;
  std::string width = isWhole ? num(p.stripWidth) : "n", end = "c + " + num(p.stripWidth);
  if (!isWhole)
    out.line("const int64_t n = " + end + " < " + num(last) + " ? " + num(p.stripWidth) + " : " + num(last) + " - c;");
  declareSums(sums, p.stripWidth);
  add(width);
  pushScope();
  std::string l = openStrip("c", width);
  for (const Node *x : sums)
    scopes.back()[x->result()] = roundCode(x->result()->type.elem, accumulator[x] + "[" + l + "]");
  storeWhere(extent);
  popScope();
  closeLoops(2);
}

void LoopEmitter::columns() {
  const LoopPass &w = p.passes[0];
  if (p.units)
    blocksApart(w.sums, p.reducedAxes, [&] { columnRow(w, "0", num(p.elementsOf(p.columnAxes()))); });
  parallel(p.keptAxes.size());
  openLoops(ArrayRef(p.keptAxes).drop_back());
  if (p.passes.size() > 1)
    strips({}, Extent::Reduced, [&](const std::string &width) { columnPasses(width); });
  else
    strips(w.sums, Extent::Reduced, [&](const std::string &width) { p.units ? addBlocks(w.sums, width) : columnSums(w, width); });
  closeLoops(p.keptAxes.size() - 1);
}

/// The passes over a strip, which caches keep in between.
void LoopEmitter::columnPasses(const std::string &width) {
  const LoopPass *last = nullptr;
  for (const LoopPass &w : p.passes) {
    nameColumns(last, w, width);
    if (!w.sums.empty())
      declareSums(w.sums, p.stripWidth);
    if (!w.empty())
      columnSums(w, width);
    for (unsigned r : w.results)
      stored[k.results[r]] = r;
    last = &w;
  }
}

/// Sums of the last pass, and what passes over the elements read of what follows from them, become arrays.
void LoopEmitter::nameColumns(const LoopPass *last, const LoopPass &next, const std::string &width) {
  const ArrayRef<const Node *> sums = last ? ArrayRef(last->sums) : ArrayRef<const Node *>();
  std::vector<const Node *> read;
  llvm::copy_if(next.before, std::back_inserter(read), [&](const Node *n) {
    return llvm::any_of(n->result()->uses, [&](auto &u) { return p.isFull(u.node) || u.node->op->reduction; });
  });
  if (sums.empty() && read.empty())
    return;
  Names named;
  for (const Node *n : read) {
    named[n->result()] = fresh("q");
    out.line("alignas(64) " + computeType(n->result()->type.elem) + " " + named[n->result()] + "[" + num(p.stripWidth) + "];");
  }
  pushScope();
  const std::string l = openStrip("c", width);
  for (const Node *x : sums) {
    const std::string at = accumulator[x] + "[" + l + "]";
    out.line(at + " = " + roundCode(x->result()->type.elem, at) + ";");
    scopes.back()[x->result()] = at;
    ofColumns[x->result()] = accumulator[x];
  }
  for (const Node *n : read)
    out.line(named[n->result()] + "[" + l + "] = " + value(n->result(), *n, 0) + ";");
  out.close();
  popScope();
  for (auto &[v, name] : named)
    ofColumns[v] = name;
}

// ---- elements narrower than floats, in narrow strips

/// Whether each strip of columns is as wide as z_widen() wants.
bool LoopEmitter::isNarrow() const {
  return p.form == LoopPlan::Columns && !p.units && p.stripWidth == kStrip && p.elementsOf(p.columnAxes()) % kStrip == 0;
}

std::string LoopEmitter::element(const LoopAccess &a) {
  auto array = arrays.find(unsigned(&a - p.accesses.data()));
  if (array == arrays.end())
    return LoopValues::element(a);
  return array->second + "[" + place + "]";
}

/// Prints something that is read or written at the strip's first column.
void LoopEmitter::atColumn(const std::string &first, llvm::function_ref<void()> print) {
  out.open("");
  splitIndex(first, p.columnAxes());
  print();
  out.close();
}

/// Of numbers that hold what is read or written, if that is narrower than a float and lies in memory; "": it does not.
std::string LoopEmitter::wideTypeOf(unsigned access) const {
  const LoopAccess &a = p.accesses[access];
  return a.kind == LoopAccess::Iota ? "" : wideType(a.value->type.elem);
}

void LoopEmitter::widen(const LoopPass &w, const std::string &first) {
  std::map<unsigned, std::string> wide;
  auto add = [&](unsigned access) {
    const std::string name = wide[access] = fresh("w");
    out.line("alignas(64) " + wideTypeOf(access) + " " + name + "[kZStrip];");
    return name;
  };
  for (unsigned a : w.moving) {
    if (wideTypeOf(a).empty() || p.accesses[a].strides[p.innermost()] != 1)
      continue;
    const std::string name = add(a);
    atColumn(first, [&] { out.line("z_widen(" + name + ", &" + LoopValues::element(p.accesses[a]) + ");"); });
  }
  for (unsigned r : w.results)
    if (!wideTypeOf(p.resultAccess[r]).empty())
      add(p.resultAccess[r]);
  arrays = std::move(wide);
}

void LoopEmitter::narrow(const LoopPass &w, const std::string &first) {
  const auto wide = std::exchange(arrays, {});
  for (unsigned r : w.results)
    if (auto array = wide.find(p.resultAccess[r]); array != wide.end())
      atColumn(first, [&] { out.line("z_narrow(&" + element(p.accesses[array->first]) + ", " + array->second + ");"); });
}

// ---- columns

/// A row's part of the sums of the strip.
void LoopEmitter::columnRow(const LoopPass &w, const std::string &first, const std::string &width) {
  auto loop = [&] {
    bodyOf(w, openStrip(first, width));
    out.close();
  };
  auto strip = [&] {
    fillDraws(w, first, width);
    if (isNarrow())
      widen(w, first);
    guardAngles(w, [&] { openStrip(first, width); }, loop);
    narrow(w, first);
    drawn.clear();
  };
  pushScope();
  loadSteady(w);
  guarded(strip, [&] {
    openStrip(first, width);
    storeZeros(w);
    out.close();
  });
  popScope();
}

/// Loops over blocks of rows, and over the rows of each. `begin` comes before a block's rows.
void LoopEmitter::blocks(ArrayRef<size_t> axes, llvm::function_ref<void()> begin, llvm::function_ref<void()> row) {
  const std::string rows = product(axes), block = num(p.rowBlock), r = fresh("row"); // "r2" is a result
  out.open("for (int64_t b = 0; b < " + rows + "; b += " + block + ")");
  out.line("const int64_t e = b + " + block + " < " + rows + " ? b + " + block + " : " + rows + ";");
  begin();
  if (axes.size() == 1) {
    out.open("for (int64_t " + r + " = b; " + r + " < e; ++" + r + ")");
    splitIndex(r, axes);
    row();
    out.close();
    return;
  }
  // In pieces along the last axis: dividing would take longer than narrow rows.
  const std::string f = fresh("f"), from = fresh("f"), to = fresh("e"), last = extent(axes.back()), i = axisName(axes.back());
  out.open("for (int64_t " + f + " = b; " + f + " < e;)");
  out.line("const int64_t " + r + " = " + f + " / " + last + ", " + from + " = " + f + " % " + last + ", " + to + " = e - " + f +
           " < " + last + " - " + from + " ? " + from + " + e - " + f + " : " + last + ";");
  out.line(f + " += " + to + " - " + from + ";");
  splitIndex(r, axes.drop_back());
  out.open("for (int64_t " + i + " = " + from + "; " + i + " < " + to + "; ++" + i + ")");
  row();
  closeLoops(2);
}

/// Adds `more`, by column l, to the strip's sums.
void LoopEmitter::join(const Node &sum, const std::string &width, const std::string &more) {
  const std::string at = accumulator[&sum] + "[l]";
  out.line("for (int64_t l = 0; l < " + width + "; ++l) " + at + " = " + combineCode(sum, at, more) + ";");
}

/// The loops over the rows. Blocks of rows have sums of their own, which are then added to the others.
void LoopEmitter::columnSums(const LoopPass &w, const std::string &width) {
  if (!p.rowBlock || w.sums.empty()) {
    openLoops(p.reducedAxes);
    columnRow(w, "c", width);
    closeLoops(p.reducedAxes.size());
    return;
  }
  const auto sums = accumulator;
  auto begin = [&] {
    for (const Node *x : w.sums)
      accumulator[x] = fresh("p");
    declareSums(w.sums, p.stripWidth);
  };
  blocks(p.reducedAxes, begin, [&] { columnRow(w, "c", width); });
  const auto ofBlock = std::exchange(accumulator, sums);
  for (const Node *x : w.sums)
    join(*x, width, ofBlock.lookup(x) + "[l]");
  out.close();
}

/// Where in scratch memory the sums of a block of rows are.
std::string LoopEmitter::apart(const Node &sum, const std::string &block) const {
  return "((" + computeType(sum.result()->type.elem) + " *)(scratch + " + num(p.scratchOf(&sum)) + ") + " + block + " * " +
         num(p.elementsOf(p.columnAxes())) + ")";
}

/// Threads share blocks of rows, whose sums are apart.
void LoopEmitter::blocksApart(ArrayRef<const Node *> sums, ArrayRef<size_t> axes, llvm::function_ref<void()> row) {
  const auto named = accumulator;
  auto begin = [&] {
    for (const Node *x : sums) {
      const std::string name = accumulator[x] = fresh("p"), type = computeType(x->result()->type.elem);
      out.line(type + " *const " + name + " = " + apart(*x, "(b / " + num(p.rowBlock) + ")") + ";");
      out.line("for (int64_t l = 0; l < " + num(p.elementsOf(p.columnAxes())) + "; ++l) " + name + "[l] = " + identityCode(*x) +
               ";");
    }
  };
  parallel(1);
  blocks(axes, begin, row);
  out.close();
  accumulator = named;
}

void LoopEmitter::addBlocks(ArrayRef<const Node *> sums, const std::string &width) {
  out.open("for (int64_t b = 0; b < " + num(p.units) + "; ++b)");
  for (const Node *x : sums)
    join(*x, width, apart(*x, "b") + "[c + l]");
  out.close();
}

/// The elements [lo, hi) of several axes, in pieces of the innermost one.
void LoopEmitter::piecesOfRows(const LoopPass &w) {
  const std::string last = extent(p.innermost());
  startLanes();
  out.open("for (int64_t f = lo, e; f < hi; f = e)");
  const std::string row = fresh("row");
  out.line("const int64_t " + row + " = f / " + last + ";");
  splitIndex(row, ArrayRef(p.reducedAxes).drop_back());
  out.line("const int64_t first = f % " + last + ", end = hi - f < " + last + " - first ? first + hi - f : " + last + ";");
  out.line("e = f + end - first;");
  innerLoop(w, p.lanes, "first", "end");
  turnLanes("end - first");
  out.close();
}

void LoopEmitter::total() {
  const LoopPass &w = p.passes[0];
  auto typeOf = [&](size_t i) { return typeOfTotal(*w.sums[i]); };
  auto sumsOfUnits = [&](size_t i) { return "((" + typeOf(i) + " *)scratch + " + num(i * p.units) + ")"; };
  parallel(isOfParts() ? 2 : 1);
  openParts();
  out.open("for (int64_t u = 0; u < " + num(p.units) + "; ++u)");
  pointToPart();
  declareSums(w.sums, p.lanes);
  pushScope();
  const std::string chunk = num(p.chunk), count = num(p.reducedElements());
  out.line("const int64_t lo = u * " + chunk + ";");
  out.line("const int64_t hi = lo + " + chunk + " < " + count + " ? lo + " + chunk + " : " + count + ";");
  if (p.dims.size() == 1)
    innerLoop(w, p.lanes, "lo", "hi");
  else
    piecesOfRows(w);
  popScope();
  combineLanes(w);
  for (size_t i = 0; i < w.sums.size(); ++i)
    out.line(sumsOfUnits(i) + "[u] = " + typeOf(i) + "(" + accumulator[w.sums[i]] + "[0]);");
  closeLoops(1 + isOfParts());
  openParts();
  pointToPart();
  addUnits(w, sumsOfUnits);
  closeLoops(isOfParts());
}
