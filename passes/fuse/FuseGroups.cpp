// Grows groups, joins siblings, and computes again what is cheap.
#include "passes/fuse/FuseGroups.h"
#include "ir/Op.h"
#include "ir/Steps.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/SmallPtrSet.h"
#include <algorithm>

using namespace zcc;

// ---- one group

bool FuseGroup::contains(const Node *n) const { return llvm::is_contained(nodes, n); }

/// Reshapes that lead from members to members, without order.
static llvm::SmallPtrSet<Node *, 8> innerReshapes(const std::vector<Node *> &nodes) {
  llvm::SmallPtrSet<const Node *, 32> members(nodes.begin(), nodes.end());
  llvm::SmallPtrSet<Node *, 8> out;
  for (Node *n : nodes)
    for (Value *v : n->operands()) {
      if (!v || !v->def || !v->def->op->reshapes)
        continue;
      Value *root = behindReshapes(v);
      if (!root->def || !members.count(root->def))
        continue;
      for (Value *w = v; w != root; w = w->def->operand(0))
        out.insert(w->def);
    }
  return out;
}

/// Members and inner reshapes, each after what it reads.
static std::vector<Node *> withInner(const std::vector<Node *> &nodes) {
  auto inner = innerReshapes(nodes);
  if (inner.empty())
    return nodes;
  std::vector<Node *> out;
  llvm::SmallPtrSet<Node *, 8> placed;
  for (Node *n : nodes) {
    for (Value *v : n->operands()) {
      std::vector<Node *> chain;
      for (; v && v->def && inner.count(v->def); v = v->def->operand(0))
        chain.push_back(v->def);
      for (Node *r : llvm::reverse(chain))
        if (placed.insert(r).second)
          out.push_back(r);
    }
    out.push_back(n);
  }
  return out;
}

std::vector<Node *> FuseGroup::withReshapes() const { return withInner(nodes); }

std::vector<Value *> FuseGroup::outputs() const {
  auto inner = innerReshapes(nodes);
  llvm::SmallPtrSet<const Node *, 32> members(nodes.begin(), nodes.end());
  // A value is read outside if a chain of reshapes from it ends outside.
  std::function<bool(const Value *)> readOutside = [&](const Value *v) {
    for (auto &u : v->uses) {
      if (members.count(u.node))
        continue;
      if (!inner.count(u.node) || readOutside(u.node->result()))
        return true;
    }
    return v->isReturned();
  };
  std::vector<Value *> out;
  for (Node *n : nodes)
    if (readOutside(n->result()))
      out.push_back(n->result());
  return out;
}

std::vector<Value *> FuseGroup::inputs() const {
  auto inner = innerReshapes(nodes);
  llvm::SmallPtrSet<const Node *, 32> members(nodes.begin(), nodes.end());
  llvm::SetVector<Value *, std::vector<Value *>> out;
  for (Node *n : nodes)
    for (Value *v : n->operands())
      if (v && !(v->def && (members.count(v->def) || inner.count(v->def))))
        out.insert(v);
  return out.takeVector();
}

// ---- all groups

FuseGroups::FuseGroups(Function &fn) : f(fn), results(fn.results.begin(), fn.results.end()) {
  for (auto &n : f.nodes) {
    n->number = unsigned(byIndex.size());
    members.push_back({single(n.get()), n->number});
    byIndex.push_back(n.get());
  }
  addMemoryDependences();
  addPlaces();
  findTrunks();
}

FuseGroup *FuseGroups::single(Node *n) {
  groups.push_back(std::make_unique<FuseGroup>());
  FuseGroup *g = groups.back().get();
  g->nodes = {n};
  if (isGenerated(*n) && !n->op->reshapes)
    g->shape = kernelShape(g->nodes);
  g->isKernel = g->shape.has_value();
  g->readsKept = n->attrs.i("kept");
  sequence.append(g);
  return g;
}

void FuseGroups::dependOn(Node *n, Node *earlier) {
  of(n).after.push_back(earlier);
  of(earlier).followers.push_back(n);
}

/// What is written in place comes after its earlier readers and before its later ones. Collectives may move, as their
/// values say: every rank runs the same program. The producer of what is assigned is kept behind the readers too, so that it may
/// write in place.
void FuseGroups::addMemoryDependences() {
  llvm::DenseMap<const Value *, std::vector<Node *>> readers;
  llvm::DenseMap<const Value *, Node *> writer;
  for (auto &p : f.nodes) {
    Node *n = p.get();
    for (unsigned i = 0; i < n->numOperands(); ++i) {
      // What reads a view reads the memory under it.
      Value *v = n->operand(i);
      while (v && v->def && v->def->op->view)
        v = v->def->operand(0);
      if (!v)
        continue;
      if (Node *w = writer.lookup(v))
        dependOn(n, w);
      if (!n->op->updates(i)) {
        if (v->isGlobal())
          readers[v].push_back(n);
        continue;
      }
      Value *source = assigns(*n) ? behindReshapes(n->operand(1)) : nullptr;
      firstWrite.try_emplace(v, source && source->def ? source->def : n);
      for (Node *r : readers[v]) {
        if (r != n)
          dependOn(n, r);
        if (source && source->def && r != source->def && index(r) < index(source->def))
          dependOn(source->def, r);
      }
      readers[v].clear();
      writer[v] = n;
    }
  }
}

