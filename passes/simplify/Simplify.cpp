// Canonical forms, and the families that models spell out, by small rules applied until none matches; equal pure nodes are
// merged. Runs before and after differentiation; after the optimizer has been appended values of parameters change inside a
// function, so it refuses then.
//
//   %s = sigmoid %x                             : f32[8x64]
//   %y = mul %x, %s                             : f32[8x64]
// becomes
//   %y = silu %x                                : f32[8x64]
#include "passes/simplify/Simplify.h"
#include "ir/Equal.h"
#include "ir/Steps.h"
#include "passes/Pass.h"
#include "passes/Refusal.h"
#include "llvm/ADT/Hashing.h"
#include "llvm/ADT/SetVector.h"
#include <algorithm>
#include <cmath>
#include <map>

using namespace zcc;

// ---- what rules share

Builder Rewriter::before(Node &n, std::initializer_list<const Node *> with) const {
  Loc loc = n.loc;
  for (const Node *w : with)
    if (w && w->loc != loc)
      loc = mergeLocs(loc, w->loc);
  return Builder(*n.parent(), &n, loc);
}

void Rewriter::markUsers(Value *v) {
  for (auto &u : v->uses)
    if (u.node->parent() == &function)
      dirty.insert(u.node);
}

void Rewriter::replace(Value *old, Value *v) {
  bool isNew = v->kind == Value::Result && v->uses.empty() && uses(v) == 0;
  markUsers(old);
  old->replaceAllUsesWith(v);
  if (isNew)
    std::swap(old->name, v->name);
}

void Rewriter::replaceShaped(Node &n, Value *v) {
  const Type &t = n.result()->type;
  Builder b = before(n);
  if (v->type.dims != t.dims)
    v = v->type.count() == t.count() ? b.reshape(v, t.dims) : b.expand(v, t.dims);
  replace(n.result(), v);
}

bool Rewriter::isNear(Value *v, double x) const {
  auto s = v ? splat(v) : std::nullopt;
  return s && std::abs(*s - x) <= 1e-6 * std::abs(x);
}

bool Rewriter::isDead(const Node &n) const {
  return n.op->isPure() && !n.results.empty() && llvm::all_of(n.results, [&](auto &v) { return uses(v.get()) == 0; });
}

unsigned Rewriter::uses(const Value *v) const { return v->uses.size() + llvm::count(function.results, v); }

void Rewriter::eraseDead(Node *first) {
  std::vector<Node *> work{first};
  while (!work.empty()) {
    Node *n = work.back();
    work.pop_back();
    if (!known.count(n) || !isDead(*n))
      continue;
    llvm::SmallSetVector<Value *, 4> read;
    for (Value *o : n->operands())
      if (o)
        read.insert(o);
    for (auto &v : n->results)
      constants.forget(v.get());
    n->erase();
    dirty.erase(n);
    known.erase(n);
    for (Value *o : read) {
      if (uses(o) == 1)
        markUsers(o); // rules that ask for a single use may match now
      if (o->def)
        work.push_back(o->def);
    }
  }
}

void Rewriter::eraseNewBefore(Node &n) {
  while (Node *p = n.prev()) {
    if (known.count(p))
      return;
    for (auto &v : p->results)
      constants.forget(v.get());
    p->erase();
  }
}

std::optional<Mean> zcc::meanOf(const Rewriter &r, Value *v) {
  Node *scaled = behindReshapes(v)->def; // axes that were dropped and put back
  if (!scaled || (!scaled->is(ops::mul) && !scaled->is(ops::div)))
    return std::nullopt;
  Node *sum = defBy(behindReshapes(scaled->operand(0)), ops::reduce_sum);
  if (!sum || sum->result()->type.dims != v->type.dims)
    return std::nullopt;
  double n = double(sum->operand(0)->type.count()) / double(sum->result()->type.count());
  if (!r.isNear(scaled->operand(1), scaled->is(ops::mul) ? 1 / n : n))
    return std::nullopt;
  std::vector<int64_t> axes = sum->attrs.ints("axes");
  return Mean{sum->operand(0), Dims(axes.begin(), axes.end())};
}

static void multiply(const Rewriter &r, Value *v, bool isRoot, Product &p) {
  if (auto c = r.splat(v)) {
    p.scale *= *c;
    return;
  }
  Node *n = v->def;
  bool opens = isRoot || r.hasOneUse(v);
  if (opens && n && n->is(ops::mul)) {
    multiply(r, n->operand(0), false, p);
    multiply(r, n->operand(1), false, p);
    return;
  }
  if (opens && n && n->is(ops::div) && r.splat(n->operand(1))) {
    multiply(r, n->operand(0), false, p);
    p.scale /= *r.splat(n->operand(1));
    return;
  }
  p.factors.push_back(v);
}

