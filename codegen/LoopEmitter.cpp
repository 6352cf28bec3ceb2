// Plans and prints the loops of a kernel: axes, threads, passes over a row, and the innermost loops.
#include "codegen/LoopEmitter.h"
#include "codegen/ScalarCode.h"
#include "ir/Op.h"
#include "ir/View.h"
#include "llvm/ADT/Twine.h"
#include <algorithm>

using namespace zcc;
using llvm::ArrayRef;
using llvm::Twine;

// Below this many elements the threads' start costs more than they save (a parallel region takes 2-5 us).
constexpr int64_t kLarge = 1 << 14;
// A row's values are kept between passes if they take at most this many elements.
constexpr int64_t kRowBuffer = 1 << 14;
// Total reductions above this many elements are summed in chunks, whose sums are added in order. Both numbers decide bits, so
// they depend on nothing but the extent.
constexpr int64_t kTotalInOneRow = 1 << 15, kTotalChunk = 1 << 14;
// Columns are summed in blocks of this many rows, for accuracy.
constexpr int64_t kColumnBlock = 64;

void CodeBlock::line(const Twine &t) {
  text.append(depth * 2, ' ');
  text += t.str();
  text += '\n';
}

// ---- what the loops step through

LoopEmitter::LoopEmitter(const Function &kernel, ArrayRef<Dims> strides, int t) : k(kernel), threads(t) {
  std::vector<Node *> generated;
  for (auto &n : k.nodes)
    if (isGenerated(*n)) {
      generated.push_back(n.get());
      members.push_back(n.get());
    }
  auto shape = kernelShape(generated);
  assert(shape && "a kernel without loops");
  s = *shape;
  findAccesses(strides);
  mergeAxes();
}

void LoopEmitter::findAccesses(ArrayRef<Dims> operandStrides) {
  auto add = [&](Access a) {
    for (unsigned i = 0; i < accesses.size(); ++i)
      if (accesses[i].value == a.value && accesses[i].strides == a.strides && accesses[i].base == a.base)
        return i;
    accesses.push_back(std::move(a));
    return unsigned(accesses.size() - 1);
  };
  for (const Node *n : members)
    for (unsigned i = 0; i < n->numOperands(); ++i) {
      const Value *v = n->operand(i);
      if (!v)
        continue;
      Access a{v, {}, ""};
      Dims own;
      if (v->kind == Value::Argument) {
        own = operandStrides[v->index];
        a.base = "a" + num(v->index);
      } else if (v->def->op == &ops::iota) {
        own.assign(v->type.ndim(), 0);
        own[v->def->attrs.i("axis")] = 1;
      } else {
        continue;
      }
      a.strides = *domainStrides(s, *n, v->type.localDims(), own);
      accessOf[{n, i}] = add(a);
    }
  for (unsigned r = 0; r < k.results.size(); ++r)
    resultAccess.push_back(add({k.results[r], resultStrides(s, *k.results[r]->def), "r" + num(r)}));
}

void LoopEmitter::mergeAxes() {
  dims = s.dims;
  reduced = s.reduced;
  if (dims.empty()) { // a scalar
    dims.push_back(1);
    reduced.push_back(s.form == KernelShape::Total);
    for (Access &a : accesses)
      a.strides.push_back(0);
  }
  for (size_t i = dims.size() - 1; i-- > 0;) {
    bool together = reduced[i] == reduced[i + 1];
    for (const Access &a : accesses)
      together &= a.strides[i] == a.strides[i + 1] * dims[i + 1];
    if (!together)
      continue;
    dims[i + 1] *= dims[i];
    dims.erase(dims.begin() + i);
    reduced.erase(reduced.begin() + i);
    for (Access &a : accesses)
      a.strides.erase(a.strides.begin() + i);
  }
}

/// Numbers of inner loops below this decide how the compiler unrolls and what it does with the rest.
constexpr int64_t kLongLoop = 512, kShortLoop = 16;