/// Updates that stand in the forward stay beside what they stand behind: nothing else keeps them there, and the forward may move.
void FuseGroups::addPlaces() {
  const Node *loss = f.results.empty() ? nullptr : f.results[0]->def;
  Node *last = nullptr; // no node that a kernel of the forward may get
  for (auto &n : f.nodes) {
    if (n.get() == loss)
      return;
    if (n->phase == Phase::Update && !n->op->leaf && last)
      dependOn(n.get(), last);
    else if (n->phase == Phase::Forward && !n->op->view && n->op->structural == Structural::None && !isGenerated(*n))
      last = n.get();
  }
}

bool FuseGroups::hasForward(const FuseGroup &g) const {
  const Node *loss = f.results.empty() ? nullptr : f.results[0]->def;
  return llvm::any_of(g.nodes, [&](Node *n) { return loss && index(n) <= index(loss); });
}

/// `b` has become part of `a`.
void FuseGroups::settleJoined(FuseGroup *a, FuseGroup *b) {
  isSettled = false;
  a->contact.merge(b->contact);
  a->readsKept |= b->readsKept;
  for (Node *n : b->nodes)
    of(n).group = a;
  b->nodes.clear();
  b->isKernel = false;
  FuseGroup *place = b->place ? b->place : b;
  if (!a->place || a->place->label < place->label)
    a->place = place;
}

/// Joins a single node with a group that it stands behind, in steps that do not grow with the group; nullopt if that takes a
/// closer look. A chain of operators is joined in this way.
std::optional<bool> FuseGroups::append(FuseGroup *a, FuseGroup *b) {
  Node *n = b->nodes.front();
  auto isReshaped = [](Value *v) { return v && v->def && v->def->op->reshapes; };
  if (b->nodes.size() > 1 || index(a->nodes.back()) >= index(n) || llvm::any_of(n->operands(), isReshaped))
    return std::nullopt;
  if (a->reads.empty())
    a->reads = a->inputs();
  size_t known = a->reads.size();
  for (Value *v : n->operands())
    if (v && !(v->def && groupOf(v->def) == a) && !llvm::is_contained(a->reads, v))
      a->reads.push_back(v);
  bool joined = a->reads.size() <= kMostInputs && extend(*a->shape, n);
  std::optional<bool> answer = joined;
  if (!joined && a->reads.size() <= kMostInputs)
    answer = std::nullopt;
  if (joined && !bringTogether(a, b)) {
    withdraw(*a->shape, n);
    answer = joined = false;
  }
  if (!joined) {
    a->reads.resize(known);
    return answer;
  }
  ++steps;
  a->nodes.push_back(n);
  settleJoined(a, b);
  return true;
}

/// The shape of both together, of which `b` stands behind `a`: that of the one with reductions, or of the larger, as far as the
/// other adds nothing to it.
static std::optional<KernelShape> jointShape(const FuseGroup &a, const FuseGroup &b, const FuseGroup &both) {
  auto rank = [](const FuseGroup &g) { return std::pair(g.shape->form != KernelShape::Pointwise, g.nodes.size()); };
  const bool isBase = a.shape->form == KernelShape::Pointwise && rank(a) < rank(b); // `b`
  KernelShape s = *(isBase ? b : a).shape;
  std::vector<Node *> all = both.withReshapes(), members, more;
  for (Node *n : all)
    (s.extents.count(n) ? members : more).push_back(n);
  if (!isBase)
    members.clear(); // none of them reads what is added
  return extend(s, more, members) ? std::move(s) : kernelShape(all);
}

/// Joins two kernels if they share loops and nothing between them needs one and feeds the other.
bool FuseGroups::join(FuseGroup *a, FuseGroup *b, bool joinsColumns) {
  if ((a->readsKept && hasForward(*b)) || (b->readsKept && hasForward(*a)))
    return false;
  if (a == b || !a->isKernel || !b->isKernel || a->nodes.size() + b->nodes.size() > kMostNodes)
    return false;
  if (a->label > b->label)
    std::swap(a, b);
  if (isSeenBetween(*a, *b))
    return false;
  if (auto joined = append(a, b))
    return *joined;
  steps += a->nodes.size() + b->nodes.size();
  FuseGroup both;
  both.isKernel = true;
  std::merge(a->nodes.begin(), a->nodes.end(), b->nodes.begin(), b->nodes.end(), std::back_inserter(both.nodes),
             [&](Node *x, Node *y) { return index(x) < index(y); });
  both.shape = jointShape(*a, *b, both);
  if (!both.shape || (both.shape->hasColumns && !joinsColumns) || !fits(*both.shape))
    return false;
  both.reads = both.inputs();
  if (both.reads.size() > kMostInputs || !bringTogether(a, b))
    return false;
  a->nodes = std::move(both.nodes);
  a->shape = std::move(both.shape);
  a->reads = std::move(both.reads);
  settleJoined(a, b);
  return true;
}

