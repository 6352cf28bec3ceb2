// Finds the common domain of a group: the refinement of its members' shapes, and which axes are reduced.
#include "passes/fuse/KernelShape.h"
#include "ir/Op.h"
#include "ir/View.h"
#include "llvm/ADT/SmallPtrSet.h"
#include <algorithm>

using namespace zcc;
using llvm::ArrayRef;

bool zcc::isGenerated(const Node &n) { return n.op->isElementwise() || n.op->reduction || n.op->reshapes; }

Dims zcc::iterationDims(const Node &n) { return (n.op->reduction ? n.operand(0) : n.result())->type.localDims(); }

/// The reduced axes of iterationDims(): a shard has one.
static std::vector<int64_t> axesOf(const Node &reduction) {
  return reduction.operand(0)->type.isPartitioned() ? std::vector<int64_t>{0} : reduction.attrs.ints("axes");
}

int64_t KernelShape::keptCount() const {
  int64_t n = 1;
  for (size_t i = 0; i < dims.size(); ++i)
    if (!reduced[i])
      n *= dims[i];
  return n;
}

bool KernelShape::passesOverStrips() const {
  return form == Column && llvm::any_of(extents, [&](auto &e) { return e.second == Extent::Full && phases.lookup(e.first) > 0; });
}

/// Products of the trailing dims: where axes begin, counted in elements from the right.
static void addCuts(ArrayRef<int64_t> dims, std::vector<int64_t> &cuts) {
  int64_t p = 1;
  for (size_t i = dims.size(); i-- > 0;) {
    p *= dims[i];
    if (std::find(cuts.begin(), cuts.end(), p) == cuts.end())
      cuts.push_back(p);
  }
}

/// The coarsest dims that every given shape is a merging of; nullopt if their axes cross.
static std::optional<Dims> refine(std::vector<int64_t> cuts) {
  std::sort(cuts.begin(), cuts.end());
  Dims dims;
  int64_t below = 1;
  for (int64_t c : cuts) {
    if (c == below)
      continue;
    if (c % below)
      return std::nullopt;
    dims.insert(dims.begin(), c / below);
    below = c;
  }
  return dims;
}

/// Adds the axes of what is computed once a row, so that its operands may have strides over each of them. Only where the
/// reduced axes come last: elsewhere such values are vectors over a single kept axis.
static void addRowCuts(const KernelShape &s, ArrayRef<Node *> nodes, std::vector<int64_t> &cuts) {
  size_t firstReduced = s.dims.size();
  while (firstReduced > 0 && s.reduced[firstReduced - 1])
    --firstReduced;
  for (size_t i = 0; i < firstReduced; ++i)
    if (s.reduced[i])
      return;
  int64_t row = s.count() / s.keptCount();
  for (Node *n : nodes) {
    std::vector<int64_t> own;
    if (!n->op->reduction && n->result()->type.localCount() == s.keptCount() && row > 1)
      addCuts(iterationDims(*n), own);
    for (int64_t c : own)
      if (!llvm::is_contained(cuts, c * row))
        cuts.push_back(c * row);
  }
}

/// Marks which axes of the domain a reduction over `axes` of `dims` reduces.
static std::vector<bool> reducedAxes(ArrayRef<int64_t> domain, ArrayRef<int64_t> dims, ArrayRef<int64_t> axes) {
  std::vector<bool> out(domain.size(), false);
  size_t a = domain.size();
  for (size_t i = dims.size(); i-- > 0;) {
    bool isReduced = llvm::is_contained(axes, int64_t(i));
    for (int64_t left = dims[i]; left > 1; left /= domain[a])
      out[--a] = isReduced;
  }
  return out;
}

/// Whether values of an extent have elements along an axis.
static bool hasAxis(const KernelShape &s, Extent e, size_t axis) {
  return e == Extent::Full || s.reduced[axis] == (e == Extent::Column);
}

static Dims dimsOf(const KernelShape &s, Extent e) {
  Dims d;
  for (size_t i = 0; i < s.dims.size(); ++i)
    if (hasAxis(s, e, i))
      d.push_back(s.dims[i]);
  return d;
}

/// Strides over the domain of what has them over dimsOf(e).
static Dims overDomain(const KernelShape &s, Extent e, ArrayRef<int64_t> strides) {
  Dims out;
  for (size_t i = 0, k = 0; i < s.dims.size(); ++i)
    out.push_back(hasAxis(s, e, i) ? strides[k++] : 0);
  return out;
}

/// Strides over `dims` of a tensor with `from` dims and `strides`, broadcast as numpy does.
static std::optional<Dims> broadcastStrides(ArrayRef<int64_t> from, ArrayRef<int64_t> strides, ArrayRef<int64_t> dims) {
  if (from.size() > dims.size())
    return std::nullopt;
  Dims out(dims.size(), 0);
  size_t shift = dims.size() - from.size();
  for (size_t i = 0; i < from.size(); ++i) {
    if (from[i] == dims[shift + i])
      out[shift + i] = from[i] == 1 ? 0 : strides[i];
    else if (from[i] != 1)
      return std::nullopt;
  }
  return out;
}

