// The rules by which operators pass on, mix or add up the rows of a batch.
#include "passes/train/BatchRows.h"
#include "ir/Op.h"
#include "llvm/ADT/DenseSet.h"
#include <cmath>

using namespace zcc;
using llvm::ArrayRef;

static int64_t product(ArrayRef<int64_t> dims) {
  int64_t n = 1;
  for (int64_t d : dims)
    n *= d;
  return n;
}

BatchRows::BatchRows(const Function &f) : constants(*f.module) {
  for (auto &a : f.args)
    if (!batch_ && a->type.ndim())
      batch_ = a->type.dims[0];
  for (auto &a : f.args)
    if (batch_ && a->type.ndim() && a->type.dims[0] == batch_)
      kinds[a.get()] = {RowKind::Rows};
  addNodes(f);
}

void BatchRows::addNodes(const Function &f) {
  for (auto &n : f.nodes) {
    if (n->op->isScan()) {
      addScan(*n);
      continue;
    }
    RowKind k = kindOf(*n);
    for (auto &r : n->results)
      kinds[r.get()] = k;
  }
}

std::optional<unsigned> BatchRows::axisOf(const Value *v) const {
  int64_t before = 1, outer = of(v).outer;
  for (unsigned i = 0; i < unsigned(v->type.ndim()); ++i) {
    int64_t d = v->type.dims[i];
    if (before == outer && d > 1)
      return d % batch_ == 0 ? std::optional(i) : std::nullopt;
    before *= d;
  }
  return std::nullopt;
}

const Node *BatchRows::mixing(const Value *v) const {
  const Node *found = nullptr;
  llvm::SmallVector<const Value *, 8> work{v};
  llvm::DenseSet<const Value *> seen{v};
  while (!work.empty()) {
    const Value *w = work.pop_back_val();
    if (of(w).kind != RowKind::Mixed || !w->def)
      continue;
    bool isFirst = true;
    for (const Value *o : w->def->operands())
      if (o && of(o).kind == RowKind::Mixed) {
        isFirst = false;
        if (seen.insert(o).second)
          work.push_back(o);
      }
    if (isFirst && (!found || comesBefore(w->def, found)))
      found = w->def;
  }
  return found;
}

/// A sum or a difference.
static bool adds(const Node &n) {
  return n.op->isElementwise() && n.numOperands() == 2 && n.op->linear == kAllOperands && !n.op->bilinear;
}

bool BatchRows::addsMeans(const Node &n) const {
  auto isMean = [&](const Value *v) { return of(v).kind == RowKind::Ratio; };
  return adds(n) && llvm::all_of(n.operands(), isMean);
}

// ---- the rules

/// Rows whose batch is in that axis of the result.
RowKind BatchRows::rowsAt(const Value *result, unsigned axis) const {
  return {RowKind::Rows, product(ArrayRef(result->type.dims).take_front(axis))};
}

RowKind BatchRows::kindOf(const Node &n) const {
  bool hasRows = false, hasSums = false;
  for (const Value *v : n.operands()) {
    RowKind::Kind k = v ? of(v).kind : RowKind::Same;
    if (k == RowKind::Mixed)
      return kMixed;
    hasRows |= k == RowKind::Rows;
    hasSums |= k == RowKind::Sum || k == RowKind::Floor || k == RowKind::Ratio;
  }
  if (n.op->random || !n.op->isPure() || (hasRows && hasSums))
    return kMixed;
  if (hasSums)
    return ofSums(n);
  if (!hasRows)
    return {};
  switch (n.op->rows) {
  case Rows::Mixed:
    return kMixed;
  case Rows::Aligned:
    return elementwise(n);
  case Rows::InOrder:
    return of(n.operand(0));
  case Rows::Reduced:
    return reduction(n);
  case Rows::Product:
    return matmul(n);
  case Rows::Lookup:
    return gather(n);
  case Rows::ByTuples:
    return n.attrs.i("batch") ? samplewise(n) : gatherNd(n);
  case Rows::ToTuples:
    return scatterNd(n);
  case Rows::PerSample:
    return samplewise(n);
  case Rows::Permuted:
  case Rows::Sliced:
  case Rows::Padded:
  case Rows::Others:
  case Rows::Leading:
    return alongAxes(n);
  }
  llvm_unreachable("a way of rows without a rule");
}