void FuseGroups::grow() {
  std::vector<Node *> all;
  for (auto &n : f.nodes)
    all.push_back(n.get());
  for (Node *n : all) {
    if (!groupOf(n)->isKernel)
      continue;
    // Larger producers first: joining them saves the most.
    std::vector<FuseGroup *> producers;
    for (Value *v : n->operands()) {
      Value *root = v ? behindReshapes(v) : nullptr;
      if (root && root->def && groupOf(root->def)->isKernel)
        producers.push_back(groupOf(root->def));
    }
    llvm::stable_sort(producers, [](FuseGroup *x, FuseGroup *y) { return x->shape->count() > y->shape->count(); });
    for (FuseGroup *p : producers)
      if (p->isKernel)
        join(p, groupOf(n));
  }
  settle();
}

/// Joins `g` with a kernel of its form that reads what it reads, and that `suits`; the joint group, or nullptr. `looks`: how many
/// more readers to try.
FuseGroup *FuseGroups::joinSibling(FuseGroup *g, size_t &looks, llvm::function_ref<bool(const FuseGroup &)> suits) {
  for (Value *v : g->inputs()) {
    if (v->type.localCount() != g->shape->count())
      continue;
    for (auto &u : v->uses) {
      if (looks-- == 0)
        return nullptr;
      ++steps;
      FuseGroup *o = groupOf(u.node);
      if (!o || o == g || !o->isKernel || o->shape->form != g->shape->form || o->shape->count() != g->shape->count())
        continue;
      if (suits(*o) && join(o, g))
        return groupOf(u.node);
    }
  }
  return nullptr;
}

void FuseGroups::joinSiblings() {
  for (FuseGroup *g : sequence.all()) {
    size_t looks = kMostLooks;
    if (g->isKernel && g->shape->form != KernelShape::Pointwise)
      while (g && looks)
        g = joinSibling(g, looks, [](auto &) { return true; });
  }
  settle();
}

/// Whole tensors that a kernel reads.
static llvm::SmallPtrSet<Value *, 8> wholeInputs(const FuseGroup &g) {
  llvm::SmallPtrSet<Value *, 8> out;
  for (Value *v : g.inputs())
    if (v->type.localCount() == g.shape->count())
      out.insert(v);
  return out;
}

void FuseGroups::joinReaders() {
  constexpr size_t kMostTries = 8; // of kernels beside one
  auto isOne = [](const FuseGroup &g) {
    return g.isKernel && g.shape->form == KernelShape::Pointwise && g.nodes.back()->phase == Phase::Backward;
  };
  for (FuseGroup *g : sequence.all()) {
    size_t looks = kMostLooks, tries = kMostTries;
    while (g && isOne(*g) && looks) {
      const auto mine = wholeInputs(*g);
      g = joinSibling(g, looks, [&](const FuseGroup &o) {
        if (!isOne(o) || !tries)
          return false;
        steps += o.nodes.size(), --tries;
        return llvm::count_if(wholeInputs(o), [&](Value *x) { return mine.contains(x); }) >= 2;
      });
    }
  }
  settle();
}

/// Whether the group does nothing but sum over rows what lies row by row, and what follows from that.
static bool sumsDenseRows(const FuseGroup &g) {
  auto isDense = [&](Value *v) {
    auto view = viewOf(v);
    return v->type.localCount() != g.shape->count() || (view && view->isDense());
  };
  auto isFull = [&](const Value *v) { return g.shape->extents.lookup(v->def) == Extent::Full; };
  return g.shape->form == KernelShape::Column && llvm::none_of(g.outputs(), isFull) && llvm::all_of(g.inputs(), isDense);
}

void FuseGroups::joinColumns(int64_t leastRows) {
  for (FuseGroup *g : sequence.all()) {
    if (!g->isKernel || g->shape->form != KernelShape::Row || g->shape->keptCount() < leastRows ||
        g->shape->rowCount() > kWidestColumns)
      continue;
    llvm::SetVector<Value *, std::vector<Value *>> rows;
    for (Value *v : llvm::concat<Value *const>(g->outputs(), g->inputs()))
      if (v->type.localCount() == g->shape->count())
        rows.insert(v);
    for (size_t i = 0; i < rows.size(); ++i)
      for (auto &u : rows[i]->uses) {
        ++steps;
        if (u.node->op->reshapes)
          rows.insert(u.node->result());
        FuseGroup *o = groupOf(u.node);
        const Node *member = g->nodes.front();
        if (o && o->isKernel && o->shape->count() == g->shape->count() && sumsDenseRows(*o) && join(g, o, /*joinsColumns=*/true))
          g = groupOf(member);
      }
  }
  settle();
}

std::vector<FuseGroup *> FuseGroups::order() {
  std::vector<FuseGroup *> out;
  for (FuseGroup *g : sequence.all()) {
    for (Node *n : g->nodes)
      n->moveBefore(nullptr);
    out.push_back(g);
  }
  return out;
}
