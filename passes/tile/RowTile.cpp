// Computes a RowRegion a few rows at a time.
#include "passes/tile/RowRegion.h"
#include "llvm/ADT/STLExtras.h"

using namespace zcc;
using llvm::ArrayRef;

namespace zcc {
/// Some rows of a region's outputs: a copy of its nodes, whose first axis is the rows.
class RowTile {
public:
  using Flat = llvm::DenseMap<std::pair<Value *, unsigned>, Value *>;
  /// Rows [begin, end).
  RowTile(const RowRegion &r, Node &before, Flat &flat, int64_t begin, int64_t end, std::vector<int64_t> note)
      : region(r), before(before), flat(flat), begin(begin), end(end), note(std::move(note)) {}
  /// The rows that i64[count] names.
  RowTile(const RowRegion &r, Node &before, Flat &flat, Value *picked)
      : region(r), before(before), flat(flat), begin(0), end(picked->type.count()), picked(picked) {}
  Value *make(Value *v);

private:
  Builder builder(const Node &n) { return Builder(region.fn, &before, n.loc); }
  Value *flatten(Builder &b, Value *v, unsigned space, unsigned axes);
  Value *rowsOf(Builder &b, Value *v, unsigned space, unsigned axes);
  Value *operandOf(Builder &b, Node &n, unsigned i, RowRegion::Place at);
  Value *aligned(Builder &b, Value *v, const Type &y, RowRegion::Place at);
  Attrs attrsOf(const Node &n, RowRegion::Place at) const;
  void copy(Node &n);

  const RowRegion &region;
  Node &before;
  Flat &flat; ///< values outside as [rows, rest], in the last space's rows; shared by all tiles
  int64_t begin, end;
  Value *picked = nullptr;
  std::vector<int64_t> note; ///< none: it is no tile
  llvm::DenseMap<Value *, Value *> made;
};
} // namespace zcc

/// All rows of a value outside, as one axis, by the slices that the region takes of its own.
Value *RowTile::flatten(Builder &b, Value *v, unsigned space, unsigned axes) {
  Value *&to = flat[{v, space}];
  if (to)
    return to;
  Dims rest(v->type.dims.begin() + axes, v->type.dims.end());
  auto withRest = [&](ArrayRef<int64_t> rows) {
    Dims d(rows.begin(), rows.end());
    d.append(rest.begin(), rest.end());
    return d;
  };
  to = b.reshape(v, withRest({region.spaces[space].rows}));
  for (unsigned s = space + 1; s < region.spaces.size(); ++s) {
    const Node &slice = *region.spaces[s].slice;
    unsigned k = region.inside.lookup(slice.operand(0)).axes;
    to = b.reshape(to, withRest(ArrayRef(slice.operand(0)->type.dims).take_front(k)));
    for (unsigned a = 0; a < k; ++a) {
      int64_t from = slice.attrs.ints("starts")[a], step = slice.attrs.ints("steps")[a], count = slice.result()->type.dims[a];
      if (count != to->type.dims[a])
        to = b.slice(to, int(a), from, from + (count - 1) * step + 1, step);
    }
    to = b.reshape(to, withRest({region.spaces[s].rows}));
  }
  return to;
}

Value *RowTile::rowsOf(Builder &b, Value *v, unsigned space, unsigned axes) {
  Value *all = flatten(b, v, space, axes);
  return picked ? b.make(ops::gather, {all, picked}, {{"axis", int64_t(0)}}) : b.slice(all, 0, begin, end);
}

/// An operand from outside that broadcasts to the result: its rows where it has them, else the whole.
Value *RowTile::aligned(Builder &b, Value *v, const Type &y, RowRegion::Place at) {
  ArrayRef<int64_t> d = v->type.dims, rows = ArrayRef(y.dims).take_front(at.axes);
  size_t rest = y.ndim() - at.axes, own = d.size() > rest ? d.size() - rest : 0;
  if (elementCount(d.take_front(own)) == 1)
    return b.reshape(v, d.drop_front(own));
  Dims whole(rows.begin(), rows.end());
  whole.append(d.begin() + own, d.end());
  return rowsOf(b, b.expand(v, whole), at.space, at.axes);
}

Value *RowTile::operandOf(Builder &b, Node &n, unsigned i, RowRegion::Place at) {
  Value *v = n.operand(i);
  if (!v || region.inside.count(v))
    return v ? make(v) : nullptr;
  if (n.op->isElementwise() || n.is(ops::layer_norm) || n.is(ops::rms_norm))
    return aligned(b, v, n.result()->type, at);
  if (n.is(ops::matmul) && i == 1)
    return b.reshape(v, ArrayRef(v->type.dims).take_back(2));
  bool hasRows =
      (n.is(ops::matmul) && i == 0) || (n.is(ops::cross_entropy) && i == 1) || n.is(ops::concat) || n.is(ops::gather_elements);
  return hasRows ? rowsOf(b, v, at.space, at.axes) : v;
}

