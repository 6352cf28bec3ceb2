// The rules of BatchRows for operators that read and write by indices, and for loops.
#include "ir/Control.h"
#include "ir/Op.h"
#include "passes/train/BatchRows.h"

using namespace zcc;

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

/// Whether that component of each tuple is the tuple's position along an axis.
bool BatchRows::counts(const Value *index, unsigned axis, int64_t component) const {
  auto dims = llvm::ArrayRef(index->type.dims);
  unsigned last = unsigned(dims.size()) - 1;
  if (index->def && index->def->is(ops::concat) && index->def->attrs.i("axis") == int64_t(last)) {
    for (const Value *part : index->def->operands()) {
      int64_t width = part->type.dims[last];
      if (component < width)
        return counts(part, axis, component);
      component -= width;
    }
    return false;
  }
  const Tensor *t = constants.value(const_cast<Value *>(index));
  if (!t || t->isFloat())
    return false;
  int64_t tuples = 1, inner = 1; // all, and those behind the axis
  for (unsigned i = 0; i < last; ++i) {
    tuples *= dims[i];
    inner *= i > axis ? dims[i] : 1;
  }
  for (int64_t j = 0; j < tuples; ++j)
    if (t->i[j * dims[last] + component] != j / inner % dims[axis])
      return false;
  return true;
}

/// Tuples select what lies behind the axes they name. Rows of tuples read a table that is the same for all; from a table
/// with rows the same is taken of each, or each row's own where a component of the tuples is the row's number.
RowKind BatchRows::gatherNd(const Node &n) const {
  const Value *x = n.operand(0), *index = n.operand(1);
  bool tableHasRows = of(x).kind == RowKind::Rows, indexHasRows = of(index).kind == RowKind::Rows;
  auto tupleAxes = unsigned(index->type.ndim()) - 1, width = unsigned(index->type.dims.back());
  constexpr unsigned kNone = ~0u;
  unsigned inTable = tableHasRows ? axisOf(x).value_or(kNone) : kNone;
  unsigned inIndex = indexHasRows ? axisOf(index).value_or(kNone) : kNone;
  if ((tableHasRows && inTable == kNone) || (indexHasRows && inIndex >= tupleAxes))
    return kMixed;
  if (!tableHasRows)
    return rowsAt(n.result(), inIndex);
  if (inTable >= width)
    return indexHasRows ? kMixed : rowsAt(n.result(), inTable - width + tupleAxes);
  for (unsigned axis = 0; axis < tupleAxes; ++axis)
    if ((!indexHasRows || inIndex == axis) && index->type.dims[axis] == x->type.dims[inTable] && counts(index, axis, inTable))
      return rowsAt(n.result(), axis);
  return kMixed;
}

/// What tuples that are the same for all put into x keeps its place in the axes behind those they name.
RowKind BatchRows::scatterNd(const Node &n) const {
  const Value *x = n.operand(0), *index = n.operand(1), *updates = n.operand(2);
  auto tupleAxes = unsigned(index->type.ndim()) - 1, width = unsigned(index->type.dims.back());
  std::optional<unsigned> axis;
  if (of(index).kind == RowKind::Rows)
    return kMixed;
  for (const Value *v : {x, updates}) {
    if (of(v).kind != RowKind::Rows)
      continue;
    auto at = axisOf(v);
    unsigned named = v == x ? width : tupleAxes;
    if (!at || *at < named || (axis && *axis != *at - named + width))
      return kMixed;
    axis = *at - named + width;
  }
  return rowsAt(n.result(), *axis);
}

// ---- loops

BatchRows::BatchRows(const Function &body, const BatchRows &outside, llvm::ArrayRef<RowKind> args)
    : batch_(outside.batch_), constants(*body.module) {
  for (auto [a, kind] : llvm::zip(body.args, args))
    kinds[a.get()] = kind;
  addNodes(body);
}

/// Of something that comes of `a` in some iterations, of `b` in others; what is the same for all is so for each row.
static RowKind either(RowKind a, RowKind b) {
  if (a == b || b.kind == RowKind::Same)
    return a;
  return a.kind == RowKind::Same ? b : kMixed;
}

/// What leaves or enters a body: sums stay outside, where they can be masked.
static RowKind passed(RowKind k) { return k.kind == RowKind::Same || k.kind == RowKind::Rows ? k : kMixed; }

/// A slice along axis 0 of rows that lie behind it.
static RowKind sliceOf(RowKind k, int64_t trips) {
  if (k.kind != RowKind::Rows)
    return k;
  return trips > 0 && k.outer && k.outer % trips == 0 ? RowKind{RowKind::Rows, k.outer / trips} : kMixed;
}

/// A body that keeps rows apart does so in each iteration, and so the loop, if what it carries always has them in one
/// place.
void BatchRows::addScan(const Node &n) {
  ScanForm form(n);
  const Function &body = *bodiesOf(n).front();
  std::vector<RowKind> args, results;
  for (unsigned i = 0; i < n.numOperands(); ++i) {
    RowKind k = passed(of(n.operand(i)));
    args.push_back(form.isSlice(i) ? sliceOf(k, form.trips) : k);
  }
  for (bool isStable = false; !isStable;) {
    BatchRows inside(body, *this, args);
    results.clear();
    for (const Value *v : body.results)
      results.push_back(passed(inside.of(v)));
    isStable = true;
    for (unsigned i = 0; i < form.carried; ++i) {
      RowKind k = either(args[i], results[i]);
      isStable &= k == args[i];
      args[i] = k;
    }
  }
  for (unsigned i = 0; i < n.results.size(); ++i) {
    RowKind k = i < form.carried ? args[i] : results[i];
    if (i >= form.carried && k.kind == RowKind::Rows)
      k.outer *= form.trips;
    kinds[n.result(i)] = k;
  }
}
