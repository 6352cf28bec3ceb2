// Builds products and lookups of boxes.
#include "passes/tile/ParameterTiles.h"
#include "ir/Builder.h"
#include "ir/ops/Rules.h"

using namespace zcc;
using llvm::ArrayRef;
using Ints = std::vector<int64_t>;

ParameterTiles::ParameterTiles(Module &module, GlobalValue &g) : m(module), param(g) {
  bool isCopied = llvm::any_of(m.globals, [&](auto &o) { return o->init.kind == Init::Copy && o->init.from == g.name; });
  if (g.type.ndim() != 2)
    why = "it is no matrix";
  else if (param.type.count() == 0)
    why = "it has no elements";
  else if (g.isBox())
    why = "it is a box already";
  else if (isCopied || g.init.kind == Init::Copy)
    why = "another starts as a copy of it";
  else
    collect(g, /*isTransposed=*/false);
  if (why.empty() && readers.empty())
    why = "no product or lookup reads it";
}

void ParameterTiles::collect(Value &v, bool isTransposed) {
  for (auto &f : m.functions)
    if (llvm::is_contained(f->results, &v))
      why = "it is a result of '@" + f->name + "'";
  for (auto &u : v.uses) {
    Node &n = *u.node;
    bool isLookup = n.is(ops::gather) && u.index == 0 && n.attrs.i("axis") == 0 && !isTransposed;
    if (n.is(ops::transpose)) {
      views.push_back(&n);
      collect(*n.result(), isTransposed != rules::swapsLastTwo(&n));
    } else if ((n.is(ops::matmul) && u.index == 1 && n.operand(0) != &v) || isLookup)
      readers.push_back({&n, isTransposed});
    else
      why = "'" + std::string(n.op->name) + "' reads it whole";
  }
}

std::vector<int64_t> ParameterTiles::grid(int64_t most) const {
  bool isLookedUp = llvm::any_of(readers, [](const Reader &r) { return r.node->is(ops::gather); });
  unsigned axis = param.init.encoding == "transposed" && !isLookedUp ? 1 : 0;
  std::vector<int64_t> grid = {1, 1};
  grid[axis] = std::clamp<int64_t>(most, 1, std::max<int64_t>(param.type.dims[axis], 1));
  return grid;
}

// ---- boxes

/// A tensor's boxes, row by row of the grid. Of a state: each belongs to a box of the parameter.
std::vector<GlobalValue *> ParameterTiles::cut(GlobalValue &g, ArrayRef<GlobalValue *> of) {
  std::vector<GlobalValue *> all;
  for (int64_t r = 0; r < count(0); ++r)
    for (int64_t c = 0; c < count(1); ++c) {
      Init init;
      init.kind = Init::Box;
      init.from = g.name;
      init.start = {begin(0, r), begin(1, c)};
      Type t = g.type.withDims({begin(0, r + 1) - begin(0, r), begin(1, c + 1) - begin(1, c)});
      std::string name = of.empty() ? param.name + ".t" + std::to_string(all.size()) : of[all.size()]->name + ".master";
      GlobalValue *box = m.addGlobal(g.role, name, t, init);
      box->trained = g.trained;
      box->loc = g.loc;
      box->attrs = g.attrs;
      box->attrs.erase("tiles");
      box->attrs.erase("exported_as");
      if (!of.empty()) {
        box->attrs.set("of", of[all.size()]->name);
        of[all.size()]->attrs.set("master", box->name);
      }
      all.push_back(box);
    }
  g.role = GlobalValue::Tensor;
  g.trained = false;
  Attrs kept;
  for (const char *note : {"master", "exported_as"})
    if (g.attrs.has(note))
      kept.set(note, g.attrs.s(note));
  g.attrs = kept;
  return all;
}

/// Box i along an axis, and box `other` along the other one.
GlobalValue *ParameterTiles::boxAt(unsigned axis, int64_t i, int64_t other) const {
  return boxes[axis == 0 ? i * count(1) + other : other * count(1) + i];
}

// ---- what reads them

