// Plans the loops of a kernel by its form (passes/fuse/KernelShape.h): axes, threads, pieces, and the passes over a row.
#include "codegen/LoopPlan.h"
#include "codegen/ScalarCode.h"
#include "ir/Equal.h"
#include "ir/Op.h"
#include "ir/View.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/Support/MathExtras.h"
#include <algorithm>
#include <cmath>

using namespace zcc;
using llvm::ArrayRef;

// Below this many elements the threads' start costs more than they save (a parallel region takes 2-5 us).
constexpr int64_t kLarge = 1 << 14;
// A row's values are kept between passes if they take at most this many elements.
constexpr int64_t kRowBuffer = 1 << 14;
// Total reductions above this many elements are summed in chunks, whose sums are added in order. Both numbers decide bits, so
// they depend on nothing but the extent.
constexpr int64_t kTotalInOneRow = 1 << 15, kTotalChunk = 1 << 14;

// On a GPU blocks share the sums of few rows or columns. A thread then has some 16 or 32 elements.
constexpr int64_t kLongColumn = 512;
constexpr int64_t kLongRow = 1 << 15, kRowUnit = 1 << 13;

namespace {
class Planner {
  LoopPlan p;
  int threads;

public:
  Planner(const Function &kernel, int threads, int64_t parts);
  LoopPlan plan(ArrayRef<Dims> strides);

private:
  void findAccesses(ArrayRef<Dims> operandStrides);
  void mergeAxes();
  void elementwise();
  void rowPasses();
  void passesByPhase();
  void keepDear();
  void columns();
  int64_t stripOf(int64_t last, int64_t others) const;
  void blocksOfRows();
  void total();
  void lanes();
  void share(int64_t length, int64_t unit);
  bool isSteady(const Node &user, unsigned operand, ArrayRef<size_t> axes) const;
  bool areAlike(const Node &user, unsigned operand, const Node &other, unsigned otherOperand) const;
  bool areAlike(const Node &a, const Node &b) const;
  void findGuard();
  LoopPass wholePass() const;
  void planLoads(size_t pass);
  bool isDrawnInRuns(const Node &n) const;
  bool isKnown(const Value *v, size_t pass) const;
  bool isKept(const Value *v, size_t pass) const;
  bool isStored(const Value *v, size_t pass, unsigned &result) const;
  void visit(const Node &n, size_t pass, llvm::DenseSet<const Node *> &seen, llvm::DenseSet<unsigned> *used) const;
  llvm::DenseSet<const Node *> neededBy(const LoopPass &w, size_t pass, llvm::DenseSet<unsigned> *used) const;
};
} // namespace

Planner::Planner(const Function &kernel, int threads, int64_t parts) : threads(threads) {
  p.kernel = &kernel;
  p.parts = parts;
  std::vector<Node *> generated;
  for (auto &n : kernel.nodes)
    if (isGenerated(*n)) {
      generated.push_back(n.get());
      p.members.push_back(n.get());
    }
  auto shape = kernelShape(generated);
  assert(shape && "a kernel without loops");
  p.shape = *shape;
}

LoopPlan Planner::plan(ArrayRef<Dims> strides) {
  findAccesses(strides);
  mergeAxes();
  for (size_t i = 0; i < p.dims.size(); ++i)
    (p.reduced[i] ? p.reducedAxes : p.keptAxes).push_back(i);
  assert((p.parts == 1 || p.dims.size() == 1) && "parts of a kernel that is not flat");
  p.threads = threads != kGrid && elementCount(p.dims) * p.parts >= kLarge ? threads : 1;
  switch (p.shape.form) {
  case KernelShape::Pointwise:
    elementwise();
    break;
  case KernelShape::Row:
    rowPasses();
    break;
  case KernelShape::Column:
    columns();
    break;
  case KernelShape::Total:
    if (p.shape.count() <= kTotalInOneRow)
      rowPasses();
    else
      total();
    break;
  }
  if (threads != kGrid && p.parts == 1)
    findGuard();
  return std::move(p);
}

// ---- what the loops step through

