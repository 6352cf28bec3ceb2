#include "passes/BatchRows.h"
#include "ir/Op.h"
#include "passes/ConstantValue.h"
#include "llvm/ADT/DenseSet.h"

using namespace zcc;
using llvm::ArrayRef;

static const RowKind kMixed{RowKind::Mixed};

static int64_t product(ArrayRef<int64_t> dims) {
  int64_t n = 1;
  for (int64_t d : dims)
    n *= d;
  return n;
}

BatchRows::BatchRows(const Function &f) {
  for (auto &a : f.args)
    if (!batch_ && a->type.ndim())
      batch_ = a->type.dims[0];
  for (auto &a : f.args)
    if (batch_ && a->type.ndim() && a->type.dims[0] == batch_)
      kinds[a.get()] = {RowKind::Rows};
  for (auto &n : f.nodes) {
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
    hasSums |= k == RowKind::Sum || k == RowKind::Ratio;
  }
  if (n.op->random || !n.op->isPure() || (hasRows && hasSums))
    return kMixed;
  if (hasSums)
    return ofSums(n);
  if (!hasRows)
    return {};
  if (n.op->isElementwise() || n.op == &ops::broadcast || n.op == &ops::copy)
    return elementwise(n);
  if (n.op == &ops::reshape)
    return of(n.operand(0));
  if (n.op->reduction)
    return reduction(n);
  if (n.op == &ops::matmul)
    return matmul(n);
  if (n.op == &ops::gather)
    return gather(n);
  if (n.op == &ops::gather_nd && n.attrs.i("batch") == 0)
    return gatherNd(n);
  RowKind k = alongAxes(n);
  return k.kind == RowKind::Mixed ? samplewise(n) : k;
}

/// What is linear in a sum is one.
RowKind BatchRows::ofSums(const Node &n) const {
  auto isSame = [&](unsigned i) { return of(n.operand(i)).kind == RowKind::Same; };
  auto isSum = [&](unsigned i) { return of(n.operand(i)).kind == RowKind::Sum; };
  const OpDef *op = n.op;
  RowKind first = of(n.operand(0));
  bool isOnly = op == &ops::neg || op == &ops::reshape || op == &ops::copy || op == &ops::stop_gradient ||
                (op == &ops::cast && isFloat(n.result()->type.elem)) ||
                (op == &ops::reduce_sum && first.kind == RowKind::Sum);
  bool isScaled = (op == &ops::mul || op == &ops::div) && isSame(1);
  if (isOnly || isScaled)
    return first;
  if (op == &ops::mul && isSame(0))
    return of(n.operand(1));
  bool areSums = n.numOperands() == 2 && isSum(0) && isSum(1);
  if (areSums && (op == &ops::add || op == &ops::sub))
    return first;
  if (areSums && op == &ops::div && n.result()->type.count() == 1)
    return {RowKind::Ratio, 1, n.operand(1)};
  return kMixed;
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
  return n.op == &ops::reduce_sum ? RowKind{RowKind::Sum} : kMixed;
}