/// Whether two values are computed alike; at most `depth` operators are looked at.
static bool areAlike(const Value *a, const Value *b, int depth) {
  if (a == b)
    return true;
  if (!a || !b || !a->def || !b->def || depth == 0)
    return false;
  const Node &m = *a->def, &n = *b->def;
  return m.op == n.op && m.attrs == n.attrs && m.results.size() == 1 && isFoldable(m) && isFoldable(n) &&
         m.numOperands() == n.numOperands() && llvm::all_of(llvm::zip(m.operands(), n.operands()), [&](auto pair) {
           return areAlike(std::get<0>(pair), std::get<1>(pair), depth - 1);
         });
}

/// What is linear in a sum is one; means of one weight add up to another of that weight, and so does a mean and what is the
/// same for all batches.
RowKind BatchRows::ofSums(const Node &n) const {
  auto isKind = [&](unsigned i, RowKind::Kind k) { return of(n.operand(i)).kind == k; };
  const OpDef *op = n.op;
  RowKind first = of(n.operand(0));
  if (op->reshapes || op->isIdentity() || (op->converts() && isFloat(n.result()->type.elem)))
    return first;
  if (n.is(ops::max))
    return atLeast(n);
  if (n.is(ops::div) && isKind(0, RowKind::Sum) && n.result()->type.count() == 1) {
    if (isKind(1, RowKind::Sum))
      return {RowKind::Ratio, 1, n.operand(1)};
    if (RowKind by = of(n.operand(1)); by.kind == RowKind::Floor)
      return {RowKind::Ratio, 1, by.weight, by.floor};
  }
  if (llvm::any_of(n.operands(), [&](const Value *v) { return of(v).kind == RowKind::Floor; }))
    return kMixed;
  if (op->reduction)
    return op->reduction == Reduction::Sum && first.kind == RowKind::Sum ? first : kMixed;
  if (!op->isElementwise() || op->converts())
    return kMixed;
  for (unsigned i = 0; i < n.numOperands(); ++i)
    if (scales(n, i))
      return of(n.operand(i));
  return adds(n) ? total(n) : kMixed;
}

/// Whether an elementwise operator is linear in operand i, the others being the same for all rows.
bool BatchRows::scales(const Node &n, unsigned i) const {
  if (!n.op->isLinearIn(i))
    return false;
  for (unsigned k = 0; k < n.numOperands(); ++k)
    if (k != i && (of(n.operand(k)).kind != RowKind::Same || (n.op->isLinearIn(k) && !n.op->bilinear)))
      return false;
  return true;
}

RowKind BatchRows::total(const Node &n) const {
  RowKind a = of(n.operand(0)), b = of(n.operand(1));
  if (a.kind == b.kind) {
    constexpr int kDepth = 8; // from a cross entropy's labels to the count of those that are not ignored
    bool isMean = a.kind == RowKind::Ratio && a.floor == b.floor && areAlike(a.weight, b.weight, kDepth);
    return a.kind == RowKind::Sum || isMean ? a : kMixed;
  }
  RowKind mean = a.kind == RowKind::Same ? b : a, other = a.kind == RowKind::Same ? a : b;
  // The same for all batches, so for their mean. A floor weighs batches by another number than their mean's.
  return mean.kind == RowKind::Ratio && other.kind == RowKind::Same && !mean.floor ? mean : kMixed;
}

/// A count that is to be divided by, at least 1.
RowKind BatchRows::atLeast(const Node &n) const {
  unsigned sum = of(n.operand(0)).kind == RowKind::Sum ? 0 : 1;
  Value *other = n.operand(1 - sum);
  const Tensor *floor = of(other).kind == RowKind::Same ? constants.value(other) : nullptr;
  if (of(n.operand(sum)).kind != RowKind::Sum || n.result()->type.count() != 1 || !floor || floor->count() != 1)
    return kMixed;
  double least = floor->isFloat() ? floor->f[0] : double(floor->i[0]);
  return least > 0 && std::isfinite(least) ? RowKind{RowKind::Floor, 1, n.operand(sum), least} : kMixed;
}

/// Operands are aligned at their last axes; the batch must be in the same one of all.
RowKind BatchRows::elementwise(const Node &n) const {
  const Value *y = n.result();
  std::optional<unsigned> axis;
  bool areEqual = true; // all in one order of elements, whatever their axes
  int64_t outer = -1;
  for (const Value *v : n.operands()) {
    if (!v || of(v).kind != RowKind::Rows)
      continue;
    areEqual &= v->type.dims == y->type.dims && (outer < 0 || outer == of(v).outer);
    outer = of(v).outer;
  }
  if (areEqual)
    return {RowKind::Rows, outer};
  for (const Value *v : n.operands()) {
    if (!v || of(v).kind != RowKind::Rows)
      continue;
    auto at = axisOf(v);
    if (!at)
      return kMixed;
    unsigned aligned = *at + unsigned(y->type.ndim() - v->type.ndim());
    if ((axis && *axis != aligned) || v->type.dims[*at] != y->type.dims[aligned])
      return kMixed;
    axis = aligned;
  }
  return rowsAt(y, *axis);
}