std::optional<Dims> zcc::domainStrides(const KernelShape &s, const Node &user, ArrayRef<int64_t> dims,
                                       ArrayRef<int64_t> strides) {
  Dims own = iterationDims(user);
  // A member reshape reads its operand in the operand's own dims.
  if (user.op->reshapes)
    own = user.operand(0)->type.dims;
  auto over = broadcastStrides(dims, strides, own);
  if (!over)
    return std::nullopt;
  auto e = s.extents.find(&user);
  if (user.op->reduction || e == s.extents.end() || e->second == Extent::Full)
    return reshapeStrides(own, *over, s.dims);
  auto fewer = reshapeStrides(own, *over, dimsOf(s, e->second));
  if (!fewer)
    return std::nullopt;
  return overDomain(s, e->second, *fewer);
}

Dims zcc::resultStrides(const KernelShape &s, const Node &member) {
  const Extent e = s.extents.lookup(&member);
  return overDomain(s, e, denseStrides(dimsOf(s, e)));
}

namespace {
/// Finds the loops that nodes share.
class ShapeFinder {
public:
  explicit ShapeFinder(ArrayRef<Node *> n) : nodes(n) {}
  std::optional<KernelShape> run();

private:
  ArrayRef<Node *> nodes;
  KernelShape s;

  bool findDomain();
  bool areRowsAndColumns(const std::vector<bool> &rows, const std::vector<bool> &columns) const;
  bool findReducedAxes();
  bool findForm();
};
} // namespace

static std::vector<bool> reducedAxes(const KernelShape &s, const Node &reduction) {
  return reducedAxes(s.dims, iterationDims(reduction), axesOf(reduction));
}

/// Whether a row is the last axes, a column the others, and columns are summed.
bool ShapeFinder::areRowsAndColumns(const std::vector<bool> &rows, const std::vector<bool> &columns) const {
  for (size_t i = 0; i < rows.size(); ++i)
    if (rows[i] == columns[i] || (i && rows[i - 1] && !rows[i]))
      return false;
  return llvm::all_of(
      nodes, [&](Node *n) { return !n->op->reduction || n->op->reduction == Reduction::Sum || reducedAxes(s, *n) == rows; });
}

/// Marks the axes that the reductions reduce: all the same ones, or, of rows, some the last ones and some all others.
bool ShapeFinder::findReducedAxes() {
  s.reduced.assign(s.dims.size(), false);
  s.hasColumns = false;
  std::vector<std::vector<bool>> all;
  for (Node *n : nodes) {
    if (!n->op->reduction)
      continue;
    if (elementCount(iterationDims(*n)) != s.count())
      return false;
    auto r = reducedAxes(s, *n);
    if (!llvm::is_contained(all, r))
      all.push_back(std::move(r));
  }
  s.form = all.empty() ? KernelShape::Pointwise : KernelShape::Total; // findForm() looks closer
  if (all.empty())
    return true;
  if (all.size() == 2 && all[1].back())
    std::swap(all[0], all[1]);
  s.reduced = all[0];
  s.hasColumns = all.size() == 2;
  return all.size() == 1 || (s.hasColumns && areRowsAndColumns(all[0], all[1]));
}

bool ShapeFinder::findDomain() {
  int64_t count = 1;
  for (Node *n : nodes)
    count = std::max(count, elementCount(iterationDims(*n)));
  std::vector<int64_t> cuts;
  for (Node *n : nodes)
    if (elementCount(iterationDims(*n)) == count)
      addCuts(iterationDims(*n), cuts);
  for (bool withRows : {false, true}) {
    if (withRows && s.form == KernelShape::Pointwise)
      break;
    if (withRows)
      addRowCuts(s, nodes, cuts);
    auto dims = refine(cuts);
    if (!dims)
      return false;
    s.dims = *dims;
    if (!findReducedAxes())
      return false;
  }
  return true;
}

static bool sumsColumns(const KernelShape &s, const Node &n) {
  return s.hasColumns && n.op->reduction && reducedAxes(s, n) != s.reduced;
}

/// Finds the extent and the phase of a node behind all members that it reads.
static bool place(KernelShape &s, const Node &n) {
  int64_t c = n.result()->type.localCount(), count = s.count(), kept = s.keptCount(), row = s.hasColumns ? s.rowCount() : 0;
  bool any = s.form != KernelShape::Pointwise, needsFull = false, needsReduced = false, needsColumn = false;
  int phase = 0;
  for (Value *v : n.operands()) {
    auto e = v && v->def ? s.extents.find(v->def) : s.extents.end();
    if (e == s.extents.end())
      continue;
    phase = std::max(phase, s.phases.lookup(v->def));
    (e->second == Extent::Full ? needsFull : e->second == Extent::Reduced ? needsReduced : needsColumn) = true;
  }
  Extent e;
  if (n.op->reduction) {
    // A reduction of what is reduced already would need loops of its own.
    if (needsReduced || needsColumn)
      return false;
    e = sumsColumns(s, n) ? Extent::Column : Extent::Reduced;
    phase += e == Extent::Reduced;
  } else if (c == count && (!any || kept != count || needsFull) && !needsColumn) {
    e = Extent::Full;
  } else if (any && c == kept && c != row && !needsFull && !needsColumn) {
    e = Extent::Reduced;
  } else if (any && c == row && c != kept && !needsFull && !needsReduced) {
    e = Extent::Column;
  } else {
    return false;
  }
  s.extents[&n] = e;
  s.phases[&n] = phase;
  return true;
}