RowKind BatchRows::matmul(const Node &n) const {
  const Value *y = n.result();
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

/// Rows of a table, or the same entries of each row.
RowKind BatchRows::gather(const Node &n) const {
  const Value *x = n.operand(0), *index = n.operand(1);
  auto axis = unsigned(n.attrs.i("axis"));
  bool tableHasRows = of(x).kind == RowKind::Rows, indexHasRows = of(index).kind == RowKind::Rows;
  auto at = axisOf(tableHasRows ? x : index);
  if (!at || (tableHasRows && (indexHasRows || *at == axis)))
    return kMixed;
  if (indexHasRows)
    return rowsAt(n.result(), axis + *at);
  return rowsAt(n.result(), *at < axis ? *at : *at - 1 + unsigned(index->type.ndim()));
}

/// Entries of each row in its own place, such as those of a mask that are looked up by the numbers of rows and columns.
RowKind BatchRows::gatherNd(const Node &n) const {
  const Value *x = n.operand(0);
  Value *index = n.operand(1);
  bool mayBe = of(index).kind == RowKind::Same && isConstantLeaf(index) && axisOf(x) == 0u &&
               x->type.dims[0] == batch_ && index->type.dims[0] == batch_ && index->type.ndim() > 1;
  ConstantValues values(*n.parent()->module);
  const Tensor *numbers = mayBe ? values.value(index) : nullptr;
  if (!numbers)
    return kMixed;
  int64_t each = index->type.count() / batch_, tuple = index->type.dims.back();
  for (int64_t i = 0; tuple && i < index->type.count(); i += tuple)
    if (numbers->i[i] != i / each)
      return kMixed;
  return tuple ? rowsAt(n.result(), 0) : kMixed;
}

/// Operators that work along axes other than the batch's and keep the order of axes, or say how they change it.
RowKind BatchRows::alongAxes(const Node &n) const {
  std::optional<unsigned> at;
  for (const Value *v : n.operands()) {
    if (!v || of(v).kind != RowKind::Rows)
      continue;
    auto a = axisOf(v);
    bool isFirst = !at;
    if (!a || (at && *at != *a) || v->type.dims[*a] % batch_)
      return kMixed;
    at = a;
    if (!isFirst && v->type.dims[*a] != n.operand(0)->type.dims[*a])
      return kMixed;
  }
  const Value *x = n.operand(0), *y = n.result();
  auto axis = int64_t(*at);
  if (n.op == &ops::transpose) {
    auto perm = n.attrs.ints("perm");
    return rowsAt(y, unsigned(llvm::find(perm, axis) - perm.begin()));
  }
  bool isWhole = y->type.ndim() > axis && x->type.ndim() > axis && y->type.dims[axis] == x->type.dims[axis];
  if (n.op == &ops::slice || n.op == &ops::pad)
    return isWhole && (n.op == &ops::pad ? n.attrs.ints("lo")[axis] == 0 : n.attrs.ints("steps")[axis] == 1)
               ? rowsAt(y, *at)
               : kMixed;
  bool hasAxis = n.op == &ops::softmax || n.op == &ops::log_softmax || n.op == &ops::cumsum ||
                 n.op == &ops::topk || n.op == &ops::argmax || n.op == &ops::argmin ||
                 n.op == &ops::concat || n.op == &ops::gather_elements;
  if (hasAxis && isWhole && n.attrs.i("axis") != axis)
    return rowsAt(y, *at);
  bool isNorm = n.op == &ops::layer_norm || n.op == &ops::rms_norm; // over `axis` and all behind it
  return isNorm && of(x).kind == RowKind::Rows && axis < n.attrs.i("axis") ? rowsAt(y, *at) : kMixed;
}

/// Operators whose first axis is that of samples.
RowKind BatchRows::samplewise(const Node &n) const {
  bool isKnown = n.op == &ops::conv || n.op == &ops::max_pool || n.op == &ops::avg_pool ||
                 n.op == &ops::cross_entropy || n.op == &ops::attention ||
                 n.op == &ops::gather_nd;
  int64_t extent = 0;
  for (unsigned i = 0; isKnown && i < n.numOperands(); ++i) {
    const Value *v = n.operand(i);
    bool isRows = v && of(v).kind == RowKind::Rows;
    // What is the same for all samples: weights, masks.
    bool mayBeSame = n.op == &ops::attention ? i == 3 : i > 0 && n.op != &ops::gather_nd;
    bool mayBeRows = (n.op != &ops::conv || i == 0) && (n.op != &ops::cross_entropy || i < 2);
    if (!v || (!isRows && mayBeSame))
      continue;
    if (!isRows || !mayBeRows || axisOf(v) != 0u || (extent && extent != v->type.dims[0]))
      return kMixed;
    extent = v->type.dims[0];
  }
  return isKnown ? RowKind{RowKind::Rows} : kMixed;
}