Product zcc::productOf(const Rewriter &r, Value *v) {
  Product p;
  multiply(r, v, true, p);
  return p;
}

// ---- equal nodes

static uint64_t hashOf(const Node &n) {
  return llvm::hash_combine(n.op, llvm::hash_combine_range(n.operands().begin(), n.operands().end()), hashOf(n.attrs));
}

static bool isSame(const Node &a, const Node &b) {
  return a.op == b.op && a.operands() == b.operands() && a.results.size() == b.results.size() && areEqual(a.attrs, b.attrs) &&
         a.result()->type == b.result()->type;
}

/// Equal pure nodes become the first of them. What reads a global that this function writes is left
/// alone.
static bool mergeEqual(Rewriter &r) {
  llvm::DenseSet<const Value *> written;
  for (auto &n : r.function.nodes)
    for (unsigned i = 0; i < n->numOperands(); ++i)
      if (n->op->updates(i))
        written.insert(n->operand(i));
  llvm::DenseMap<uint64_t, llvm::SmallVector<Node *, 1>> seen;
  seen.reserve(r.function.nodes.size());
  bool changed = false;
  for (Node *n = r.function.first(), *next; n; n = next) {
    next = n->next();
    if (!n->op->isPure() || n->op->structural || n->results.empty() ||
        llvm::any_of(n->operands(), [&](Value *v) { return written.count(v); }))
      continue;
    auto &same = seen[hashOf(*n) / 2]; // the greatest numbers are taken
    auto i = llvm::find_if(same, [&](Node *o) { return ++steps, isSame(*o, *n); });
    if (i == same.end()) {
      same.push_back(n);
      continue;
    }
    for (auto [old, v] : llvm::zip(n->results, (*i)->results))
      r.replace(old.get(), v.get());
    (*i)->loc = mergeLocs((*i)->loc, n->loc);
    changed = true;
    r.eraseDead(n);
  }
  return changed;
}

// ---- the driver

static const std::vector<Rule> &rulesFor(const OpDef *op) {
  static const auto table = [] {
    std::map<const OpDef *, std::vector<Rule>> t;
    for (auto family :
         {arithmeticRules(), shapeRules(), indexRules(), activationRules(), softmaxRules(), normRules(), attentionRules()})
      for (const Rule &rule : family)
        for (const OpDef *o : allOps())
          if (!rule.op || rule.op == o)
            t[o].push_back(rule);
    return t;
  }();
  static const std::vector<Rule> none;
  auto i = table.find(op);
  return i == table.end() ? none : i->second;
}

static bool applyRules(Rewriter &r, Node &n) {
  for (const Rule &rule : rulesFor(n.op)) {
    if (rule.apply(n, r))
      return true;
    r.eraseNewBefore(n);
  }
  return false;
}

/// Applies rules until none matches. Whether one did.
static llvm::Expected<bool> rewriteAll(Rewriter &r, int64_t &budget) {
  bool changed = false;
  while (!r.dirty.empty())
    for (Node *n = r.function.first(); n;) {
      Node *next = n->next();
      ++steps;
      if (!r.dirty.erase(n) || !applyRules(r, *n)) {
        n = next;
        continue;
      }
      if (--budget == 0)
        return errorAt(n->loc, "simplify does not come to an end at '" + llvm::StringRef(n->op->name) + "'");
      changed = true;
      r.dirty.insert(n);
      Node *from = n; // new nodes are right before it, and are looked at first
      while (from->prev() && r.known.insert(from->prev()).second) {
        from = from->prev();
        r.dirty.insert(from);
      }
      bool replaced = r.isDead(*n);
      if (replaced)
        r.eraseDead(n);
      n = replaced && from == n ? next : from;
    }
  return changed;
}

static llvm::Expected<bool> simplifyFunction(Module &m, Function &f) {
  Rewriter r(m, f);
  for (auto &n : f.nodes) {
    r.known.insert(n.get());
    r.dirty.insert(n.get());
  }
  // Each rule makes the function smaller or more canonical; two that undo each other would run
  // forever.
  int64_t budget = 1000 + 200 * int64_t(f.nodes.size());
  bool changed = mergeEqual(r);
  while (true) {
    auto rewritten = rewriteAll(r, budget);
    if (!rewritten)
      return rewritten;
    bool merged = *rewritten && mergeEqual(r);
    changed |= *rewritten;
    if (!merged)
      return changed;
  }
}

llvm::Expected<bool> zcc::simplify(Module &m, PassContext &) {
  if (m.has(Property::Optimized))
    return refuse("simplify must come before append-optimizer");
  bool changed = false;
  for (auto &f : m.functions) {
    if (f->isKernel)
      continue;
    auto c = simplifyFunction(m, *f);
    if (!c)
      return c;
    changed |= *c;
  }
  return changed;
}