/// With the rows as one axis.
Attrs RowTile::attrsOf(const Node &n, RowRegion::Place at) const {
  Attrs a = n.attrs;
  a.erase("labelled");
  if (!note.empty())
    a.erase("tiles");
  int64_t less = int64_t(at.axes) - 1;
  auto rest = [&](std::vector<int64_t> v, int64_t first, int64_t by = 0) {
    std::vector<int64_t> out{first};
    for (size_t i = at.axes; i < v.size(); ++i)
      out.push_back(v[i] - by);
    return out;
  };
  if (n.op->reshapes)
    a.set("dims", rest(n.attrs.ints("dims"), end - begin));
  if (n.is(ops::transpose))
    a.set("perm", rest(n.attrs.ints("perm"), 0, less));
  if (n.is(ops::slice)) {
    a.set("starts", rest(n.attrs.ints("starts"), 0));
    a.set("ends", rest(n.attrs.ints("ends"), end - begin));
    a.set("steps", rest(n.attrs.ints("steps"), 1));
  }
  if (n.op->reduction) {
    std::vector<int64_t> axes = n.attrs.ints("axes");
    for (int64_t &x : axes)
      x -= less;
    a.set("axes", axes);
  }
  bool hasAxis = n.is(ops::softmax) || n.is(ops::log_softmax) || n.is(ops::layer_norm) || n.is(ops::rms_norm) ||
                 n.is(ops::concat) || n.is(ops::gather_elements);
  if (hasAxis)
    a.set("axis", n.attrs.i("axis") - less);
  return a;
}

void RowTile::copy(Node &n) {
  RowRegion::Place at = region.inside.lookup(n.result());
  Builder b = builder(n);
  bool slicesRows = llvm::any_of(region.spaces, [&](auto &s) { return s.slice == &n; });
  if (slicesRows) { // what it leaves out is not computed
    Dims d{end - begin};
    d.append(n.result()->type.dims.begin() + at.axes, n.result()->type.dims.end());
    made[n.result()] = b.reshape(make(n.operand(0)), d);
    return;
  }
  llvm::SmallVector<Value *, 4> operands;
  for (unsigned i = 0; i < n.numOperands(); ++i)
    operands.push_back(operandOf(b, n, i, at));
  Node *c = b.node(*n.op, operands, attrsOf(n, at), n.result()->name);
  if (!note.empty())
    c->attrs.set("tile", note);
  for (auto &r : n.results)
    made[r.get()] = c->result(r->index);
}

Value *RowTile::make(Value *v) {
  if (!made.count(v))
    copy(*v->def);
  return made.lookup(v);
}

void RowRegion::split(int64_t count, int64_t number) {
  int64_t size = (rows() + count - 1) / count;
  std::vector<llvm::SmallVector<Value *, 8>> parts(outputs.size());
  Node &last = *nodes.back();
  RowTile::Flat flat;
  for (int64_t begin = 0; begin < rows(); begin += size) {
    RowTile tile(*this, last, flat, begin, std::min(begin + size, rows()), {number, begin / size});
    for (auto [v, list] : llvm::zip(outputs, parts))
      list.push_back(tile.make(v));
  }
  for (auto [v, list] : llvm::zip(outputs, parts)) {
    Builder b(fn, &last, v->def->loc);
    Value *all = list.size() == 1 ? list[0] : b.make(ops::concat, list, {{"axis", int64_t(0)}}, v->name);
    v->replaceAllUsesWith(b.reshape(all, v->type.dims));
  }
  for (Node *n : llvm::reverse(nodes))
    n->erase();
}

// ---- rows that count

/// The sums of 0 and 1 up to each element of i64[n]; in lines, so that threads share it.
static Value *countUpTo(Builder &b, Value *flags) {
  constexpr int64_t kLongest = 256;
  const int64_t n = flags->type.count();
  int64_t line = std::min(n, kLongest);
  while (n % line)
    --line;
  const int64_t lines = n / line;
  Value *inLine = b.make(ops::cumsum, {b.reshape(flags, {lines, line})}, {{"axis", int64_t(1)}});
  Value *before = b.make(ops::cumsum, {b.slice(inLine, 1, line - 1, line)}, {{"axis", int64_t(0)}, {"exclusive", int64_t(1)}});
  return b.reshape(b.make(ops::add, {inLine, before}), {n});
}

/// All rows, i64[n]: those whose label is not ignored first, each of both kinds in order.
static Value *labelledFirst(Builder &b, Value *labels, int64_t ignore) {
  const int64_t n = labels->type.count();
  auto number = [&](int64_t v) { return b.scalar(double(v), Elem::I64); };
  Value *isLabelled = b.make(ops::ne, {labels, number(ignore)});
  Value *upTo = countUpTo(b, b.cast(isLabelled, Elem::I64));
  Value *row = b.make(ops::iota, {}, {{"dims", std::vector<int64_t>{n}}, {"axis", int64_t(0)}, {"elem", "i64"}});
  Value *all = b.slice(upTo, 0, n - 1, n);
  Value *ofOthers = b.make(ops::add, {all, b.make(ops::sub, {row, upTo})});
  Value *place = b.make(ops::select, {isLabelled, b.make(ops::sub, {upTo, number(1)}), ofOthers});
  return b.make(ops::scatter_elements, {b.splat(0, row->type), place, row}, {{"axis", int64_t(0)}});
}

void RowRegion::keepLabelled(int64_t count, const Node &losses) {
  Node &last = *nodes.back();
  Builder b(fn, &last, losses.loc);
  Value *first = b.slice(labelledFirst(b, losses.operand(1), ignoredBy(losses)), 0, 0, count);
  RowTile::Flat flat;
  RowTile tile(*this, last, flat, first);
  for (Value *v : outputs) {
    Value *part = tile.make(v);
    Type all = part->type; // the rows are one axis
    all.dims[0] = rows();
    Value *sum = b.make(ops::scatter_add, {b.splat(0, all), first, part}, {{"axis", int64_t(0)}}, v->name);
    v->replaceAllUsesWith(b.reshape(sum, v->type.dims));
  }
  for (Node *n : llvm::reverse(nodes))
    n->erase();
}