/// Boxes along the axis that is summed over give partial sums, those along the other one columns.
Value *ParameterTiles::product(const Reader &r) {
  Node &n = *r.node;
  Builder b(*n.parent(), &n, n.loc);
  const unsigned inner = r.isTransposed ? 1 : 0, outer = 1 - inner, last = n.operand(0)->type.ndim() - 1;
  std::vector<Value *> parts, columns;
  auto noted = [&](Value *v) { // of a tile of rows
    if (n.attrs.has("tile"))
      v->def->attrs.set("tile", n.attrs.ints("tile"));
    return v;
  };
  for (int64_t i = 0; i < count(inner); ++i)
    parts.push_back(b.slice(n.operand(0), int(last), begin(inner, i), begin(inner, i + 1)));
  for (int64_t j = 0; j < count(outer); ++j) {
    Value *sum = nullptr;
    for (int64_t i = 0; i < count(inner); ++i) {
      Value *box = boxAt(inner, i, j), *w = r.isTransposed ? b.swapLast(box) : box;
      sum = noted(sum ? b.make(ops::add_matmul, {sum, parts[i], w}) : b.make(ops::matmul, {parts[i], w}));
    }
    columns.push_back(sum);
  }
  return columns.size() == 1 ? columns[0] : noted(b.make(ops::concat, columns, {{"axis", int64_t(last)}}, n.result()->name));
}

/// Each box gives the rows that it has, and zeros, of a row behind its last, for all others; they are added one after the other
/// into the same memory. What is outside of all boxes is outside of the first one, too, which the kernel finds.
Value *ParameterTiles::rowsOf(Builder &b, Value *index, int64_t column) {
  auto number = [&](int64_t v) { return b.scalar(double(v), index->type.elem); };
  auto isIn = [&](int64_t from, int64_t to) {
    return b.make(ops::and_, {b.make(ops::ge, {index, number(from)}), b.make(ops::lt, {index, number(to)})});
  };
  auto found = [&](int64_t i, Value *at) {
    Value *longer = b.make(ops::pad, {boxAt(0, i, column)}, {{"lo", Ints{0, 0}}, {"hi", Ints{1, 0}}});
    return b.make(ops::gather, {longer, at}, {{"axis", int64_t(0)}});
  };
  const int64_t rows = param.type.dims[0], own = begin(0, 1);
  Value *outside = b.make(ops::select, {b.make(ops::lt, {index, number(0)}), number(rows + 1), index});
  outside = b.make(ops::select, {b.make(ops::ge, {index, number(rows)}), number(rows + 1), outside});
  Value *sum = found(0, b.make(ops::select, {isIn(own, rows), number(own), outside}));
  Value *places = b.make(ops::iota, {}, {{"dims", Ints{index->type.dims[0]}}, {"axis", int64_t(0)}});
  for (int64_t i = 1; i < count(0); ++i) {
    const int64_t from = begin(0, i), to = begin(0, i + 1);
    Value *at = b.make(ops::select, {isIn(from, to), b.make(ops::sub, {index, number(from)}), number(to - from)});
    sum = b.make(ops::scatter_add, {sum, places, found(i, at)}, {{"axis", int64_t(0)}});
  }
  return sum;
}

Value *ParameterTiles::lookup(Node &n) {
  Builder b(*n.parent(), &n, n.loc);
  Value *index = n.operand(1), *zero = b.scalar(0, index->type.elem);
  Value *rows = b.scalar(double(param.type.dims[0]), index->type.elem);
  index = b.reshape(index, {index->type.count()});
  // Counted from the front.
  index = b.make(ops::select, {b.make(ops::lt, {index, zero}), b.make(ops::add, {index, rows}), index});
  std::vector<Value *> columns;
  for (int64_t c = 0; c < count(1); ++c)
    columns.push_back(rowsOf(b, index, c));
  Value *all = columns.size() == 1 ? columns[0] : b.make(ops::concat, columns, {{"axis", int64_t(1)}}, n.result()->name);
  return b.reshape(all, n.result()->type.dims);
}

void ParameterTiles::split(ArrayRef<int64_t> boxesByAxis) {
  for (unsigned axis = 0; axis < 2; ++axis)
    size.push_back((param.type.dims[axis] + boxesByAxis[axis] - 1) / boxesByAxis[axis]);
  GlobalValue *master = m.global(param.attrs.s("master"));
  boxes = cut(param, {});
  if (master)
    cut(*master, boxes);
  for (const Reader &r : readers) {
    Value *v = r.node->is(ops::gather) ? lookup(*r.node) : product(r);
    r.node->result()->replaceAllUsesWith(v);
    r.node->erase();
  }
  for (Node *view : llvm::reverse(views))
    view->erase();
}