void Planner::findAccesses(ArrayRef<Dims> operandStrides) {
  auto add = [&](LoopAccess a) {
    size_t i = llvm::find(p.accesses, a) - p.accesses.begin();
    if (i == p.accesses.size())
      p.accesses.push_back(std::move(a));
    return unsigned(i);
  };
  for (const Node *n : p.members)
    for (unsigned i = 0; i < n->numOperands(); ++i) {
      const Value *v = n->operand(i);
      if (!v)
        continue;
      LoopAccess a{LoopAccess::Operand, 0, v, {}};
      Dims own;
      if (v->kind == Value::Argument) {
        own = operandStrides[v->index];
        a.number = v->index;
      } else if (v->def->op->leaf == Leaf::Counter) {
        own = counterStrides(*v->def);
        a.kind = LoopAccess::Iota;
      } else {
        continue;
      }
      a.strides = *domainStrides(p.shape, *n, v->type.localDims(), own);
      p.accessOf[{n, i}] = add(a);
    }
  const auto &results = p.kernel->results;
  for (unsigned r = 0; r < results.size(); ++r)
    p.resultAccess.push_back(add({LoopAccess::Result, r, results[r], resultStrides(p.shape, *results[r]->def)}));
}

void Planner::mergeAxes() {
  p.dims = p.shape.dims;
  p.reduced = p.shape.reduced;
  if (p.dims.empty()) { // a scalar
    p.dims.push_back(1);
    p.reduced.push_back(p.shape.form == KernelShape::Total);
    for (LoopAccess &a : p.accesses)
      a.strides.push_back(0);
  }
  for (size_t i = p.dims.size() - 1; i-- > 0;) {
    bool together = p.reduced[i] == p.reduced[i + 1];
    for (const LoopAccess &a : p.accesses)
      together &= a.strides[i] == a.strides[i + 1] * p.dims[i + 1];
    if (!together)
      continue;
    p.dims[i + 1] *= p.dims[i];
    p.dims.erase(p.dims.begin() + i);
    p.reduced.erase(p.reduced.begin() + i);
    for (LoopAccess &a : p.accesses)
      a.strides.erase(a.strides.begin() + i);
  }
}

// ---- what a pass needs

/// Values of whole rows that are there when a pass begins.
bool Planner::isKnown(const Value *v, size_t pass) const {
  const bool knowsRows = p.form == LoopPlan::Rows || p.passes.size() > 1;
  if (!knowsRows || !v->def || !p.shape.extents.count(v->def) || !p.isReduced(v->def))
    return false;
  return p.shape.phases.lookup(v->def) <= int(pass);
}

bool Planner::isKept(const Value *v, size_t pass) const {
  return llvm::any_of(ArrayRef(p.passes).take_front(pass), [&](const LoopPass &q) { return llvm::is_contained(q.buffers, v); });
}

bool Planner::isStored(const Value *v, size_t pass, unsigned &result) const {
  bool found = false;
  for (const LoopPass &q : ArrayRef(p.passes).take_front(pass))
    for (unsigned r : q.results)
      if (p.kernel->results[r] == v) {
        result = r;
        found = true;
      }
  return found;
}

/// Nodes and accesses that computing `n` in a pass takes, given what is known, kept or stored.
void Planner::visit(const Node &n, size_t pass, llvm::DenseSet<const Node *> &seen, llvm::DenseSet<unsigned> *used) const {
  if (!seen.insert(&n).second)
    return;
  for (unsigned i = 0; i < n.numOperands(); ++i) {
    const Value *v = n.operand(i);
    if (isKnown(v, pass) || isConstant(v))
      continue;
    unsigned result;
    if (auto a = p.accessOf.find({&n, i}); a != p.accessOf.end()) {
      if (used)
        used->insert(a->second);
    } else if (isKept(v, pass)) {
      continue;
    } else if (isStored(v, pass, result)) {
      if (used)
        used->insert(p.resultAccess[result]);
    } else if (!v->def->op->reduction) {
      visit(*v->def, pass, seen, used);
    }
  }
}