std::string LoopEmitter::extent(size_t axis) {
  bool isInner = axis + 1 == dims.size(), isOnly = dims.size() == 1;
  bool isOpen = isOnly ? dims[axis] > 1 : dims.back() >= (isInner ? kLongLoop : kShortLoop);
  return isOpen ? open.mark({"int64_t", num(dims[axis])}) : num(dims[axis]);
}

std::string LoopEmitter::stride(const Access &a, size_t axis) {
  bool isOpen = axis + 1 < dims.size() && dims.back() >= kShortLoop;
  return isOpen ? open.mark({"int64_t", num(a.strides[axis])}) : num(a.strides[axis]);
}

std::vector<size_t> LoopEmitter::axes(bool isReduced) const {
  std::vector<size_t> out;
  for (size_t i = 0; i < dims.size(); ++i)
    if (reduced[i] == isReduced)
      out.push_back(i);
  return out;
}

bool LoopEmitter::isLarge() const { return threads > 1 && elementCount(dims) >= kLarge; }

void LoopEmitter::parallel(size_t collapse) {
  if (isLarge())
    out.text += "#pragma omp parallel for" + (collapse > 1 ? " collapse(" + num(collapse) + ")" : std::string()) +
                " schedule(static) num_threads(" + num(threads) + ")\n";
}

void LoopEmitter::openLoop(size_t a) {
  out.open("for (int64_t " + axisName(a) + " = 0; " + axisName(a) + " < " + extent(a) + "; ++" + axisName(a) + ")");
}

// ---- innermost loops

/// Partial sums side by side, so that a row's sum vectorises; a function of the extent alone.
int64_t LoopEmitter::lanes(size_t axis) const {
  for (int64_t l : {64, 32, 16, 8})
    if (dims[axis] >= l)
      return l;
  return 1;
}

void LoopEmitter::declareSums(const Work &w, int64_t n) {
  for (const Sum &x : w.sums) {
    std::string array = "alignas(64) " + computeType(x.node->result()->type.elem) + " " + x.acc + "[" + num(n) + "]";
    if (x.node->op == &ops::reduce_sum) {
      out.line(array + " = {};");
      continue;
    }
    out.line(array + ";");
    out.line("for (int l = 0; l < " + num(n) + "; ++l) " + x.acc + "[l] = " + identityCode(*x.node) + ";");
  }
}

void LoopEmitter::combineLanes(const Work &w, int64_t n) {
  if (n == 1)
    return;
  for (const Sum &x : w.sums)
    if (x.node->op == &ops::reduce_sum && x.node->result()->type.elem != Elem::Bool)
      out.line("z_sum_lanes<" + num(n) + ">(" + x.acc + ");");
    else
      out.line("for (int w = " + num(n / 2) + "; w; w >>= 1) for (int l = 0; l < w; ++l) " + x.acc +
               "[l] = " + combineCode(*x.node, x.acc + "[l]", x.acc + "[l + w]") + ";");
}

void LoopEmitter::bodyOf(const Work &w, const std::string &lane) {
  pushScope();
  std::vector<std::string> stores, sums;
  for (unsigned r : w.results)
    stores.push_back(value(k.results[r], *k.results[r]->def, 0));
  for (const Sum &x : w.sums)
    sums.push_back(value(x.node->operand(0), *x.node, 0));
  for (size_t i = 0; i < w.sums.size(); ++i) {
    std::string a = w.sums[i].acc + "[" + lane + "]";
    out.line(a + " = " + combineCode(*w.sums[i].node, a, sums[i]) + ";");
  }
  for (const Value *v : w.fills)
    out.line(bufferName[v] + "[" + rowIndex() + "] = " + value(v, *v->def, 0) + ";");
  for (size_t i = 0; i < stores.size(); ++i)
    store(w.results[i], stores[i]);
  popScope();
}