bool ShapeFinder::findForm() {
  if (s.form == KernelShape::Pointwise)
    return true;
  if (s.keptCount() != 1)
    s.form = s.reduced.back() ? KernelShape::Row : KernelShape::Column;
  // The sums of fewer rows have another order (codegen/LoopPlan.cpp).
  if (s.hasColumns)
    return s.form == KernelShape::Row && s.keptCount() >= 2 * kColumnBlock;
  const bool fullAfterReduction =
      llvm::any_of(nodes, [&](Node *n) { return s.extents.lookup(n) == Extent::Full && s.phases.lookup(n) > 0; });
  if (!fullAfterReduction || s.form == KernelShape::Row)
    return true;
  if (s.form == KernelShape::Column)
    return s.dims.back() <= kStrip && s.keptCount() > s.dims.back();
  // One row: worth it only while one core keeps it in its cache.
  constexpr int64_t kOneRow = 1 << 14;
  if (s.form != KernelShape::Total || s.count() > kOneRow)
    return false;
  s.form = KernelShape::Row;
  return true;
}

/// Whether a member finds the others' values at the same place of the domain, and its operands have strides over it.
static bool readsFit(const KernelShape &s, const Node &n) {
  for (Value *v : n.operands()) {
    if (!v)
      continue;
    bool inside = v->def && s.extents.count(v->def);
    auto view = inside ? std::nullopt : viewOf(v);
    Dims dims = v->type.localDims();
    auto st = domainStrides(s, n, dims, view ? view->strides : denseStrides(dims));
    if (!st)
      return false;
    if (!inside)
      continue;
    Dims want = resultStrides(s, *v->def);
    for (size_t i = 0; i < s.dims.size(); ++i)
      if ((*st)[i] != want[i])
        return false;
  }
  return true;
}

std::optional<KernelShape> ShapeFinder::run() {
  if (!findDomain())
    return std::nullopt;
  for (Node *n : nodes)
    if (!place(s, *n))
      return std::nullopt;
  if (!findForm() || !llvm::all_of(nodes, [&](Node *n) { return readsFit(s, *n); }))
    return std::nullopt;
  return std::move(s);
}

std::optional<KernelShape> zcc::kernelShape(ArrayRef<Node *> nodes) { return ShapeFinder(nodes).run(); }

/// Whether the domain has the axes that a node would bring.
static bool hasCuts(const KernelShape &s, const Node &n) {
  const int64_t count = s.count(), kept = s.keptCount();
  std::vector<int64_t> known = {1}, own;
  addCuts(s.dims, known);
  addCuts(iterationDims(n), own);
  const bool isWhole = elementCount(iterationDims(n)) == count;
  if (!isWhole && s.form == KernelShape::Column)
    return true; // what addRowCuts leaves out
  return llvm::all_of(own, [&](int64_t c) { return llvm::is_contained(known, isWhole ? c : c * (count / kept)); });
}

/// Adds one node; what it leaves behind where it returns false withdraw() takes back.
static bool add(KernelShape &s, const Node &n) {
  if (!hasCuts(s, n))
    return false;
  if (n.op->reduction && (s.form == KernelShape::Pointwise || s.hasColumns || elementCount(iterationDims(n)) != s.count() ||
                          reducedAxes(s, n) != s.reduced))
    return false;
  if (!place(s, n))
    return false;
  const bool followsReduction = s.extents.lookup(&n) == Extent::Full && s.phases.lookup(&n) > 0;
  return (s.form == KernelShape::Row || !followsReduction) && readsFit(s, n);
}

bool zcc::extend(KernelShape &s, ArrayRef<Node *> more, ArrayRef<Node *> readers) {
  llvm::SmallPtrSet<const Node *, 8> added(more.begin(), more.end());
  auto isAdded = [&](Value *v) { return v && v->def && added.count(v->def); };
  bool fits = llvm::all_of(more, [&](Node *n) { return add(s, *n); });
  if (!readers.empty()) // what they read at phase 0 leaves theirs as they are
    fits = fits && llvm::all_of(more, [&](Node *n) { return s.extents.lookup(n) == Extent::Full && s.phases.lookup(n) == 0; }) &&
           llvm::all_of(readers, [&](Node *n) { return llvm::none_of(n->operands(), isAdded) || readsFit(s, *n); });
  if (!fits)
    withdraw(s, more);
  return fits;
}

void zcc::withdraw(KernelShape &s, ArrayRef<Node *> nodes) {
  for (Node *n : nodes) {
    s.extents.erase(n);
    s.phases.erase(n);
  }
}
