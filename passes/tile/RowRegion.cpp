// Finds what is computed row by row from a product's result.
#include "passes/tile/RowRegion.h"
#include "llvm/ADT/STLExtras.h"

using namespace zcc;
using llvm::ArrayRef;

NodeOrder zcc::orderOf(const Function &f) {
  NodeOrder order;
  for (auto &n : f.nodes)
    order.insert({n.get(), unsigned(order.size())});
  return order;
}

RowRegion::RowRegion(Node &s, const NodeOrder &o) : fn(*s.parent()), seed(s), order(o), width(s.operand(0)->type.dims.back()) {
  const Type &y = seed.result()->type;
  spaces.push_back({elementCount(ArrayRef(y.dims).drop_back())});
  if (elementCount(ArrayRef(seed.operand(1)->type.dims).drop_back(2)) != 1)
    why = "its second operand is a batch of matrices";
  else if (y.dims.back() <= width)
    why = "its result is no wider than what it reads";
  else if (grow())
    finish();
}

/// How many of the first axes are the rows of a space.
std::optional<unsigned> RowRegion::rowAxes(const Type &t, unsigned space) const {
  int64_t count = 1;
  for (unsigned i = 0; i < unsigned(t.ndim()); ++i) {
    count *= t.dims[i];
    if (count == spaces[space].rows)
      return i + 1;
  }
  return std::nullopt;
}

bool RowRegion::isWide(const Value &v) const {
  auto at = inside.find(const_cast<Value *>(&v));
  return at != inside.end() && v.type.count() > width * spaces[at->second.space].rows;
}

void RowRegion::follow(Value &v) {
  for (auto &u : v.uses)
    if (isWide(v) && !members.contains(u.node))
      pending[order.lookup(u.node)] = u.node;
}

/// Adds what reads the product's result, and so on, while it is wide.
bool RowRegion::grow() {
  join(seed, {0, unsigned(seed.result()->type.ndim()) - 1});
  while (!pending.empty()) {
    Node &n = *pending.begin()->second;
    pending.erase(pending.begin());
    if (members.contains(&n))
      continue;
    for (Value *v : n.operands())
      if (v && !bring(v))
        return false;
    if (!add(n))
      return false;
    adoptOperands(n);
  }
  return true;
}

/// Whether a value is outside, or else is now inside.
bool RowRegion::bring(Value *v) {
  if (inside.count(v) || outside.count(v) || !v->def || order.lookup(v->def) <= order.lookup(&seed) || members.contains(v->def))
    return true;
  bool depends = false;
  for (Value *o : v->def->operands()) {
    if (o && !bring(o))
      return false;
    depends |= o && inside.count(o);
  }
  if (depends)
    return add(*v->def);
  outside.insert(v);
  return true;
}

bool RowRegion::add(Node &n) {
  std::optional<Place> at = placeOf(n);
  if (!at) {
    why = "'" + std::string(n.op->name) + "' mixes its rows";
    return false;
  }
  join(n, *at);
  return true;
}

void RowRegion::join(Node &n, Place at) {
  nodes.push_back(&n);
  members.insert(&n);
  for (auto &r : n.results)
    if (auto axes = rowAxes(r->type, at.space)) {
      inside[r.get()] = {at.space, *axes};
      outside.clear();
      follow(*r);
    }
}

// ---- other products of the same rows: the gate beside what it lets through

/// Where the rows of an operand from outside are, if it is wide, has the reader's rows, and more than its operands are.
std::optional<RowRegion::Place> RowRegion::adopted(Value *v, Place reader) const {
  if (!v->def || inside.count(v) || v->type.count() <= width * spaces[reader.space].rows || isConstant(v))
    return std::nullopt;
  auto axes = rowAxes(v->type, reader.space);
  return axes ? std::optional(Place{reader.space, *axes}) : std::nullopt;
}

/// Whether a value comes row by row from products of what is no wider than the seed reads.
bool RowRegion::canAdopt(Value *v, Place reader, int depth) const {
  auto at = adopted(v, reader);
  if (!at || depth == 0)
    return false;
  const Node &n = *v->def;
  if (n.is(ops::matmul))
    return at->axes + 1 == n.result()->type.ndim() && n.operand(0)->type.count() <= width * spaces[at->space].rows &&
           elementCount(ArrayRef(n.operand(1)->type.dims).drop_back(2)) == 1;
  if (n.op->reshapes)
    return canAdopt(n.operand(0), *at, depth - 1);
  bool any = false;
  for (Value *o : n.operands()) {
    bool isRow = o && o->type.ndim() == v->type.ndim() && adopted(o, *at);
    if (isRow && !canAdopt(o, *at, depth - 1))
      return false;
    any |= isRow;
  }
  return any && n.op->isElementwise() && n.op->isPure();
}

void RowRegion::adopt(Value *v, Place reader) {
  auto at = adopted(v, reader);
  if (!at)
    return;
  if (!v->def->is(ops::matmul))
    for (Value *o : v->def->operands())
      if (o && (v->def->op->reshapes || o->type.ndim() == v->type.ndim()))
        adopt(o, *at);
  if (!members.contains(v->def))
    join(*v->def, *at);
}

void RowRegion::adoptOperands(Node &n) {
  constexpr int kDepth = 16;
  auto at = inside.find(n.results.empty() ? nullptr : n.result());
  if (!n.op->isElementwise() || at == inside.end())
    return;
  Place reader = at->second;
  for (Value *v : n.operands())
    if (v && v->type.ndim() == n.result()->type.ndim() && canAdopt(v, reader, kDepth))
      adopt(v, reader);
}

