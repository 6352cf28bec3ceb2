// Computes what depends on constants only: shape arithmetic, masks, position tables.
//
//   %i = iota {axis = 0, dims = [4, 1]}        : i64[4x1]
//   %j = iota {axis = 1, dims = [1, 4]}        : i64[1x4]
//   %m = le %j, %i                             : bool[4x4]
// becomes the global
//   const %m : bool[4x4] = "..."[0, 16]
//
// Parameters are never read. Views of constants stay views when computing them would only store the data again.
#include "ir/Builder.h"
#include "ir/Interpreter.h"
#include "passes/Pass.h"
#include "passes/simplify/ConstantValue.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"

using namespace zcc;

namespace {
class Folder {
public:
  Folder(Module &m, Function &f) : values_(m), f_(f) {}
  bool run();

private:
  bool inlineSmallGlobals();
  bool settleEmpty();
  void findFoldable();
  void findNeeded();
  bool staysView(const Node &n) const;
  bool isResult(const Value *v) const { return llvm::is_contained(f_.results, v); }

  ConstantValues values_;
  Function &f_;
  llvm::DenseSet<const Node *> foldable_;      ///< nodes that can be computed
  llvm::DenseSet<const Value *> needed_;       ///< their results that others read
  llvm::DenseMap<const Value *, int> readers_; ///< foldable nodes still to read it
};
} // namespace

/// Constants of few or equal elements become nodes, where rules see their value. Not the ids of draws, which would tell apart
/// kernels that are otherwise equal.
bool Folder::inlineSmallGlobals() {
  bool changed = false;
  std::vector<GlobalValue *> globals;
  for (auto &g : f_.module->globals)
    if (g->role == GlobalValue::Const && !g->exported)
      globals.push_back(g.get());
  for (GlobalValue *g : globals) {
    std::vector<Value::Use> uses;
    for (auto &u : g->uses)
      if (u.node->parent() == &f_ && !u.node->op->random)
        uses.push_back(u);
    const Tensor *t = uses.empty() ? nullptr : values_.value(g);
    if (!t || t->count() == 0)
      continue;
    if (t->count() > kMostInline && !isSplat(*t)) {
      values_.forget(g);
      continue;
    }
    Value *v = Builder(f_, f_.first(), g->loc ? g->loc : uses[0].node->loc).constant(*t, g->name);
    for (auto &u : uses)
      u.node->setOperand(u.index, v);
    changed = true;
  }
  return changed;
}

/// What has no elements, and what is made of nothing else (the sum of no elements), is a constant: no loop runs over
/// tensors without elements.
bool Folder::settleEmpty() {
  auto isEmpty = [](const Value *v) { return v->type.count() == 0; };
  bool changed = false;
  for (Node *n = f_.first(); n;) {
    Node *at = n;
    n = n->next();
    if (at->op->leaf == Leaf::Constant || !isFoldable(*at))
      continue;
    std::vector<Tensor> out;
    if (llvm::all_of(at->results, [&](auto &r) { return isEmpty(r.get()); })) {
      for (auto &r : at->results)
        out.emplace_back(r->type);
    } else {
      if (llvm::none_of(at->operands(), [&](Value *v) { return v && isEmpty(v); }))
        continue;
      std::vector<Tensor> made;
      made.reserve(at->numOperands());
      llvm::SmallVector<const Tensor *, 4> in;
      bool all = true;
      for (Value *v : at->operands()) {
        if (v && isEmpty(v))
          in.push_back(&made.emplace_back(v->type));
        else
          in.push_back(v ? values_.value(v) : nullptr);
        all &= !v || in.back();
      }
      if (!all)
        continue;
      auto computed = evalNode(*at, in);
      if (!computed) {
        llvm::consumeError(computed.takeError()); // the verifier and the kernels report it
        continue;
      }
      out.assign(computed->begin(), computed->end());
    }
    for (auto [r, t] : llvm::zip(at->results, out)) {
      Value *v = Builder(f_, at, at->loc).constant(t, r->name);
      if (v->def)
        std::swap(v->name, r->name);
      r->replaceAllUsesWith(v);
      values_.forget(r.get());
    }
    at->erase();
    changed = true;
  }
  return changed;
}

void Folder::findFoldable() {
  for (auto &n : f_.nodes) {
    if (n->numOperands() == 0 || !isFoldable(*n))
      continue;
    bool all =
        llvm::all_of(n->operands(), [&](Value *v) { return !v || isConstantLeaf(v) || (v->def && foldable_.count(v->def)); });
    bool fits =
        llvm::all_of(n->results, [](auto &r) { return r->type.count() > 0 && r->type.count() <= ConstantValues::kMaxElements; });
    if (all && fits)
      foldable_.insert(n.get());
  }
}

/// A broadcast is free and its result larger; other views of data that is stored anyway are free
/// too.
bool Folder::staysView(const Node &n) const {
  if (!n.op->view || n.result()->type.count() <= kMostInline || values_.splat(n.result()))
    return false;
  const Value *v = n.operand(0);
  if (n.is(ops::broadcast) && n.result()->type.count() > v->type.count())
    return true;
  while (v->def && v->def->op->view)
    v = v->def->operand(0);
  return isConstantLeaf(v);
}

/// From the last node to the first: what is read by nodes that stay, and what must be computed for
/// that.
void Folder::findNeeded() {
  for (auto i = f_.nodes.rbegin(); i != f_.nodes.rend(); ++i) {
    Node *n = i->get();
    if (!foldable_.count(n))
      continue;
    bool stays = false, computed = false;
    for (auto &r : n->results) {
      bool byOthers = isResult(r.get()) || llvm::any_of(r->uses, [&](auto &u) { return !foldable_.count(u.node); });
      if (byOthers)
        needed_.insert(r.get());
      stays |= needed_.count(r.get());
      computed |= readers_.lookup(r.get()) > 0;
    }
    if (stays && staysView(*n)) {
      needed_.erase(n->result());
      needed_.insert(n->operand(0));
      stays = false;
    }
    if (stays || computed)
      for (Value *o : n->operands())
        if (o)
          ++readers_[o];
  }
}

bool Folder::run() {
  bool changed = inlineSmallGlobals();
  changed |= settleEmpty();
  findFoldable();
  findNeeded();
  std::vector<Node *> order;
  for (auto &n : f_.nodes)
    if (foldable_.count(n.get()))
      order.push_back(n.get());
  for (Node *n : order) {
    bool wanted = llvm::any_of(n->results, [&](auto &r) { return needed_.count(r.get()) || readers_.lookup(r.get()) > 0; });
    if (!wanted)
      continue;
    for (auto &r : n->results) {
      const Tensor *t = values_.value(r.get());
      if (!t || !needed_.count(r.get()) || !(r->hasUses() || isResult(r.get())))
        continue;
      Value *v = Builder(f_, n, n->loc).constant(*t, r->name);
      if (v->def)
        std::swap(v->name, r->name);
      readers_[v] = readers_.lookup(r.get());
      r->replaceAllUsesWith(v);
      values_.forget(r.get());
      changed = true;
    }
    for (Value *o : n->operands())
      if (o && --readers_[o] == 0)
        values_.forget(o);
  }
  for (Node *n : llvm::reverse(order))
    if (!n->hasUses() && llvm::none_of(n->results, [&](auto &r) { return isResult(r.get()); })) {
      n->erase();
      changed = true;
    }
  return changed;
}

llvm::Expected<bool> zcc::foldConstants(Module &m, PassContext &) {
  bool changed = false;
  for (auto &f : m.functions)
    if (!f->isKernel)
      changed |= Folder(m, *f).run();
  return changed;
}