RowKind BatchRows::reduction(const Node &n) const {
  auto at = axisOf(n.operand(0));
  if (!at)
    return kMixed;
  if (!llvm::is_contained(n.attrs.ints("axes"), int64_t(*at)))
    return n.result()->type.ndim() == n.operand(0)->type.ndim() ? rowsAt(n.result(), *at) : kMixed;
  return n.op->reduction == Reduction::Sum ? RowKind{RowKind::Sum} : kMixed;
}

RowKind BatchRows::matmul(const Node &n) const {
  const Value *y = n.result(), *x = n.operand(0);
  // A matrix's row by what is the same for all comes of that row alone, wherever the batch's lie.
  int64_t inRow = of(x).kind == RowKind::Rows && of(x).outer ? x->type.count() / (of(x).outer * batch_) : 0;
  if (inRow && of(n.operand(1)).kind == RowKind::Same && inRow % x->type.dims.back() == 0 &&
      ArrayRef(y->type.dims).drop_back() == ArrayRef(x->type.dims).drop_back())
    return of(x);
  std::optional<unsigned> axis;
  for (unsigned i = 0; i < 2; ++i) {
    const Value *v = n.operand(i);
    if (of(v).kind != RowKind::Rows)
      continue;
    auto at = axisOf(v);
    unsigned fromEnd = at ? unsigned(v->type.ndim()) - *at : 0;
    unsigned summed = i ? 2 : 1, own = i ? 1 : 2; // axes of this operand, counted from its end
    if (!at || fromEnd == summed || (fromEnd == own && of(n.operand(1 - i)).kind == RowKind::Rows))
      return kMixed;
    unsigned aligned = unsigned(y->type.ndim()) - fromEnd;
    if ((axis && *axis != aligned) || y->type.dims[aligned] != v->type.dims[*at])
      return kMixed;
    axis = aligned;
  }
  return rowsAt(y, *axis);
}

/// Operators that work along axes other than the batch's and keep the order of axes, or say how they change it.
RowKind BatchRows::alongAxes(const Node &n) const {
  std::optional<unsigned> at;
  for (const Value *v : n.operands()) {
    if (!v || of(v).kind != RowKind::Rows)
      continue;
    auto a = axisOf(v);
    const Type &first = n.operand(0)->type;
    if (!a || (at && *at != *a) || *a >= first.ndim() || v->type.dims[*a] != first.dims[*a])
      return kMixed;
    at = a;
  }
  const Value *x = n.operand(0), *y = n.result();
  auto axis = int64_t(*at);
  bool isWhole = y->type.ndim() > axis && x->type.ndim() > axis && y->type.dims[axis] == x->type.dims[axis];
  auto keptIf = [&](bool isKept) { return isKept ? rowsAt(y, *at) : kMixed; };
  switch (n.op->rows) {
  case Rows::Permuted: {
    auto perm = n.attrs.ints("perm");
    return rowsAt(y, unsigned(llvm::find(perm, axis) - perm.begin()));
  }
  case Rows::Sliced:
    return keptIf(isWhole && n.attrs.ints("steps")[axis] == 1);
  case Rows::Padded:
    return keptIf(isWhole && n.attrs.ints("lo")[axis] == 0);
  case Rows::Others:
    return keptIf(isWhole && n.attrs.i("axis") != axis);
  case Rows::Leading:
    return keptIf(of(x).kind == RowKind::Rows && axis < n.attrs.i("axis"));
  default:
    return kMixed;
  }
}

/// Operators whose first axis is that of samples.
RowKind BatchRows::samplewise(const Node &n) const {
  int64_t extent = 0;
  for (unsigned i = 0; i < n.numOperands(); ++i) {
    const Value *v = n.operand(i);
    bool isRows = v && of(v).kind == RowKind::Rows;
    bool mayBeSame = hasOperand(n.op->sameOperands, i); // weights, masks
    bool mayBeRows = hasOperand(n.op->rowOperands, i);
    if (!v || (!isRows && mayBeSame))
      continue;
    if (!isRows || !mayBeRows || axisOf(v) != 0u || (extent && extent != v->type.dims[0]))
      return kMixed;
    extent = v->type.dims[0];
  }
  return {RowKind::Rows};
}
