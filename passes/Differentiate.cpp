// The backward of @micro, appended to it: one reverse sweep over the nodes between trained
// parameters and the loss.
//
//   func @micro(%x : f32[8x4]) -> (f32[]) {
//     %y = matmul %x, %w                    : f32[8x2]
//     ...
// gains
//     %d.y = ...                            : f32[8x2]
//     %xt  = transpose %x {perm = [1, 0]}   : f32[4x8]
//     %d.w = matmul %xt, %d.y               : f32[4x2]
//     assign %w.grad, %d.w
//
// and the module gains `state %w.grad : f32[4x2] = zero {of = "w"}`. Nodes are appended as the
// sweep meets them, each assign as soon as its gradient is complete, so later passes use and free
// gradients in this order.
#include "ir/ops/Rules.h"
#include "passes/Pass.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"

using namespace zcc;
using llvm::ArrayRef;
using llvm::StringRef;
using Gradients = llvm::SmallVector<Value *, 4>;

namespace {
class Sweep {
public:
  Sweep(Module &m, Function &f, PassContext &c) : module(m), fn(f), ctx(c) {}
  llvm::Error run();

private:
  void findActive();
  llvm::Error checkLoss();
  bool dependsWithoutGradient(const Value *loss) const;
  bool isReached(const Node &n) const;
  llvm::Error backThrough(Node &n, ArrayRef<Value *> dy);
  llvm::Expected<Gradients> rule(Node &n, Builder &b, ArrayRef<Value *> dy);
  llvm::Error addTo(Value *v, Value *gradient, bool fresh);
  void add(Value *v, Value *gradient, bool fresh);
  Value *whole(Value *v);
  void store(GlobalValue *param);
  void dropDead(Node *last);

  Module &module;
  Function &fn;
  PassContext &ctx;
  llvm::SmallVector<GlobalValue *, 16> trained;
  llvm::DenseSet<Value *> active; ///< depend on a trained parameter and can carry a gradient
  llvm::DenseMap<Value *, GlobalValue *> viewed; ///< the parameter that a view looks into
  llvm::DenseMap<Node *, llvm::SmallVector<GlobalValue *, 1>> firstUses; ///< but for views
  llvm::DenseMap<Value *, Value *> gradients;
  /// Gradients of slices of a value, not yet added.
  llvm::DenseMap<Value *, llvm::SmallVector<Node *, 3>> pads;
  llvm::DenseSet<GlobalValue *> stored;
};
} // namespace

static Loc locOf(const Value *v) { return v->def ? v->def->loc : nullptr; }

// ---- what needs a gradient

/// Finds what depends on a trained parameter, and the first use of each, seen through views.
void Sweep::findActive() {
  for (auto &g : module.globals)
    if (g->role == GlobalValue::Param && g->trained && isFloat(g->type.elem)) {
      trained.push_back(g.get());
      active.insert(g.get());
      viewed[g.get()] = g.get();
    }
  llvm::DenseSet<GlobalValue *> seen;
  for (auto &n : fn.nodes) {
    bool depends = false;
    for (Value *v : n->operands()) {
      depends |= v && active.count(v);
      GlobalValue *param = viewed.lookup(v);
      if (param && n->op->view)
        viewed[n->result()] = param;
      else if (param && seen.insert(param).second)
        firstUses[n.get()].push_back(param);
    }
    for (auto &r : n->results)
      if (depends && isFloat(r->type.elem))
        active.insert(r.get());
  }
}

/// Whether the loss follows from a trained parameter at all: through integers or comparisons, which carry no gradient.
bool Sweep::dependsWithoutGradient(const Value *loss) const {
  llvm::DenseSet<const Value *> depends(trained.begin(), trained.end());
  for (auto &n : fn.nodes)
    if (llvm::any_of(n->operands(), [&](Value *v) { return v && depends.count(v); }))
      for (auto &r : n->results)
        depends.insert(r.get());
  return depends.count(loss);
}

llvm::Error Sweep::checkLoss() {
  if (fn.results.size() != 1)
    return error("'@micro' must return the loss alone, it returns " +
                 llvm::Twine(fn.results.size()) + " values");
  const Value *loss = fn.results[0];
  if (!loss->type.isScalar() || !isFloat(loss->type.elem))
    return errorAt(locOf(loss), "the loss '" + loss->name +
                                    "' must be a floating-point scalar, it is " + loss->type.str());
  if (trained.empty())
    return error("no parameter is trained");
  if (!active.count(loss) && !dependsWithoutGradient(loss))
    return errorAt(locOf(loss), "the loss '" + loss->name + "' depends on no trained parameter");
  return llvm::Error::success();
}

// ---- one node

