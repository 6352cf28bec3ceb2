// Applies gradient rules node by node from the last, and adds up what meets at a value.
#include "passes/train/Sweep.h"
#include "ir/Control.h"
#include "ir/StateNames.h"
#include "ir/ops/Rules.h"
#include "passes/Refusal.h"

using namespace zcc;
using llvm::ArrayRef;
using llvm::StringRef;

void Sweep::spread() {
  for (auto &n : fn.nodes)
    if (!n->op->stopsGradient && llvm::any_of(n->operands(), [&](Value *v) { return v && active.count(v); }))
      for (auto &r : n->results)
        if (isFloat(r->type.elem))
          active.insert(r.get());
}

// ---- one node

/// A gradient that is missing. What the model calls a node stands before the message; of a .zir it is the operator.
static llvm::Error refuseGradient(const Node &n, StringRef part, const llvm::Twine &why) {
  bool isNamed = n.loc && !n.loc->nodes.empty();
  std::string op = isNamed ? "this node" : "'" + std::string(n.op->name) + "'";
  return refuseAt(n.loc, "the loss needs the gradient of " + part + op + ", which has none" + why);
}

/// The gradients of a node's operands by its record, before they are summed over broadcast axes.
llvm::Expected<Gradients> Sweep::rule(Node &n, Builder &b, ArrayRef<Value *> dy) {
  const OpDef &op = *n.op;
  if (callsBodies(op))
    return gradientsThroughBodies(n, b, dy, active);
  if (op.noGrad)
    return refuseGradient(n, "", llvm::Twine(": ") + op.noGrad);
  if (op.gradFn) {
    Gradients g = op.gradFn(b, n, dy);
    if (g.empty())
      return refuseGradient(n, "a saved result of ", "");
    return g;
  }
  llvm::SmallVector<std::pair<StringRef, Value *>, 5> names = {{"y", n.result()}, {"dy", dy[0]}};
  for (unsigned i = 0; i < n.numOperands(); ++i)
    names.push_back({op.operands[i].name, n.operand(i)});
  llvm::SmallVector<StringRef, 3> rules;
  StringRef(op.grad).split(rules, ';');
  Gradients out;
  for (unsigned i = 0; i < n.numOperands(); ++i) {
    StringRef text = i < rules.size() ? rules[i].trim() : "0";
    bool wanted = text != "0" && active.count(n.operand(i));
    out.push_back(wanted ? b.expr(text, names) : nullptr);
  }
  return out;
}

bool Sweep::isReached(const Node &n) const {
  return llvm::any_of(n.results, [&](auto &r) { return gradients.count(r.get()) || pads.count(r.get()); });
}

/// Adds to the gradients of a node's operands what the gradients of its results give.
llvm::Error Sweep::backThrough(Node &n, ArrayRef<Value *> dy) {
  Node *last = fn.last();
  Builder b(fn, /*before=*/nullptr, n.loc);
  auto g = rule(n, b, dy);
  if (!g)
    return g.takeError();
  for (unsigned i = 0; i < n.numOperands() && i < g->size(); ++i) {
    Value *v = n.operand(i);
    if (!(*g)[i] || !v || !active.count(v))
      continue;
    Value *d = b.sumTo((*g)[i], v->type.dims);
    if (d->type != v->type)
      return errorAt(n.loc, "the gradient rule of '" + llvm::Twine(n.op->name) + "' gives " + d->type.str() +
                                " for an operand that is " + v->type.str());
    bool fresh = d->def && d->def == fn.last() && d->def != last && llvm::count(*g, d) == 1;
    if (auto e = addTo(v, d, fresh))
      return e;
  }
  return llvm::Error::success();
}

// ---- sums of gradients

/// The gradient of a transposed weight is a transposed product: computes the product the other way
/// round, so that it is dense in the parameter's own layout.
static Value *untransposed(Value *g) {
  if (!rules::swapsLastTwo(g->def))
    return g;
  Value *p = g->def->operand(0);
  if (!p->def || !p->def->is(ops::matmul) || p->uses.size() != 1)
    return g;
  Builder b(*g->def->parent(), /*before=*/p->def, g->def->loc);
  Value *left = rules::swapped(b, p->def->operand(1));
  return b.make(ops::matmul, {left, rules::swapped(b, p->def->operand(0))});
}

static bool isZero(const Value *v) {
  return isConstant(v) && llvm::all_of(v->def->attrs.floats("value"), [](double x) { return x == 0; });
}