void LoopEmitter::innerLoop(const Work &w, size_t axis, int64_t n, const std::string &lo, const std::string &hi) {
  // Loads that do not depend on the innermost index come first: stores in the loop might alias them.
  llvm::DenseSet<unsigned> used;
  neededBy(w, &used);
  std::vector<unsigned> sorted(used.begin(), used.end());
  llvm::sort(sorted);
  for (unsigned a : sorted)
    if (accesses[a].strides[axis] == 0)
      load(a);
  auto head = [&] {
    out.text += "#pragma GCC ivdep\n";
    out.open("for (int64_t " + axisName(axis) + " = " + lo + "; " + axisName(axis) + " < " + hi + "; ++" + axisName(axis) + ")");
  };
  guardAngles(w, head, [&] { innerLoops(w, axis, n, lo, hi); });
}

/// The nodes whose angles the work's loop takes.
std::vector<const Node *> LoopEmitter::angles(const Work &w) const {
  std::vector<const Node *> out;
  auto needed = neededBy(w, nullptr);
  llvm::copy_if(members, std::back_inserter(out), [&](const Node *n) { return needed.count(n) && takesAngle(*n); });
  return out;
}

/// Loops that take angles are there twice: what is right for large ones, too, takes three times as long, so a loop before them
/// looks whether there are any.
void LoopEmitter::guardAngles(const Work &w, llvm::function_ref<void()> openLoop, llvm::function_ref<void()> loops) {
  auto nodes = angles(w);
  if (nodes.empty()) {
    loops();
    return;
  }
  std::string far = fresh("f");
  out.line("int " + far + " = 0;");
  pushScope();
  openLoop();
  isNear = true;
  for (const Node *n : nodes)
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

void LoopEmitter::innerLoops(const Work &w, size_t axis, int64_t n, const std::string &lo, const std::string &hi) {
  std::string i = axisName(axis);
  if (w.sums.empty() || n == 1) {
    out.text += w.sums.empty() ? "#pragma GCC ivdep\n" : "";
    out.open("for (int64_t " + i + " = " + lo + "; " + i + " < " + hi + "; ++" + i + ")");
    bodyOf(w, "0");
    out.close();
    return;
  }
  std::string j = fresh("j"), l = fresh("l");
  out.line("int64_t " + j + " = " + lo + ";");
  out.open("for (; " + j + " + " + num(n) + " <= " + hi + "; " + j + " += " + num(n) + ")");
  out.text += "#pragma GCC ivdep\n";
  out.open("for (int " + l + " = 0; " + l + " < " + num(n) + "; ++" + l + ")");
  out.line("const int64_t " + i + " = " + j + " + " + l + ";");
  bodyOf(w, l);
  out.close();
  out.close();
  out.text += "#pragma GCC ivdep\n";
  out.open("for (int " + l + " = 0; " + l + " < " + hi + " - " + j + "; ++" + l + ")");
  out.line("const int64_t " + i + " = " + j + " + " + l + ";");
  bodyOf(w, l);
  out.close();
}

// ---- the forms

std::string LoopEmitter::body() {
  pushScope();
  switch (s.form) {
  case KernelShape::Pointwise:
    pointwise();
    break;
  case KernelShape::Row:
    row();
    break;
  case KernelShape::Column:
    column();
    break;
  case KernelShape::Total:
    if (s.count() <= kTotalInOneRow)
      row();
    else
      total();
    break;
  }
  popScope();
  return out.text;
}

void LoopEmitter::pointwise() {
  Work w;
  for (unsigned r = 0; r < k.results.size(); ++r)
    w.results.push_back(r);
  size_t inner = dims.size() - 1;
  // An operand that is contiguous along another axis is read in tiles that stay in the cache.
  constexpr int64_t kTile = 32;
  size_t other = inner;
  for (const Access &a : accesses)
    if (a.strides[inner] > 1)
      for (size_t i = 0; i < inner; ++i)
        if (a.strides[i] == 1 && dims[i] > 4)
          other = i;
  if (other != inner) {
    parallel(dims.size());
    for (size_t i = 0; i < dims.size(); ++i) {
      if (i != inner && i != other) {
        openLoop(i);
        continue;
      }
      std::string b = "b" + num(i);
      out.open("for (int64_t " + b + " = 0; " + b + " < " + num(dims[i]) + "; " + b + " += " + num(kTile) + ")");
    }
    auto end = [&](size_t i) {
      std::string b = "b" + num(i), e = b + " + " + num(kTile);
      return dims[i] % kTile ? "(" + e + " < " + num(dims[i]) + " ? " + e + " : " + num(dims[i]) + ")" : e;
    };
    std::string o = axisName(other);
    out.open("for (int64_t " + o + " = b" + num(other) + "; " + o + " < " + end(other) + "; ++" + o + ")");
    innerLoop(w, inner, 1, "b" + num(inner), end(inner));
    for (size_t i = 0; i <= dims.size(); ++i)
      out.close();
    return;
  }
  if (inner == 0) {
    if (!isLarge() && angles(w).empty()) {
      innerLoop(w, 0, 1, "0", extent(0));
      return;
    }
    constexpr int64_t kChunk = 4096;
    parallel(1);
    out.open("for (int64_t c = 0; c < " + extent(0) + "; c += " + num(kChunk) + ")");
    out.line("const int64_t e = c + " + num(kChunk) + " < " + extent(0) + " ? c + " + num(kChunk) + " : " + extent(0) + ";");
    innerLoop(w, 0, 1, "c", "e");
    out.close();
    return;
  }
  parallel(inner);
  for (size_t i = 0; i < inner; ++i)
    openLoop(i);
  innerLoop(w, inner, 1, "0", extent(inner));
  for (size_t i = 0; i < inner; ++i)
    out.close();
}

/// What each pass over a row computes: its reductions, and the results that can be stored then.
std::vector<LoopEmitter::Work> LoopEmitter::rowPasses() {
  int last = 0;
  for (const Node *n : members)
    last = std::max(last, s.phases.lookup(n));
  std::vector<Work> passes(last + 1);
  for (const Node *n : members)
    if (n->op->reduction)
      passes[s.phases.lookup(n) - 1].sums.push_back({n, fresh("s")});
  for (unsigned r = 0; r < k.results.size(); ++r)
    if (s.extents.lookup(k.results[r]->def) == Extent::Full)
      passes[s.phases.lookup(k.results[r]->def)].results.push_back(r);
  return passes;
}

void LoopEmitter::row() {
  std::vector<size_t> kept = axes(false), inner = axes(true);
  std::vector<Work> passes = rowPasses();
  if (!kept.empty())
    parallel(kept.size());
  for (size_t a : kept)
    openLoop(a);
  pushScope();
  size_t axis = inner.back();
  int64_t n = lanes(axis), rowCount = 1;
  for (size_t a : inner)
    rowCount *= dims[a];
  for (size_t p = 0; p < passes.size(); ++p) {
    Work &w = passes[p];
    // Values of the row as a whole, as soon as they can be had.
    for (const Node *m : members)
      if (s.extents.lookup(m) == Extent::Reduced && !m->op->reduction && s.phases.lookup(m) <= int(p))
        value(m->result(), *m, 0);
    if (w.empty())
      continue;
    // What is dear and needed again is kept for the later passes.
    auto now = neededBy(w, nullptr);
    if (rowCount <= kRowBuffer)
      for (size_t q = p + 1; q < passes.size(); ++q)
        for (const Node *m : neededBy(passes[q], nullptr))
          if (now.count(m) && isDear(*m->op) && !llvm::is_contained(w.fills, m->result()) &&
              s.extents.lookup(m) == Extent::Full && !llvm::is_contained(k.results, m->result()))
            w.fills.push_back(m->result());
    llvm::sort(w.fills, [](const Value *a, const Value *b) { return a->name < b->name; });
    for (const Value *v : w.fills)
      out.line("alignas(64) " + computeType(v->type.elem) + " " + (bufferName[v] = fresh("b")) + "[" + num(rowCount) + "];");
    declareSums(w, n);
    out.open("");
    pushScope();
    for (size_t i = 0; i + 1 < inner.size(); ++i)
      openLoop(inner[i]);
    innerLoop(w, axis, n, "0", extent(axis));
    for (size_t i = 0; i < inner.size(); ++i)
      out.close();
    popScope();
    combineLanes(w, n);
    for (const Sum &x : w.sums) {
      std::string v = fresh("v");
      const Value *r = x.node->result();
      out.line("const " + computeType(r->type.elem) + " " + v + " = " + roundCode(r->type.elem, x.acc + "[0]") + ";");
      scopes.back()[r] = v;
    }
    for (const Value *v : w.fills)
      buffers[v] = bufferName[v];
    for (unsigned r : w.results)
      stored[k.results[r]] = r;
  }
  for (const Node *m : members)
    if (s.extents.lookup(m) == Extent::Reduced)
      value(m->result(), *m, 0);
  for (unsigned r = 0; r < k.results.size(); ++r)
    if (s.extents.lookup(k.results[r]->def) == Extent::Reduced)
      store(r, value(k.results[r], *k.results[r]->def, 0));
  popScope();
  for (size_t i = 0; i < kept.size(); ++i)
    out.close();
}

void LoopEmitter::column() {
  std::vector<size_t> kept = axes(false), rows = axes(true);
  size_t axis = kept.back();
  int64_t others = 1, k0 = dims[axis];
  for (size_t a : kept)
    if (a != axis)
      others *= dims[a];
  // Enough strips for all threads, each at least a cache line wide.
  constexpr int64_t kWidest = 512, kNarrowest = 16;
  int64_t strips = std::max<int64_t>(1, (2 * threads + others - 1) / others);
  int64_t width = std::clamp((k0 / strips + 15) / 16 * 16, kNarrowest, kWidest);
  width = std::min(width, k0);

  Work w;
  for (const Node *m : members)
    if (m->op->reduction)
      w.sums.push_back({m, fresh("s")});
  for (unsigned r = 0; r < k.results.size(); ++r)
    if (s.extents.lookup(k.results[r]->def) == Extent::Full)
      w.results.push_back(r);

  parallel(kept.size());
  for (size_t a : kept)
    if (a != axis)
      openLoop(a);
  out.open("for (int64_t c = 0; c < " + num(k0) + "; c += " + num(width) + ")");
  std::string n = k0 % width ? "n" : num(width);
  if (k0 % width)
    out.line("const int64_t n = c + " + num(width) + " < " + num(k0) + " ? " + num(width) + " : " + num(k0) + " - c;");
  declareSums(w, width);
  bool blocked =
      dims[rows.back()] >= 2 * kColumnBlock && llvm::any_of(w.sums, [](const Sum &x) { return x.node->op == &ops::reduce_sum; });
  for (size_t i = 0; i + 1 < rows.size(); ++i)
    openLoop(rows[i]);
  std::string r = axisName(rows.back());
  Work inside = w;
  if (blocked) {
    out.open("for (int64_t b = 0; b < " + extent(rows.back()) + "; b += " + num(kColumnBlock) + ")");
    out.line("const int64_t e = b + " + num(kColumnBlock) + " < " + extent(rows.back()) + " ? b + " + num(kColumnBlock) + " : " +
             extent(rows.back()) + ";");
    for (Sum &x : inside.sums)
      x.acc = fresh("p");
    declareSums(inside, width);
    out.open("for (int64_t " + r + " = b; " + r + " < e; ++" + r + ")");
  } else {
    openLoop(rows.back());
  }
  auto strip = [&](const Work &x) {
    std::string l = fresh("l");
    out.text += "#pragma GCC ivdep\n";
    out.open("for (int64_t " + l + " = 0; " + l + " < " + n + "; ++" + l + ")");
    out.line("const int64_t " + axisName(axis) + " = c + " + l + ";");
    return l;
  };
  {
    pushScope();
    llvm::DenseSet<unsigned> used;
    neededBy(inside, &used);
    std::vector<unsigned> sorted(used.begin(), used.end());
    llvm::sort(sorted);
    for (unsigned a : sorted)
      if (accesses[a].strides[axis] == 0)
        load(a);
    guardAngles(
        inside, [&] { strip(inside); },
        [&] {
          std::string l = strip(inside);
          bodyOf(inside, l);
          out.close();
        });
    popScope();
  }
  out.close();
  if (blocked) {
    for (size_t i = 0; i < w.sums.size(); ++i)
      out.line("for (int64_t l = 0; l < " + n + "; ++l) " + w.sums[i].acc +
               "[l] = " + combineCode(*w.sums[i].node, w.sums[i].acc + "[l]", inside.sums[i].acc + "[l]") + ";");
    out.close();
  }
  for (size_t i = 0; i + 1 < rows.size(); ++i)
    out.close();
  // What follows the reductions, along the strip.
  std::string l = strip(w);
  pushScope();
  for (const Sum &x : w.sums)
    scopes.back()[x.node->result()] = roundCode(x.node->result()->type.elem, x.acc + "[" + l + "]");
  for (unsigned q = 0; q < k.results.size(); ++q)
    if (s.extents.lookup(k.results[q]->def) == Extent::Reduced)
      store(q, value(k.results[q], *k.results[q]->def, 0));
  popScope();
  out.close();
  for (size_t i = 0; i < kept.size(); ++i)
    out.close();
}

/// Units of a large total reduction: chunks of the only axis, or the first axis' slices.
static int64_t totalUnits(ArrayRef<int64_t> dims) {
  return dims.size() == 1 ? (dims[0] + kTotalChunk - 1) / kTotalChunk : dims[0];
}

void LoopEmitter::total() {
  Work w = rowPasses()[0];
  int64_t units = totalUnits(dims), n = lanes(dims.size() - 1);
  for (size_t i = 0; i < w.sums.size(); ++i)
    out.line("double *const part" + num(i) + " = (double *)scratch + " + num(i * units) + ";");
  parallel(1);
  out.open("for (int64_t u = 0; u < " + num(units) + "; ++u)");
  declareSums(w, n);
  pushScope();
  if (dims.size() == 1) {
    out.line("const int64_t lo = u * " + num(kTotalChunk) + ";");
    out.line("const int64_t hi = lo + " + num(kTotalChunk) + " < " + num(dims[0]) + " ? lo + " + num(kTotalChunk) + " : " +
             num(dims[0]) + ";");
    innerLoop(w, 0, n, "lo", "hi");
  } else {
    out.line("const int64_t i0 = u;");
    for (size_t a = 1; a + 1 < dims.size(); ++a)
      openLoop(a);
    innerLoop(w, dims.size() - 1, n, "0", num(dims.back()));
    for (size_t a = 1; a + 1 < dims.size(); ++a)
      out.close();
  }
  popScope();
  combineLanes(w, n);
  for (size_t i = 0; i < w.sums.size(); ++i)
    out.line("part" + num(i) + "[u] = double(" + w.sums[i].acc + "[0]);");
  out.close();
  for (size_t i = 0; i < w.sums.size(); ++i) {
    std::string p = "part" + num(i), t = fresh("t"), v = fresh("v");
    const Node &node = *w.sums[i].node;
    out.line("double " + t + " = " + p + "[0];");
    out.line("for (int64_t u = 1; u < " + num(units) + "; ++u) " + t + " = " + combineCode(node, t, p + "[u]") + ";");
    out.line("const " + computeType(node.result()->type.elem) + " " + v + " = " +
             roundCode(node.result()->type.elem, "(" + computeType(node.result()->type.elem) + ")" + t) + ";");
    scopes.back()[node.result()] = v;
  }
  for (unsigned r = 0; r < k.results.size(); ++r)
    if (s.extents.lookup(k.results[r]->def) == Extent::Reduced)
      store(r, value(k.results[r], *k.results[r]->def, 0));
}

int64_t LoopEmitter::scratchBytes() const {
  if (s.form != KernelShape::Total || s.count() <= kTotalInOneRow)
    return 0;
  int64_t sums = llvm::count_if(members, [](const Node *n) { return n->op->reduction; });
  return sums * totalUnits(dims) * int64_t(sizeof(double));
}