/// What computing `w` would take if it came at the place of `pass`.
llvm::DenseSet<const Node *> Planner::neededBy(const LoopPass &w, size_t pass, llvm::DenseSet<unsigned> *used) const {
  llvm::DenseSet<const Node *> seen;
  for (const Node *n : llvm::concat<const Node *const>(w.sums, w.columns))
    visit(*n, pass, seen, used);
  for (unsigned r : w.results)
    visit(*p.kernel->results[r]->def, pass, seen, used);
  return seen;
}

/// Not where lanes turn: runs would be cut where the lanes of a row's elements would begin anew.
bool Planner::isDrawnInRuns(const Node &n) const {
  if (!n.op->random || p.isReduced(&n) || p.isTurning || !p.accessOf.count({&n, n.numOperands() - 1}))
    return false;
  const LoopAccess &counter = p.counterOf(n);
  return counter.kind == LoopAccess::Iota && counter.strides[p.innermost()] == 1;
}

void Planner::planLoads(size_t pass) {
  llvm::DenseSet<unsigned> used;
  LoopPass &w = p.passes[pass];
  auto needed = neededBy(w, pass, &used);
  llvm::copy_if(used, std::back_inserter(w.steady), [&](unsigned a) { return p.accesses[a].strides[p.innermost()] == 0; });
  llvm::sort(w.steady);
  llvm::copy_if(used, std::back_inserter(w.moving), [&](unsigned a) { return p.accesses[a].strides[p.innermost()] != 0; });
  llvm::sort(w.moving);
  llvm::copy_if(p.members, std::back_inserter(w.angles), [&](const Node *n) { return needed.count(n) && takesAngle(*n); });
  llvm::copy_if(p.members, std::back_inserter(w.draws), [&](const Node *n) { return needed.count(n) && isDrawnInRuns(*n); });
}

// ---- the forms

/// Every sum, and every result that has an element for each of the domain.
LoopPass Planner::wholePass() const {
  LoopPass w;
  llvm::copy_if(p.members, std::back_inserter(w.sums), [](const Node *n) { return n->op->reduction; });
  for (unsigned r = 0; r < p.kernel->results.size(); ++r)
    if (!p.isReduced(p.kernel->results[r]->def))
      w.results.push_back(r);
  return w;
}

void Planner::elementwise() {
  constexpr int64_t kTile = 32, kChunk = 4096;
  p.passes.push_back(wholePass());
  size_t inner = p.dims.size() - 1;
  // An operand that is contiguous along another axis is read in tiles that stay in the cache.
  for (const LoopAccess &a : p.accesses)
    if (a.strides[inner] > 1)
      for (size_t i = 0; i < inner; ++i)
        if (a.strides[i] == 1 && p.dims[i] > 4) {
          p.form = LoopPlan::Tiled;
          p.tiledAxis = i;
          p.tile = kTile;
        }
  planLoads(0);
  // Angles are looked at before they are taken: pieces stay in the cache in between.
  if (inner == 0 && (p.threads > 1 || !p.passes[0].angles.empty()))
    p.chunk = kChunk;
}

/// Partial sums side by side, so that a row's sum vectorises; a function of the extent alone.
static int64_t lanesOf(int64_t extent) {
  for (int64_t l : {64, 32, 16, 8})
    if (extent >= l)
      return l;
  return 1;
}

void Planner::lanes() {
  p.lanes = lanesOf(p.elementsOf(p.rowAxes()));
  p.isTurning = p.dims.back() % p.lanes != 0 && p.rowAxes().size() > 1;
}

/// What each pass over a row computes: its reductions, and the results that can be stored then.
void Planner::rowPasses() {
  p.form = LoopPlan::Rows;
  lanes();
  p.rowElements = p.reducedElements();
  passesByPhase();
  keepDear();
  if (p.shape.hasColumns) {
    p.rowBlock = threads == kGrid ? kGridRows : kColumnBlock;
    p.units = llvm::divideCeil(p.keptElements(), p.rowBlock);
    p.stripWidth = threads == kGrid ? 0 : stripOf(p.rowElements, 1);
  }
  for (size_t i = 0; i < p.passes.size(); ++i)
    planLoads(i);
  if (threads == kGrid && !p.shape.hasColumns && p.keptElements() < kManyBlocks && p.rowElements > kLongRow)
    share(p.rowElements, kRowUnit);
}