static bool isFromAxis(const std::vector<int64_t> &axes, unsigned first) {
  return llvm::all_of(axes, [&](int64_t a) { return a >= int64_t(first); });
}

/// Along the rows, or across them.
std::optional<RowRegion::Place> RowRegion::placeOfSlice(const Node &n, Place at) {
  const Type &x = n.operand(0)->type, &y = n.result()->type;
  auto isWhole = [&](unsigned a) { return x.dims[a] == y.dims[a] && n.attrs.ints("steps")[a] == 1; };
  bool keepsRows = true, keepsRest = true;
  for (unsigned a = 0; a < unsigned(x.ndim()); ++a)
    (a < at.axes ? keepsRows : keepsRest) &= isWhole(a);
  if (keepsRows)
    return at;
  const auto steps = n.attrs.ints("steps");
  bool isReversed = llvm::any_of(ArrayRef(steps).take_front(at.axes), [](int64_t step) { return step < 0; });
  if (!keepsRest || isReversed || at.space + 1 != spaces.size())
    return std::nullopt;
  spaces.push_back({elementCount(ArrayRef(y.dims).take_front(at.axes)), &n});
  return Place{at.space + 1, at.axes};
}

/// Where the rows of a node's results are, if each comes of the same row of the operands.
std::optional<RowRegion::Place> RowRegion::placeOf(const Node &n) {
  std::optional<Place> at;
  for (Value *v : n.operands())
    if (auto in = inside.find(v); v && in != inside.end()) {
      if (at && (in->second.space != at->space || in->second.axes != at->axes))
        return std::nullopt;
      at = in->second;
    }
  auto isInside = [&](unsigned i) { return inside.count(n.operand(i)); };
  const OpDef &op = *n.op;
  if (!at || n.results.empty() || op.random || !op.isPure())
    return std::nullopt;
  if (n.is(ops::slice))
    return placeOfSlice(n, *at);
  if (op.reshapes) {
    auto axes = rowAxes(n.result()->type, at->space);
    return axes ? std::optional(Place{at->space, *axes}) : std::nullopt;
  }
  bool keeps = false;
  if (op.isElementwise()) {
    const Type &y = n.result()->type;
    keeps = llvm::all_of(n.operands(), [&](Value *v) {
      return !v || !inside.count(v) ||
             (v->type.ndim() == y.ndim() && ArrayRef(v->type.dims).take_front(at->axes) == ArrayRef(y.dims).take_front(at->axes));
    });
  } else if (n.is(ops::matmul)) {
    keeps = isInside(0) && !isInside(1) && at->axes < n.operand(0)->type.ndim() &&
            elementCount(ArrayRef(n.operand(1)->type.dims).drop_back(2)) == 1;
  } else if (n.is(ops::cross_entropy)) {
    keeps = isInside(0) && at->axes == 1 && !(n.operand(2) && isInside(2));
  } else if (op.reduction) {
    keeps = isFromAxis(n.attrs.ints("axes"), at->axes);
  } else if (n.is(ops::transpose)) {
    auto perm = n.attrs.ints("perm");
    keeps = true;
    for (unsigned a = 0; a < at->axes; ++a)
      keeps &= perm[a] == a;
  } else if (n.is(ops::softmax) || n.is(ops::log_softmax) || n.is(ops::layer_norm) || n.is(ops::rms_norm)) {
    keeps = isInside(0) && isFromAxis({n.attrs.i("axis")}, at->axes);
    // Scales and biases are the same for every row.
    const size_t rest = n.result()->type.ndim() - at->axes;
    for (unsigned i = 1; i < n.numOperands(); ++i)
      if (Value *v = n.operand(i))
        keeps &= !isInside(i) && elementCount(ArrayRef(v->type.dims).drop_back(std::min<size_t>(rest, v->type.ndim()))) == 1;
  } else if (n.is(ops::concat) || n.is(ops::gather_elements)) {
    keeps = isFromAxis({n.attrs.i("axis")}, at->axes);
  }
  keeps &= llvm::all_of(n.results, [&](auto &r) { return rowAxes(r->type, at->space); });
  return keeps ? at : std::nullopt;
}

/// Finds what leaves it: narrow values, and results of the function.
bool RowRegion::finish() {
  llvm::sort(nodes, [&](Node *a, Node *b) { return order.lookup(a) < order.lookup(b); });
  for (Node *n : nodes)
    for (auto &r : n->results) {
      bool isResult = llvm::is_contained(fn.results, r.get());
      bool isRead = llvm::any_of(r->uses, [&](auto &u) { return !members.contains(u.node); });
      if (isWide(*r) && isResult) {
        for (unsigned i = 0; i < fn.results.size(); ++i)
          if (fn.results[i] == r.get())
            results.push_back(i);
      } else if (isRead || isResult) {
        auto at = inside.find(r.get());
        if (at == inside.end() || at->second.space + 1 != spaces.size())
          why = "'%" + r->name + "' is read whole";
        outputs.push_back(r.get());
      }
    }
  if (outputs.empty() && why.empty())
    why = "nothing narrower is computed from it";
  return why.empty();
}

void zcc::dropResults(Function &f, std::vector<unsigned> results, llvm::StringRef computed, PassContext &ctx) {
  llvm::sort(results, std::greater<unsigned>());
  for (unsigned i : results) {
    if (i < f.resultNames.size())
      ctx.remarks.push_back("output '" + f.resultNames[i] + "' is computed " + computed.str() +
                            ": the program has no such output");
    f.eraseResult(i);
  }
}