/// Notes a contribution to the gradient of `v`; `fresh`: nobody else can have got it.
llvm::Error Sweep::addTo(Value *v, Value *gradient, bool fresh) {
  Node *def = gradient->def;
  if (v->def && viewed.count(v))
    return backThrough(*v->def, {gradient});
  if (def && def->is(ops::pad))
    pads[v].push_back(def);
  else
    add(v, untransposed(gradient), fresh);
  return llvm::Error::success();
}

void Sweep::add(Value *v, Value *gradient, bool fresh) {
  Value *&sum = gradients[v];
  Node *def = gradient->def;
  if (!sum) {
    sum = gradient;
  } else if (fresh && def->is(ops::scatter_add) && isZero(def->operand(0))) {
    def->setOperand(0, sum); // adds into the sum so far instead of into zeros
    sum = gradient;
  } else {
    Loc both = mergeLocs(locOf(sum), locOf(gradient));
    Builder b(fn, /*before=*/nullptr, both ? both : where);
    sum = b.make(ops::add, {sum, gradient});
  }
}

/// The axis along which paddings with zeros lie side by side, in order, and fill the whole; -1 if
/// they do not.
static int64_t tiledAxis(llvm::MutableArrayRef<Node *> pads) {
  int64_t axis = -1;
  for (Node *p : pads) {
    std::vector<int64_t> lo = p->attrs.ints("lo"), hi = p->attrs.ints("hi");
    if (p->attrs.f("value") != 0 || p->attrs.s("mode", "constant") != "constant")
      return -1;
    for (size_t a = 0; a < lo.size(); ++a) {
      if (lo[a] < 0 || hi[a] < 0 || ((lo[a] || hi[a]) && axis >= 0 && axis != int64_t(a)))
        return -1;
      if (lo[a] || hi[a])
        axis = a;
    }
  }
  if (axis < 0)
    return -1;
  auto start = [&](const Node *p) { return p->attrs.ints("lo")[axis]; };
  llvm::stable_sort(pads, [&](Node *a, Node *b) { return start(a) < start(b); });
  int64_t end = 0;
  for (Node *p : pads) {
    if (start(p) != end)
      return -1;
    end += p->operand(0)->type.dims[axis];
  }
  return end == pads[0]->result()->type.dims[axis] ? axis : -1;
}

Value *Sweep::whole(Value *v) {
  if (auto found = pads.find(v); found != pads.end()) {
    llvm::SmallVector<Node *, 3> parts = std::move(found->second);
    pads.erase(found);
    int64_t axis = parts.size() > 1 ? tiledAxis(parts) : -1;
    if (axis >= 0) {
      llvm::SmallVector<Value *, 3> values;
      Loc loc = v->def ? v->def->loc : parts[0]->loc;
      for (Node *p : parts)
        values.push_back(p->operand(0));
      Builder b(fn, /*before=*/nullptr, loc);
      add(v, b.make(ops::concat, values, {{"axis", axis}}), /*fresh=*/false);
    } else {
      for (Node *p : parts)
        add(v, p->result(), /*fresh=*/false);
    }
  }
  Value *g = gradients.lookup(v);
  if (g && g->kind == Value::Result && !StringRef(g->name).starts_with("d."))
    g->name = fn.unique("d." + v->name);
  return g;
}

// ---- the sweep

llvm::Error Sweep::run(ArrayRef<Node *> forward, llvm::function_ref<void(Node &)> done) {
  llvm::Error all = llvm::Error::success(); // everything that has no gradient is told at once
  for (Node *n : llvm::reverse(forward)) {
    if (isReached(*n)) {
      Gradients dy;
      for (auto &r : n->results)
        dy.push_back(whole(r.get()));
      all = llvm::joinErrors(std::move(all), backThrough(*n, dy));
    }
    done(*n);
  }
  return all;
}

llvm::SmallVector<Node *, 0> zcc::nodesOf(const Function &f) {
  llvm::SmallVector<Node *, 0> out;
  for (auto &n : f.nodes)
    out.push_back(n.get());
  return out;
}

GlobalValue *zcc::paramOfGradient(const Node &n) {
  if (!assigns(n))
    return nullptr;
  auto &state = *static_cast<GlobalValue *>(n.operand(0));
  GlobalValue *param = n.parent()->module->global(state.attrs.s("of"));
  return param && param->trained && isGradientName(state.name, param->name) ? param : nullptr;
}