void Planner::passesByPhase() {
  int last = 0;
  for (const Node *n : p.members)
    last = std::max(last, p.shape.phases.lookup(n));
  p.passes.resize(last + 1);
  for (const Node *n : p.members) {
    int phase = p.shape.phases.lookup(n);
    if (n->op->reduction && p.isReduced(n))
      p.passes[phase - 1].sums.push_back(n);
    else if (n->op->reduction)
      p.passes[phase].columns.push_back(n);
    else if (p.isReduced(n))
      p.passes[phase].before.push_back(n);
  }
  for (unsigned r = 0; r < p.kernel->results.size(); ++r)
    if (const Node *n = p.kernel->results[r]->def; p.isFull(n))
      p.passes[p.shape.phases.lookup(n)].results.push_back(r);
}

/// Sums of so many elements are cut into units.
void Planner::share(int64_t length, int64_t unit) {
  p.chunk = unit;
  p.units = llvm::divideCeil(length, unit);
}

/// What is dear and needed again is kept for the later passes.
void Planner::keepDear() {
  if (p.rowElements > kRowBuffer)
    return;
  for (size_t i = 0; i < p.passes.size(); ++i) {
    auto now = neededBy(p.passes[i], i, nullptr);
    std::vector<const Value *> buffers;
    for (size_t later = i + 1; later < p.passes.size(); ++later)
      for (const Node *m : neededBy(p.passes[later], i, nullptr)) {
        bool isWanted = now.count(m) && (m->op->dear || m->op->random) && p.isFull(m);
        if (isWanted && !llvm::is_contained(buffers, m->result()) && !llvm::is_contained(p.kernel->results, m->result()))
          buffers.push_back(m->result());
      }
    llvm::sort(buffers, [](const Value *a, const Value *b) { return a->name < b->name; });
    p.passes[i].buffers = std::move(buffers);
  }
}

void Planner::columns() {
  p.form = LoopPlan::Columns;
  if (p.shape.passesOverStrips())
    passesByPhase();
  else
    p.passes.push_back(wholePass());
  for (size_t i = 0; i < p.passes.size(); ++i)
    planLoads(i);
  const int64_t last = p.dims[p.keptAxes.back()], others = p.keptElements() / last;
  if (threads == kGrid) { // whether the columns are one axis or several
    if (llvm::divideCeil(p.keptElements(), kWarp) < kManyBlocks && p.reducedElements() > kLongColumn)
      share(p.reducedElements(), kGridRows);
    return;
  }
  p.stripWidth = stripOf(last, others);
  const bool hasSum = llvm::any_of(p.members, [](const Node *n) { return n->op->reduction == Reduction::Sum; });
  if (hasSum && p.reducedElements() >= 2 * kColumnBlock) // whether these are one axis or, where they lie apart, several
    p.rowBlock = kColumnBlock;
  blocksOfRows();
}

/// Enough strips for all threads, of whole cache lines, and no thread with more of them than another if that can be had: of 96
/// columns on 2 threads 2 of 48, not 3 of 32. A column's sum is the same in any. `others`: times that there are `last` columns.
int64_t Planner::stripOf(int64_t last, int64_t others) const {
  constexpr int64_t kLine = 16, kWidest = 32;
  const int64_t lines = (last + kLine - 1) / kLine, strips = std::max<int64_t>(1, (2 * threads + others - 1) / others);
  auto most = [&](int64_t width) { return ((lines + width - 1) / width * others + threads - 1) / threads * width; }; // a thread's
  int64_t width = std::clamp((last / strips + kLine - 1) / kLine, int64_t(1), kWidest);
  for (int64_t w = std::min(lines, kWidest); w > 0; --w)
    if (most(w) < most(width))
      width = w;
  return std::min(last, width * kLine);
}

/// Pieces of rows come from memory at half the rate of whole rows. So where there are many, threads share blocks of rows, and the
/// sums of a block wait in scratch memory for those of the blocks before it.
void Planner::blocksOfRows() {
  constexpr int64_t kMany = 8 * kLarge;
  const int64_t last = p.dims.back(), rows = p.reducedElements(), units = llvm::divideCeil(rows, kColumnBlock);
  const bool isWhole = p.passes.size() == 1 && p.keptElements() == last && p.stripWidth < last && last <= kWidestColumns &&
                       p.passes[0].draws.empty();
  if (p.rowBlock && isWhole && rows * last >= kMany && units >= kBlocksOfThread * p.threads)
    p.units = units;
}