/// The gradients of a node's operands by its record, before they are summed over broadcast axes.
llvm::Expected<Gradients> Sweep::rule(Node &n, Builder &b, ArrayRef<Value *> dy) {
  const OpDef &op = *n.op;
  if (op.noGrad)
    return errorAt(n.loc, "the loss needs the gradient of '" + llvm::Twine(op.name) +
                              "', which has none: " + op.noGrad);
  if (op.gradFn) {
    Gradients g = op.gradFn(b, n, dy);
    if (g.empty())
      return errorAt(n.loc, "the loss needs the gradient of a saved result of '" +
                                llvm::Twine(op.name) + "', which has none");
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
  return llvm::any_of(n.results,
                      [&](auto &r) { return gradients.count(r.get()) || pads.count(r.get()); });
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
      return errorAt(n.loc, "the gradient rule of '" + llvm::Twine(n.op->name) + "' gives " +
                                d->type.str() + " for an operand that is " + v->type.str());
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
  if (!p->def || p->def->op != &ops::matmul || p->uses.size() != 1)
    return g;
  Builder b(*g->def->parent(), /*before=*/p->def, g->def->loc);
  Value *left = rules::swapped(b, p->def->operand(1));
  return b.make(ops::matmul, {left, rules::swapped(b, p->def->operand(0))});
}

static bool isZero(const Value *v) {
  return v->def && v->def->op == &ops::constant &&
         llvm::all_of(v->def->attrs.floats("value"), [](double x) { return x == 0; });
}

/// Notes a contribution to the gradient of `v`; `fresh`: nobody else can have got it. Through views
/// of a parameter it goes at once, so that the gradient is complete when the last user is met,
/// wherever the view stands.
llvm::Error Sweep::addTo(Value *v, Value *gradient, bool fresh) {
  Node *def = gradient->def;
  if (v->def && viewed.count(v))
    return backThrough(*v->def, {gradient});
  if (def && def->op == &ops::pad)
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
  } else if (fresh && def->op == &ops::scatter_add && isZero(def->operand(0))) {
    def->setOperand(0, sum); // adds into the sum so far instead of into zeros
    sum = gradient;
  } else {
    Builder b(fn, /*before=*/nullptr, mergeLocs(locOf(sum), locOf(gradient)));
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

/// The complete gradient of `v`, or nullptr. Slices that share a value out give one concatenation.
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

/// Ends the gradient of a parameter all of whose uses have been met.
void Sweep::store(GlobalValue *param) {
  Value *g = whole(param);
  if (!g || !stored.insert(param).second)
    return;
  GlobalValue *state =
      module.addGlobal(GlobalValue::State, param->name + ".grad", param->type, Init());
  state->attrs.set("of", param->name);
  state->loc = param->loc;
  Builder b(fn, /*before=*/nullptr, mergeLocs(locOf(g), param->loc));
  b.node(ops::assign, {state, g});
}

/// Erases nodes behind `last` that only gradients of passive operands needed.
void Sweep::dropDead(Node *last) {
  for (Node *n = fn.last(); n && n != last;) {
    Node *before = n->prev();
    if (n->op->isPure() && !n->hasUses())
      n->erase();
    n = before;
  }
}

llvm::Error Sweep::run() {
  findActive();
  if (auto e = checkLoss())
    return e;
  llvm::SmallVector<Node *, 0> forward;
  for (auto &n : fn.nodes)
    forward.push_back(n.get());
  Value *loss = fn.results[0];
  Builder b(fn, /*before=*/nullptr, locOf(loss));
  // With a loss scale all gradients are multiplied by it.
  GlobalValue *scale = module.global("loss_scale");
  if (active.count(loss))
    gradients[loss] = scale ? scale : b.scalar(1, loss->type.elem);
  for (Node *n : llvm::reverse(forward)) {
    if (isReached(*n)) {
      Gradients dy;
      for (auto &r : n->results)
        dy.push_back(whole(r.get()));
      if (auto e = backThrough(*n, dy))
        return e;
    }
    for (GlobalValue *p : firstUses.lookup(n))
      store(p);
  }
  for (GlobalValue *p : trained) {
    store(p); // a loss that is but a view of it has no other use
    if (!stored.count(p))
      ctx.remarks.push_back("parameter '" + p->name +
                            "' does not influence the loss; it stays untouched");
  }
  dropDead(forward.empty() ? nullptr : forward.back());
  return llvm::Error::success();
}

llvm::Expected<bool> zcc::differentiate(Module &m, PassContext &ctx) {
  Function *micro = m.function("micro");
  if (!micro)
    return error("there is no function '@micro' to differentiate");
  if (auto e = Sweep(m, *micro, ctx).run())
    return e;
  return true;
}
