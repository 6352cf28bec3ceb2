// @eval's loss over the first rows of the batch only, so that the samples behind the last whole batch can be evaluated: every sum
// over the batch on the way to the loss leaves the other rows out.
//
//   func @eval(%x : f32[8x4]) -> (f32[]) {
//     %s = reduce_sum %e {axes = [0, 1]}        : f32[1x1]     // %e : f32[8x4]
// becomes
//     %i = iota {axis = 0, dims = [8, 1]}       : i64[8x1]
//     %counts = lt %i, %eval_rows               : bool[8x1]    // state %eval_rows : i64[], set by the runtime
//     %m = select %counts, %e, %zero            : f32[8x4]
//     %s = reduce_sum %m {axes = [0, 1]}        : f32[1x1]
//
// The sums and weights of metrics, likewise. A loss that is a sum divided by another, the mean over what is not ignored, gets its
// divisor as a further result, the weight of the batch, also where a batch is one sample; where it is divided by max(weight, c),
// c is noted too. Where rows are mixed, nothing is changed, and the module says why. Module attributes: `batch`, the rows;
// `batch_why`, why there is no `batch`; `rows_results`, the results of @eval whose rows come of one row each; `weight_result`,
// `weight_floor`; `unnamed_results`, those that are no outputs of the model.
#include "ir/Builder.h"
#include "ir/Op.h"
#include "passes/Pass.h"
#include "passes/train/BatchRows.h"
#include "passes/train/MetricResults.h"
#include "llvm/ADT/DenseSet.h"
#include <cmath>

using namespace zcc;

/// The sums over the batch that lead to these results.
static llvm::SmallVector<Node *, 4> sumsBehind(llvm::ArrayRef<Value *> results, const BatchRows &rows) {
  llvm::SmallVector<Node *, 4> found;
  llvm::SmallVector<Value *, 8> work(results.begin(), results.end());
  llvm::DenseSet<Value *> seen(results.begin(), results.end());
  while (!work.empty()) {
    Value *v = work.pop_back_val();
    Node *n = v->def;
    if (!n || rows.of(v).kind == RowKind::Same || rows.of(v).kind == RowKind::Rows)
      continue;
    if (rows.of(n->operand(0)).kind == RowKind::Rows) {
      if (!llvm::is_contained(found, n))
        found.push_back(n);
      continue;
    }
    for (Value *o : n->operands())
      if (o && seen.insert(o).second)
        work.push_back(o);
  }
  return found;
}

/// Leaves the rows from %eval_rows on out of a sum.
static void mask(Node &sum, GlobalValue *count, const BatchRows &rows) {
  Value *x = sum.operand(0);
  unsigned axis = *rows.axisOf(x);
  int64_t extent = x->type.dims[axis], each = extent / rows.batch();
  std::vector<int64_t> dims(x->type.ndim(), 1);
  dims[axis] = extent;
  Builder b(*sum.parent(), &sum, sum.loc);
  Value *i = b.make(ops::iota, {}, {{"dims", dims}, {"axis", int64_t(axis)}, {"elem", "i64"}});
  Value *end = each == 1 ? static_cast<Value *>(count) : b.make(ops::mul, {count, b.scalar(double(each), Elem::I64)});
  Value *counts = b.make(ops::lt, {i, end}, {}, "counts");
  sum.setOperand(0, b.make(ops::select, {counts, x, b.scalar(0, x->type.elem)}));
}

/// The results whose row b comes of row b alone.
static std::vector<int64_t> resultsByRow(const Function &f, const BatchRows &rows) {
  std::vector<int64_t> r;
  for (unsigned i = 0; i < f.results.size(); ++i) {
    const Value *v = f.results[i];
    if (rows.of(v).kind == RowKind::Rows && rows.axisOf(v) == 0u)
      r.push_back(i);
  }
  return r;
}

/// `what`: what the result is called.
static std::string whyNot(const Value *result, const std::string &what, const BatchRows &rows) {
  const Node *n = rows.mixing(result);
  if (!n)
    return what + " is no mean over them";
  bool isNamed = n->loc && !n->loc->nodes.empty();
  std::string node = isNamed ? describe(n->loc) : what + " (" + std::string(n->op->name) + ")";
  return node + (rows.addsMeans(*n) ? " adds up losses that are averaged over different numbers of samples"
                                    : " mixes the samples of a batch");
}