void Planner::total() {
  p.form = LoopPlan::Total;
  lanes();
  p.passes.push_back(wholePass());
  planLoads(0);
  share(p.reducedElements(), kTotalChunk);
}

// ---- what need not be computed

/// Whether an operand is the same along the axes, and is known before any sum.
bool Planner::isSteady(const Node &user, unsigned operand, ArrayRef<size_t> axes) const {
  const Value *v = user.operand(operand);
  if (auto a = p.accessOf.find({&user, operand}); a != p.accessOf.end())
    return llvm::all_of(axes, [&](size_t axis) { return p.accesses[a->second].strides[axis] == 0; });
  if (!v || isConstant(v))
    return true;
  if (v->def->op->reduction || v->def->op->random)
    return false;
  for (unsigned i = 0; i < v->def->numOperands(); ++i)
    if (!isSteady(*v->def, i, axes))
      return false;
  return true;
}

/// The select of which a value is a cast or another shape, if what it has instead is zero.
static const Node *selectOfZero(const Value *v) {
  while (v->def && (v->def->op->reshapes || v->def->op->converts()))
    v = v->def->operand(0);
  if (!v->def || !v->def->is(ops::select) || !isConstant(v->def->operand(2)))
    return nullptr;
  const double zero = literalValue(*v->def->operand(2));
  return zero == 0 && !std::signbit(zero) ? v->def : nullptr;
}

/// Whether two operands are the same in each element of the domain: what memory has lies the same way, and what is computed is
/// computed alike from such.
bool Planner::areAlike(const Node &user, unsigned operand, const Node &other, unsigned otherOperand) const {
  const auto read = p.accessOf.find({&user, operand}), otherRead = p.accessOf.find({&other, otherOperand});
  if (read != p.accessOf.end() || otherRead != p.accessOf.end())
    return read != p.accessOf.end() && otherRead != p.accessOf.end() && p.accesses[read->second] == p.accesses[otherRead->second];
  const Value *v = user.operand(operand), *w = other.operand(otherOperand);
  return v == w || (v && w && v->def && w->def && areAlike(*v->def, *w->def));
}

bool Planner::areAlike(const Node &a, const Node &b) const {
  if (a.op != b.op || a.numOperands() != b.numOperands() || a.result()->type != b.result()->type || !areEqual(a.attrs, b.attrs))
    return false;
  for (unsigned i = 0; i < a.numOperands(); ++i)
    if (!areAlike(a, i, b, i))
      return false;
  return true;
}

void Planner::findGuard() {
  constexpr int64_t kLeast = 64; // elements, for which it pays to look
  const bool isRows = p.form == LoopPlan::Rows, isStrips = p.form == LoopPlan::Columns && p.passes.size() == 1;
  const bool isPlain = p.form == LoopPlan::Elementwise && !p.chunk;
  const size_t inner[] = {p.innermost()};
  const ArrayRef<size_t> axes = isRows ? ArrayRef(p.reducedAxes) : ArrayRef(inner);
  if (!(isRows || isStrips || isPlain) || p.elementsOf(axes) < kLeast)
    return;
  std::vector<const Value *> all;
  for (const Value *r : p.kernel->results)
    if (p.shape.extents.lookup(r->def) != (isRows ? Extent::Column : Extent::Reduced))
      all.push_back(r);
  for (const LoopPass &w : p.passes) {
    if (!w.draws.empty())
      return;
    for (const Node *n : isRows ? w.columns : w.sums) {
      if (n->op->reduction != Reduction::Sum)
        return;
      all.push_back(n->operand(0));
    }
  }
  auto first = llvm::find_if(all, selectOfZero);
  const Node *guard = first == all.end() ? nullptr : selectOfZero(*first);
  auto isGuarded = [&](const Value *v) {
    if (const Node *n = isFloat(v->type.elem) ? selectOfZero(v) : nullptr)
      return areAlike(*n, 0, *guard, 0);
    const Value *condition = guard->operand(0); // is zero itself, too
    return v->def && condition->def && !p.accessOf.count({guard, 0}) && areAlike(*v->def, *condition->def);
  };
  if (guard && llvm::all_of(all, isGuarded) && isSteady(*guard, 0, axes))
    p.guard = guard;
}

ArrayRef<size_t> LoopPlan::rowAxes() const {
  size_t n = 1;
  while (n < reducedAxes.size() && reducedAxes[reducedAxes.size() - n - 1] + n + 1 == dims.size())
    ++n;
  return ArrayRef(reducedAxes).take_back(n);
}

int64_t LoopPlan::elementsOf(ArrayRef<size_t> axes) const {
  int64_t n = 1;
  for (size_t a : axes)
    n *= dims[a];
  return n;
}

int64_t LoopPlan::scratchOf(const Node *sum) const {
  int64_t bytes = 0;
  const int64_t sums = units * (shape.hasColumns ? reducedElements() : keptElements());
  for (const LoopPass &w : passes)
    for (const Node *x : shape.hasColumns ? w.columns : w.sums) {
      if (x == sum)
        return bytes;
      // 16-bit floats are summed in f32, all of a kernel's in f64.
      int64_t each =
          form == Total ? int64_t(sizeof(double)) : std::max<int64_t>(elemBytes(x->result()->type.elem), sizeof(float));
      bytes += llvm::alignTo(sums * each, sizeof(double));
    }
  return bytes;
}

LoopPlan zcc::planLoops(const Function &kernel, ArrayRef<Dims> strides, int threads, int64_t parts) {
  return Planner(kernel, threads, parts).plan(strides);
}

// ---- for the reader

static std::string names(ArrayRef<const Node *> nodes) {
  std::string s;
  for (const Node *n : nodes)
    s += " %" + n->result()->name;
  return s;
}

static std::string describe(const LoopPass &w) {
  std::string s = "pass:";
  auto part = [&](const char *what, const std::string &text) { s += text.empty() ? "" : std::string(" ") + what + text + ";"; };
  std::string buffers, stores;
  for (const Value *v : w.buffers)
    buffers += " %" + v->name;
  for (unsigned r : w.results)
    stores += " r" + std::to_string(r);
  part("before", names(w.before));
  part("sum", names(w.sums));
  part("sum over rows", names(w.columns));
  part("keep", buffers);
  part("angles", names(w.angles));
  part("draw", names(w.draws));
  part("store", stores);
  return s + "\n";
}

std::string zcc::describe(const LoopPlan &plan) {
  static const char *const kForms[] = {"elementwise", "tiled", "rows", "columns", "total"};
  std::string s = std::string(kForms[plan.form]) + ":";
  for (size_t i = 0; i < plan.dims.size(); ++i)
    s += " i" + std::to_string(i) + " < " + std::to_string(plan.dims[i]) + (plan.reduced[i] ? " reduced" : "");
  auto number = [&](const char *what, int64_t v) { s += std::string(", ") + what + " " + std::to_string(v); };
  number("threads", plan.threads);
  if (!plan.reducedAxes.empty() && plan.form != LoopPlan::Columns)
    number(plan.isTurning ? "turning lanes" : "lanes", plan.lanes);
  if (plan.chunk)
    number("chunk", plan.chunk);
  if (plan.tile)
    number("tile", plan.tile);
  if (plan.stripWidth)
    number("strip", plan.stripWidth);
  if (plan.rowBlock)
    number("block", plan.rowBlock);
  if (plan.units)
    number("units", plan.units);
  s += "\n";
  for (const LoopAccess &a : plan.accesses) {
    s += (a.kind == LoopAccess::Iota ? std::string("iota")
                                     : (a.kind == LoopAccess::Operand ? "a" : "r") + std::to_string(a.number)) +
         ":";
    for (int64_t x : a.strides)
      s += " " + std::to_string(x);
    s += "\n";
  }
  if (plan.guard)
    s += "where %" + plan.guard->operand(0)->name + " holds:\n";
  for (const LoopPass &w : plan.passes)
    s += ::describe(w);
  return s;
}