/// The loss and what metrics are made of; or, where one of them mixes rows, why no row can be left out.
static std::string findResults(const Module &m, const Function &f, const BatchRows &rows,
                               llvm::SmallVectorImpl<Value *> &results) {
  RowKind::Kind kind = rows.of(f.results[0]).kind;
  if (kind != RowKind::Sum && kind != RowKind::Ratio)
    return whyNot(f.results[0], "the loss", rows);
  results.push_back(f.results[0]);
  for (const MetricResults &metric : metricsOf(m, f))
    for (Value *v : {metric.sum, metric.weight}) {
      if (v && rows.of(v).kind != RowKind::Sum && rows.of(v).kind != RowKind::Same)
        return whyNot(v, "metric '" + metric.name + "'", rows);
      if (v)
        results.push_back(v);
    }
  return "";
}

/// A batch's weight becomes a result.
static void expose(RowKind ratio, Module &m, Function &f) {
  m.attrs.set("weight_result", int64_t(f.results.size()));
  m.attrs.set("unnamed_results", std::vector<int64_t>{int64_t(f.results.size())});
  if (ratio.floor)
    m.attrs.set("weight_floor", ratio.floor);
  Builder b(f, nullptr, ratio.weight->def->loc);
  Value *weight = b.reshape(ratio.weight, {});
  f.results.push_back(isFloat(weight->type.elem) ? weight : b.cast(weight, Elem::F32));
}

/// Of a scalar, what it is but for its axes and its element type.
static Value *numberOf(Value *v) {
  while (v->type.count() == 1 && v->def && (v->def->is(ops::reshape) || v->def->is(ops::cast)))
    v = v->def->operand(0);
  return v;
}

/// The loss of a batch of one sample, where it is a sum of all by such a sum; nothing can be left out of it.
static RowKind ratioOfOne(const Module &m, Value *loss) {
  const Node *div = numberOf(loss)->def;
  if (!div || !div->is(ops::div))
    return kMixed;
  RowKind ratio{RowKind::Ratio, 1, numberOf(div->operand(1))};
  ConstantValues constants(m);
  if (const Node *most = ratio.weight->def; most && most->is(ops::max))
    for (unsigned i : {0, 1})
      if (const Tensor *floor = constants.value(most->operand(1 - i)); floor && floor->count() == 1 && floor->isFloat()) {
        ratio.floor = floor->f[0];
        ratio.weight = numberOf(most->operand(i));
        break;
      }
  auto isTotal = [](const Value *v) { return v->type.count() == 1 && v->def && v->def->is(ops::reduce_sum); };
  const bool isKnown = isTotal(numberOf(div->operand(0))) && isTotal(ratio.weight) && ratio.floor >= 0;
  return isKnown && std::isfinite(ratio.floor) ? ratio : kMixed;
}

llvm::Expected<bool> zcc::maskRows(Module &m, PassContext &) {
  Function *f = m.function("eval");
  if (!f || m.attrs.has("batch") || m.attrs.has("batch_why") || m.attrs.has("weight_result"))
    return false;
  BatchRows rows(*f);
  bool hasLoss = !f->results.empty() && !m.attrs.s("loss").empty();
  if (rows.batch() < 2) { // nothing is ever left behind the last batch
    RowKind ratio = hasLoss && rows.batch() == 1 ? ratioOfOne(m, f->results[0]) : kMixed;
    if (ratio.kind == RowKind::Ratio)
      expose(ratio, m, *f);
    return ratio.kind == RowKind::Ratio;
  }
  auto byRow = resultsByRow(*f, rows);
  if (hasLoss) {
    Value *loss = f->results[0];
    RowKind kind = rows.of(loss);
    llvm::SmallVector<Value *, 4> results;
    if (std::string why = findResults(m, *f, rows, results); !why.empty()) {
      m.attrs.set("batch_why", why);
      if (kind.kind == RowKind::Ratio) // only a metric mixes them
        expose(kind, m, *f);
      return true;
    }
    GlobalValue *count = m.addGlobal(GlobalValue::State, "eval_rows", Type(Elem::I64, {}), Init());
    for (Node *sum : sumsBehind(results, rows))
      mask(*sum, count, rows);
    if (kind.kind == RowKind::Ratio)
      expose(kind, m, *f);
  }
  m.attrs.set("batch", rows.batch());
  if (!byRow.empty())
    m.attrs.set("rows_results", byRow);
  return true;
}
